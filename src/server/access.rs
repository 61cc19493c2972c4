//! A line per request, at debug level. Unless it is wanted when the server starts, nothing of this runs.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;

/// Loggers choose by it.
const TARGET: &str = "kvtap::access";
/// Characters told of a path or a model.
const CHARS_MAX: usize = 128;

/// Where a handler notes which model a request is about.
#[derive(Clone, Debug, Default)]
pub(super) struct AskedModel(Arc<OnceLock<String>>);

impl AskedModel {
    pub(super) fn note(&self, model_name: &str) {
        // A request is about one model.
        let _ = self.0.set(shown(model_name));
    }
}

pub(super) fn is_wanted() -> bool {
    log::log_enabled!(target: TARGET, log::Level::Debug)
}

/// Answers, then tells of it.
pub(super) async fn tell(mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let model = AskedModel::default();
    request.extensions_mut().insert(model.clone());
    let (method, path) = (request.method().clone(), shown(request.uri().path()));
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let bytes = length.map_or_else(|| "-".to_owned(), shown);
    let response = next.run(request).await;
    log::debug!(
        target: TARGET,
        "{method} {path} model={} status={} bytes={bytes} us={}",
        model.0.get().map_or("-", String::as_str),
        response.status().as_u16(),
        start.elapsed().as_micros(),
    );
    response
}

/// What a client says, on one line.
fn shown(text: &str) -> String {
    text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect()
}
