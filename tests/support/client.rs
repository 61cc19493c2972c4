//! Asks a service over HTTP as routers do.
#![allow(dead_code, reason = "every test binary uses its own part of this")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

/// Who asks one service.
pub(crate) struct Client {
    url: String,
    agent: ureq::Agent,
}

impl Client {
    /// Each answer may take so long.
    pub(crate) fn new(service: SocketAddr, patience: Duration) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(patience));
        Self { url: format!("http://{service}"), agent: config.build().into() }
    }

    /// Of a path at the service.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) const fn agent(&self) -> &ureq::Agent {
        &self.agent
    }

    /// Status, and JSON or else text.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let mut response = self.agent.get(self.url(path)).call().unwrap();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut response = self.agent.post(self.url(path)).send_json(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_json().unwrap())
    }

    /// As `post`, but any bytes.
    pub(crate) fn send(&self, path: &str, kind: &str, body: &str) -> (u16, Value) {
        let request = self.agent.post(self.url(path)).header("content-type", kind);
        let mut response = request.send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_json().unwrap())
    }
}
