//! JSON bodies: read whole up to the endpoint's limit, and parsed where the work is done, not where requests are received.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use super::access::AskedModel;
use super::problem::ServiceError;

/// A body that says it is JSON.
pub(super) struct Body {
    bytes: Bytes,
    /// There is none unless requests are logged.
    model: Option<AskedModel>,
}

impl Body {
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ServiceError> {
        let Json(read) = Json::from_bytes(&self.bytes)?;
        Ok(read)
    }

    /// Which model it is about, for the log.
    pub(super) fn is_about(&self, model_name: &str) {
        if let Some(model) = &self.model {
            model.note(model_name);
        }
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ServiceError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ServiceError> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        // A browser sends this to another site only if that site allows it.
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(ServiceError::refused(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the request needs `Content-Type: application/json`",
            ));
        }
        let model = request.extensions().get().cloned();
        Ok(Self { bytes: Bytes::from_request(request, state).await?, model })
    }
}
