//! Other instances: `/register_peer`, `/deregister_peer`, `/peers`, and the fetching of what one of them holds.

use std::fmt;
use std::io::BufReader;
use std::str::FromStr;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "control plane: a short list")]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::body::Body;
use super::control::DONE;
use super::load;
use super::problem::ServiceError;
use super::restore::{Restored, restore};
use super::service::Service;

/// Five million blocks.
const DUMP_BYTES_MAX: u64 = 1 << 29;
/// For all of a dump.
const FETCH_TIME: Duration = Duration::from_secs(60);
const CONNECT_TIME: Duration = Duration::from_secs(5);
const PEERS_MAX: usize = 64;
const URL_BYTES_MAX: usize = 2048;

/// Where another instance answers: `http://HOST:PORT`, perhaps with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUrl(String);

impl FromStr for PeerUrl {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let is_one = |uri: Uri| {
            uri.scheme_str() == Some("http")
                && uri.authority().is_some_and(|it| {
                    // A number that is no port counts as none.
                    let has_port = it.port().is_some() || it.as_str().len() == it.host().len();
                    has_port && !it.host().is_empty() && !it.as_str().contains('@')
                })
                && uri.query().is_none()
        };
        if text.len() <= URL_BYTES_MAX && text.parse().is_ok_and(is_one) {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(80).collect();
        Err(ServiceError::bad_request(format_args!(
            "'{}' is no peer: http://HOST:PORT",
            shown.escape_debug()
        )))
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The peers that are known.
#[derive(Debug)]
pub(super) struct Peers {
    #[expect(clippy::disallowed_types, reason = "see the import")]
    urls: Mutex<Vec<PeerUrl>>,
}

impl Peers {
    pub(super) fn new(urls: Vec<PeerUrl>) -> Self {
        #[expect(clippy::disallowed_types, reason = "see the import")]
        let urls = Mutex::new(urls);
        Self { urls }
    }

    pub(super) fn all(&self) -> Vec<PeerUrl> {
        self.urls().clone()
    }

    fn add(&self, url: &PeerUrl) -> Result<(), ServiceError> {
        let mut urls = self.urls();
        if urls.contains(url) {
            return Ok(());
        }
        if urls.len() >= PEERS_MAX {
            return Err(ServiceError::conflict(format_args!("there are {PEERS_MAX} peers already")));
        }
        urls.push(url.clone());
        Ok(())
    }

    fn remove(&self, url: &str) -> bool {
        let mut urls = self.urls();
        let before = urls.len();
        urls.retain(|known| known.0 != url);
        urls.len() < before
    }

    fn urls(&self) -> MutexGuard<'_, Vec<PeerUrl>> {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a peer holds; or in a sentence why nobody knows.
pub(super) fn fetch(peer: &PeerUrl) -> Result<Restored, String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(FETCH_TIME))
        .timeout_connect(Some(CONNECT_TIME))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None);
    let agent: ureq::Agent = config.build().into();
    let url = format!("{}/dump", peer.0.trim_end_matches('/'));
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answers {}", response.status()));
    }
    let body = response.body_mut().with_config().limit(DUMP_BYTES_MAX).reader();
    let dump = serde_json::from_reader(BufReader::new(body)).map_err(|error| error.to_string())?;
    restore(dump)
}

#[derive(Debug, Deserialize)]
struct PeerRequest {
    url: String,
}

/// From now on it is known; what it holds is loaded on a thread, as far as it is more than what is held here.
pub(super) async fn register(
    State(service): State<Arc<Service>>,
    body: Result<Body, ServiceError>,
) -> Result<Response, ServiceError> {
    let PeerRequest { url } = body?.read()?;
    let peer: PeerUrl = url.parse()?;
    service.peers.add(&peer)?;
    load::start(&service, vec![peer])?;
    Ok((StatusCode::CREATED, DONE).into_response())
}

/// What was loaded of it stays.
pub(super) async fn deregister(
    State(service): State<Arc<Service>>,
    body: Result<Body, ServiceError>,
) -> Result<Response, ServiceError> {
    let PeerRequest { url } = body?.read()?;
    if service.peers.remove(&url) {
        return Ok(DONE.into_response());
    }
    Err(ServiceError::not_found("peer not found"))
}

pub(super) async fn list(State(service): State<Arc<Service>>) -> Response {
    let urls: Vec<String> = service.peers.all().into_iter().map(|peer| peer.0).collect();
    Json(urls).into_response()
}
