//! What a peer answers to `/dump`, of any content, as a service loads it: what is held then is what an independent reading of the
//! same values says, queries are answered accordingly, and a second service that loads it from the first holds the same.
//!
//! Input: a peer's answer (`body.rs`). A peer in this process gives it; each input has services of its own.

#![expect(clippy::disallowed_types, reason = "one peer for all inputs; libFuzzer runs them one by one")]

mod body;
mod peer;
mod shape;
mod twin;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body as HttpBody;
use axum::http::Request;
use body::Body;
use kvtap::server::{Service, ServiceOptions, router};
use peer::Peer;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use twin::{Held, Partition, Path, check_own, held};

use crate::asking::{answer, runtime, send};

const PATIENCE: Duration = Duration::from_secs(60);
/// Prompts asked for in each partition.
const PROMPTS: usize = 3;

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

/// What lasts from input to input.
struct Bench {
    runtime: Runtime,
    peer: Peer,
}

/// A service that has asked the peer.
struct Loaded<'b> {
    runtime: &'b Runtime,
    router: Router,
}

/// Loads the answer of one input.
pub fn run(data: &[u8]) {
    let mut kept = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = kept.get_or_insert_with(|| Bench { runtime: runtime(), peer: Peer::start() });
    let body = Body::read(data);
    let loaded = bench.load(&body.bytes);
    let dump = loaded.dump();
    let told = held(&dump).expect("a dump");
    // What nobody asks for is passed over where it is no value, nested too deep or a number too large. And a field that comes
    // twice is refused, where a value has the last of them.
    if let Ok(value) = serde_json::from_slice(&body.bytes)
        && !(body.is_damaged && told.is_empty())
    {
        let right = held(&value).unwrap_or_default();
        assert_eq!(told, right, "{value} became {dump}");
    }
    loaded.check_reports(&told);
    loaded.check_queries(&told);
    if !told.is_empty() {
        let again = bench.load(dump.to_string().as_bytes()).dump();
        assert_eq!(held(&again).expect("a dump"), told, "{dump} became {again}");
    }
}

impl Bench {
    /// A new service, once it has loaded what the peer answers, or given up.
    fn load(&self, body: &[u8]) -> Loaded<'_> {
        self.peer.tell(body);
        let mut options = ServiceOptions::default();
        (options.shards, options.listeners) = (1, 1);
        // So it is not ready before a peer has been asked; by itself it asks only once it listens.
        options.peers = vec![self.peer.url.parse().expect("a URL")];
        let service = Arc::new(Service::new(options).expect("a service"));
        let loaded = Loaded { runtime: &self.runtime, router: router(Arc::clone(&service)) };
        let (status, answer) = loaded.ask("POST", "/register_peer", &json!({"url": self.peer.url}));
        assert_eq!(status, 201, "{answer:?}");
        let end = Instant::now() + PATIENCE;
        while service.ready().is_err() {
            assert!(Instant::now() < end, "a load never ended: {}", String::from_utf8_lossy(body));
            std::thread::yield_now();
        }
        loaded
    }
}

impl Loaded<'_> {
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(HttpBody::from(body.to_string())).expect("a request");
        send(self.runtime, &self.router, request)
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let (status, answer) = self.ask("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&answer));
        answer
    }

    /// What the service holds, by its own words.
    fn dump(&self) -> Value {
        let dump = serde_json::from_slice(&self.get("/dump")).expect("JSON");
        check_own(&dump);
        dump
    }

    /// Nobody is registered, and what is held is counted.
    fn check_reports(&self, told: &Held) {
        for path in ["/workers", "/sources"] {
            assert_eq!(self.get(path), b"[]", "{path}");
        }
        let metrics = String::from_utf8(self.get("/metrics")).expect("text");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        let lines = metrics.lines().filter(|line| line.starts_with("kvtap_unclaimed_entries{"));
        let mut counted: Vec<&str> = lines.filter_map(|line| line.rsplit(' ').next()).collect();
        let entries = |partition: &Partition| format!("{}.0", partition.entries());
        let mut right: Vec<_> = told.values().map(entries).collect();
        counted.sort_unstable();
        right.sort_unstable();
        assert_eq!(counted, right, "{metrics}");
    }

    /// Prompts of blocks that are held, as they are and with an end that nobody holds.
    fn check_queries(&self, told: &Held) {
        for ((model_name, routing_group), partition) in told {
            let paths: Vec<&Path> = partition.paths().collect();
            let mut prompts: Vec<Path> =
                paths.iter().step_by(paths.len() / PROMPTS + 1).map(|&path| path.clone()).collect();
            prompts
                .extend(paths.iter().max_by_key(|path| path.len()).map(|path| [&path[..], &[77]].concat()));
            for prompt in prompts {
                let hashes: Vec<i64> = prompt.iter().map(|hash| hash.cast_signed()).collect();
                let asked = json!({
                    "block_hashes": hashes, "model_name": model_name, "routing_group": routing_group,
                });
                let (status, answered) = self.ask("POST", "/query_by_hash", &asked);
                assert_eq!(status, 200, "{asked}: {}", String::from_utf8_lossy(&answered));
                let answered: Value = serde_json::from_slice(&answered).expect("JSON");
                let right = answer(partition.block_size, partition.depths(&prompt));
                assert_eq!(answered, right, "{asked} of {partition:?}");
            }
        }
    }
}
