//! Two indexers on loopback, kvtap's and the router's own, and publishers that both follow.

pub mod corpus;
pub mod publish;
pub mod settle;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use dynamo_kv_router::services::indexer::recovery::recover_from_peers;
use dynamo_kv_router::services::indexer::server::{AppState, create_router};
use kvtap::server::{Server, Service, ServiceOptions};
use serde_json::Value;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE_MS: i32 = 60_000;

/// Starts kvtap's service.
pub fn start_kvtap() -> Server {
    let service = Service::new(ServiceOptions::default()).expect("listener threads");
    Server::start(Arc::new(service), "127.0.0.1:0").expect("a port")
}

/// Starts the peer's, with as many index threads as its own default. It runs as long as the process.
pub fn start_dynamo() -> SocketAddr {
    serve_dynamo(None)
}

/// Starts the peer's as another of its kind starts: it takes over what this server dumps, and answers from that.
pub fn start_dynamo_from(other: SocketAddr) -> SocketAddr {
    serve_dynamo(Some(format!("http://{other}")))
}

fn serve_dynamo(other: Option<String>) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The peer's decoder recurses: with the usual 2 MiB the capture `broken` ends its process.
        .thread_stack_size(64 << 20)
        .enable_all()
        .build()
        .expect("threads");
    let address = runtime.block_on(async {
        let state = AppState::new(4).expect("an indexer");
        if let Some(other) = other {
            assert!(
                recover_from_peers(&[other], &state.registry).await.expect("a client"),
                "nothing was taken over"
            );
        }
        state.registry.signal_ready();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, create_router(Arc::new(state))).await });
        address
    });
    std::mem::forget(runtime);
    address
}

static AGENT: LazyLock<ureq::Agent> =
    LazyLock::new(|| ureq::Agent::config_builder().http_status_as_error(false).build().into());

/// Asks. Gives the status and the answer.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut response = AGENT.get(format!("http://{address}{path}")).call().expect("an answer");
    (response.status().as_u16(), response.body_mut().read_to_string().expect("text"))
}

/// Sends anything, as this type of content. Gives the status and the answer.
pub fn send(address: SocketAddr, path: &str, content: (&str, &str)) -> (u16, String) {
    let (content_type, body) = content;
    let request = AGENT.post(format!("http://{address}{path}")).header("content-type", content_type);
    let mut response = request.send(body).expect("an answer");
    (response.status().as_u16(), response.body_mut().read_to_string().expect("text"))
}

/// Sends JSON, without spaces: a million tokens must fit the peer's limit. Gives the status and the answer.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = send(address, path, ("application/json", &body.to_string()));
    let answer =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {status} {text}: {error}"));
    (status, answer)
}
