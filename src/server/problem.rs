//! What a caller is told when a request fails: a status, and JSON with one sentence.

use std::fmt;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::partition::PartitionId;
use crate::ConfigError;
use crate::source::SourceError;

/// Why the service did not do what it was asked; displays as one sentence.
#[derive(Debug)]
pub struct ServiceError {
    kind: Kind,
    sentence: String,
}

/// What is at fault, from which the status follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request(StatusCode),
    Conflict,
    NotFound,
    NotReady,
    Internal,
}

impl ServiceError {
    fn new(kind: Kind, sentence: impl fmt::Display) -> Self {
        Self { kind, sentence: one_line(&sentence.to_string()) }
    }

    pub(super) fn bad_request(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::Request(StatusCode::BAD_REQUEST), sentence)
    }

    pub(super) fn refused(status: StatusCode, sentence: impl fmt::Display) -> Self {
        Self::new(Kind::Request(status), sentence)
    }

    pub(super) fn conflict(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::Conflict, sentence)
    }

    pub(super) fn not_found(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::NotFound, sentence)
    }

    pub(super) fn not_ready(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::NotReady, sentence)
    }

    pub(super) fn internal(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::Internal, sentence)
    }

    pub(super) fn no_partition(id: &PartitionId) -> Self {
        Self::not_found(format_args!("no indexer for {id}"))
    }

    /// Whether what was asked for is at fault, and not what became of it.
    #[must_use]
    pub const fn is_bad_option(&self) -> bool {
        matches!(self.kind, Kind::Request(_) | Kind::Conflict)
    }

    const fn status(&self) -> StatusCode {
        match self.kind {
            Kind::Request(status) => status,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::NotReady => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Messages of other crates may have several lines.
pub(super) fn one_line(sentence: &str) -> String {
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for ServiceError {}

impl From<SourceError> for ServiceError {
    fn from(error: SourceError) -> Self {
        if error.is_bad_option() { Self::bad_request(error) } else { Self::internal(error) }
    }
}

impl From<ConfigError> for ServiceError {
    fn from(error: ConfigError) -> Self {
        Self::bad_request(error)
    }
}

impl From<JsonRejection> for ServiceError {
    fn from(rejection: JsonRejection) -> Self {
        Self::refused(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for ServiceError {
    fn from(rejection: QueryRejection) -> Self {
        Self::refused(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for ServiceError {
    fn into_response(self) -> Response {
        (self.status(), Json(serde_json::json!({ "error": self.sentence }))).into_response()
    }
}
