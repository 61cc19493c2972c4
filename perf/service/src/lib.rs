//! Two indexers on loopback, kvtap's and the router's own, and publishers that both follow.

use std::net::SocketAddr;
use std::sync::Arc;

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
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let address = runtime.block_on(async {
        let state = AppState::new(4).expect("an indexer");
        state.registry.signal_ready();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, create_router(Arc::new(state))).await });
        address
    });
    std::mem::forget(runtime);
    address
}

/// Sends JSON. Gives the status and the answer.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = config.build().into();
    let mut response = agent.post(format!("http://{address}{path}")).send_json(body).expect("an answer");
    (response.status().as_u16(), response.body_mut().read_json().expect("JSON"))
}

/// A publisher that sees its subscriptions.
pub struct Publisher {
    socket: zmq::Socket,
    /// Where it publishes.
    pub endpoint: String,
}

impl Publisher {
    /// On a free port.
    pub fn bind() -> Self {
        let socket = zmq::Context::new().socket(zmq::XPUB).expect("a socket");
        socket.set_linger(0).expect("an option");
        socket.set_sndhwm(100_000).expect("an option");
        socket.set_xpub_verbose(true).expect("an option");
        socket.set_rcvtimeo(PATIENCE_MS).expect("an option");
        socket.bind("tcp://127.0.0.1:*").expect("a port");
        let endpoint = socket.get_last_endpoint().expect("bound").expect("text");
        Self { socket, endpoint }
    }

    /// Waits for one more subscriber.
    pub fn wait_for_subscriber(&self) {
        while self.socket.recv_bytes(0).expect("a subscriber").first() != Some(&1) {}
    }

    /// Publishes one batch.
    pub fn send(&self, sequence: u64, payload: &[u8]) {
        let frames: [&[u8]; 3] = [b"kv-events", &sequence.to_be_bytes(), payload];
        self.socket.send_multipart(frames, 0).expect("sent");
    }
}
