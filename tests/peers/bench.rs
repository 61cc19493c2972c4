//! Instances, and peers that say whatever a test wants.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvtap::server::{PeerUrl, Registration, Server, Service, ServiceOptions};
use kvtap::source::{SourceOptions, Status};
use serde_json::{Value, json};

use crate::client::Client;

/// Enough for a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Instance {
    pub(crate) service: Arc<Service>,
    listening: Option<(Server, Client)>,
}

impl Instance {
    /// One that listens, and knows nobody.
    pub(crate) fn new() -> Self {
        Self::with(&[], |_| ()).listening()
    }

    /// One that does not listen yet, and so does not load yet.
    pub(crate) fn with(peers: &[String], change: impl FnOnce(&mut ServiceOptions)) -> Self {
        let mut options = ServiceOptions::default();
        options.peers = peers.iter().map(|peer| peer.parse::<PeerUrl>().unwrap()).collect();
        change(&mut options);
        Self { service: Arc::new(Service::new(options).unwrap()), listening: None }
    }

    pub(crate) fn listening(mut self) -> Self {
        let server = Server::start(Arc::clone(&self.service), "127.0.0.1:0").unwrap();
        let client = Client::new(server.address(), PATIENCE);
        self.listening = Some((server, client));
        self
    }

    fn client(&self) -> &Client {
        &self.listening.as_ref().expect("it listens").1
    }

    pub(crate) fn url(&self) -> String {
        self.client().url("")
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.client().get(path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.client().post(path, body)
    }

    /// Registers a source of model `m`, blocks of four.
    pub(crate) fn register(&self, endpoint: &str, worker_id: u64, replay: Option<&str>) {
        let mut options = SourceOptions::new(endpoint, worker_id);
        options.ingest.block_size = 4;
        options.replay = replay.map(str::to_owned);
        self.service.register(Registration { partition: id(), options }).unwrap();
    }

    /// The only source.
    pub(crate) fn status(&self) -> Status {
        let [status] = self.service.statuses().try_into().expect("one source");
        status
    }

    pub(crate) fn wait_until_loaded(&self) {
        wait("loading", || {
            let (status, answer) = self.get("/ready");
            (status == 200 || !answer["error"].as_str().unwrap_or_default().contains("peer")).then_some(())
        });
    }

    /// Waits until the only source has dealt with a batch.
    pub(crate) fn wait_for_cursor(&self, cursor: u64) {
        wait("the cursor", || (self.status().cursor == Some(cursor)).then_some(()));
    }

    /// Tokens of a prompt that worker 7 holds at each tier, once they are as wanted.
    pub(crate) fn expect(&self, query: &Value, wanted: &Value) {
        let mut last = Value::Null;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            last = self.post("/query", query).1["scores"]["7"].clone();
            if last == *wanted {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{last}, not {wanted}");
    }
}

pub(crate) fn id() -> kvtap::server::PartitionId {
    kvtap::server::PartitionId { model_name: "m".to_owned(), routing_group: "default".to_owned() }
}

pub(crate) fn query(tokens: u32) -> Value {
    json!({"token_ids": (1..=tokens).collect::<Vec<_>>(), "model_name": "m"})
}

/// Waits until there is something.
pub(crate) fn wait<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::yield_now();
    }
}

/// A peer that gives the same answer, headers and all, to everybody. It ends with the process.
pub(crate) fn stub(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            // Whoever has had enough closes.
            let _ = connection.write_all(&answer);
        }
    });
    url
}

pub(crate) fn answering(body: &str) -> String {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stub([head.as_bytes(), body.as_bytes()].concat())
}

/// An endpoint where nobody is, nor will be: its port stays taken until the process ends, without anybody who listens.
pub(crate) fn nobody() -> String {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    std::mem::forget(socket);
    url
}
