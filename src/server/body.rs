//! JSON bodies: read whole up to the endpoint's limit, and parsed where the work is done, not where requests are received.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::Json;
use axum::body::HttpBody as _;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::AskedModel;
use super::problem::ServiceError;

/// Bodies up to this long are short: everybody may send one at any time.
const SHORT_BYTES: usize = 64 << 10;
/// Long ones in memory at a time; others wait, unread.
const LONG_BODIES_MAX: usize = 32;
/// How long a body may take to arrive, so that nobody keeps one of those places.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);

static LONG_BODIES: Semaphore = Semaphore::const_new(LONG_BODIES_MAX);

/// How long the bodies of a route may be; a layer says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(pub(super) usize);

/// A body that says it is JSON.
pub(super) struct Body {
    bytes: Vec<u8>,
    /// There is none unless requests are logged.
    model: Option<AskedModel>,
    /// For as long as it is in memory.
    _place: Option<SemaphorePermit<'static>>,
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

    async fn from_request(request: Request, _: &S) -> Result<Self, ServiceError> {
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
        let Limit(limit) = request.extensions().get().copied().unwrap_or(Limit(SHORT_BYTES));
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse().ok());
        if length.is_some_and(|length: usize| length > read_max(limit)) {
            return Err(too_long());
        }
        let is_short = length.is_some_and(|length| length <= SHORT_BYTES);
        // Nobody closes the semaphore.
        let place = if is_short { None } else { LONG_BODIES.acquire().await.ok() };
        let arrival = tokio::time::timeout(ARRIVAL_MAX, read_whole(request.into_body(), limit)).await;
        let bytes = arrival.map_err(|_| {
            let seconds = ARRIVAL_MAX.as_secs();
            let sentence = format_args!("the body has not arrived within {seconds} seconds");
            ServiceError::refused(StatusCode::REQUEST_TIMEOUT, sentence)
        })??;
        Ok(Self { bytes, model, _place: place })
    }
}

fn too_long() -> ServiceError {
    ServiceError::refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than this endpoint takes")
}

/// How much is read of a body that is too long: its end, if that is near. Most clients do not look for an answer before they have
/// sent everything, and would see a closed connection.
const fn read_max(limit: usize) -> usize {
    limit.saturating_mul(2)
}

async fn read_whole(mut body: axum::body::Body, limit: usize) -> Result<Vec<u8>, ServiceError> {
    let (mut bytes, mut length) = (Vec::new(), 0_usize);
    while length <= read_max(limit)
        && let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        let broken =
            |error| ServiceError::bad_request(format_args!("the body has not arrived whole: {error}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        length += data.len();
        if length <= limit {
            bytes.extend_from_slice(&data);
        } else {
            bytes = Vec::new();
        }
    }
    if length <= limit { Ok(bytes) } else { Err(too_long()) }
}
