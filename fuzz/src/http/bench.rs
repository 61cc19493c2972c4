//! A service with blocks in it, and the library's readers over the same blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use kvtap::server::{PartitionId, Registration, Service, ServiceOptions, Unregistration, router};
use kvtap::source::SourceOptions;
use kvtap::{Config, Engine, Ingest, LocalHash, Match, Prompt, Reader, SourceConfig};
use serde_json::{Value, json};

use super::request::Request;
use crate::asking::{answer, runtime, send};
use crate::support::publisher::{Publisher, ipc};
use crate::support::source::{Event, payload, store};

/// Where nobody publishes: abstract sockets, which leave nothing behind.
pub(super) const NOWHERE: &str = "ipc://@kvtap-fuzz-";
const PATIENCE: Duration = Duration::from_secs(60);

/// Worker, rank, routing group of each source that holds blocks.
const HOLDERS: [(u64, u32, &str); 3] = [(7, 0, "default"), (7, 1, "default"), (9, 0, "g")];

/// The service and what is expected of it.
pub(super) struct Bench {
    runtime: tokio::runtime::Runtime,
    router: Router,
    service: Arc<Service>,
    twins: BTreeMap<&'static str, Twin>,
    /// As it was before anybody asked for anything.
    dump: Value,
    _publishers: Vec<Publisher>,
}

/// One partition as the library's own user has it.
struct Twin {
    reader: Reader,
    block_size: u32,
    _engine: Engine,
    _ingests: Vec<Ingest>,
}

fn block_size(group: &str) -> u32 {
    if group == "g" { 2 } else { 4 }
}

/// What a holder publishes: four blocks at three tiers, and blocks under an adapter and a salt.
fn events(dp_rank: u32, group: &str) -> Vec<Event> {
    let size = block_size(group);
    let blocks = |first: u64, count: u64, parent: Option<u64>| {
        let hashes: Vec<u64> = (first..first + count).collect();
        let end = u32::try_from(first + count - 1).expect("small") * size;
        let start = (u32::try_from(first).expect("small") - 1) * size + 1;
        store(&hashes, parent, start..=end).set("block_size", size)
    };
    if dp_rank == 1 {
        return vec![blocks(1, 1, None)];
    }
    vec![
        blocks(1, 2, None),
        blocks(3, 1, Some(2)).set("medium", "CPU"),
        blocks(4, 1, Some(3)).set("medium", "EXTERNAL"),
        store(&[101, 102], None, 1..=2 * size).set("block_size", size).set("lora_name", "a"),
        store(&[201], None, 1..=size).set("block_size", size).set("cache_salt", "s"),
    ]
}

impl Twin {
    fn new(group: &str) -> Self {
        let mut config = Config::default();
        config.shards = 1;
        let engine = Engine::new(config).expect("an engine");
        let mut ingests = Vec::new();
        for (worker_id, dp_rank, _) in HOLDERS.into_iter().filter(|holder| holder.2 == group) {
            let mut config = SourceConfig::new(worker_id);
            (config.dp_rank, config.block_size) = (dp_rank, block_size(group));
            let mut ingest = engine.ingest(config).expect("a source");
            ingest.apply(&payload(events(dp_rank, group), dp_rank)).expect("a payload");
            ingest.flush();
            ingests.push(ingest);
        }
        Self { reader: engine.reader(), block_size: block_size(group), _engine: engine, _ingests: ingests }
    }

    /// The answer in the shape that routers know.
    fn answer(&mut self, hashes: &[LocalHash]) -> Value {
        let mut matches: Vec<Match> = Vec::new();
        self.reader.find_local_matches(hashes, &mut matches);
        let of_rank = |found: Match| ((found.worker.worker_id, found.worker.dp_rank), found.depths);
        answer(self.block_size, matches.into_iter().map(of_rank))
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        let mut options = ServiceOptions::default();
        (options.shards, options.listeners) = (1, 1);
        let service = Arc::new(Service::new(options).expect("a service"));
        let publishers = HOLDERS.map(|(worker_id, dp_rank, group)| {
            let publisher = Publisher::bind(&ipc(), &ipc());
            let mut options = SourceOptions::new(publisher.endpoint.clone(), worker_id);
            (options.ingest.dp_rank, options.ingest.block_size) = (dp_rank, block_size(group));
            let partition = PartitionId { model_name: "m".to_owned(), routing_group: group.to_owned() };
            service.register(Registration { partition, options }).expect("a source");
            publisher.wait_for_subscriber();
            publisher.send(0, &payload(events(dp_rank, group), dp_rank));
            publisher
        });
        let twins = HOLDERS.map(|(_, _, group)| (group, Twin::new(group)));
        let mut bench = Self {
            runtime: runtime(),
            router: router(Arc::clone(&service)),
            service,
            twins: twins.into(),
            dump: Value::Null,
            _publishers: publishers.into(),
        };
        bench.wait_for_blocks();
        bench.dump = bench.ask("GET", "/dump", Value::Null);
        bench
    }

    /// Until what was published is visible: then every answer is the last one.
    fn wait_for_blocks(&mut self) {
        let end = Instant::now() + PATIENCE;
        for group in ["default", "g"] {
            let tokens: Vec<u32> = (1..=40).collect();
            for name in ["none", "lora_name", "cache_salt"] {
                let mut asked = json!({"model_name": "m", "routing_group": group, "token_ids": tokens});
                asked[name] = if name == "lora_name" { "a".into() } else { "s".into() };
                let right = self.right(true, &asked).expect("a query");
                while self.ask("POST", "/query", asked.clone()) != right {
                    assert!(Instant::now() < end, "{right} never came");
                    std::thread::yield_now();
                }
            }
        }
    }

    fn ask(&self, method: &'static str, path: &str, body: Value) -> Value {
        let request = Request {
            method,
            path: path.to_owned(),
            query: None,
            content_type: Some("application/json".to_owned()),
            body: body.to_string().into_bytes(),
            is_damaged: false,
        };
        let (_, body) = self.send(&request).expect("a request");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// Status and body of the answer; none if HTTP has no such request.
    pub(super) fn send(&self, request: &Request) -> Option<(u16, Vec<u8>)> {
        let uri = request
            .query
            .as_ref()
            .map_or_else(|| request.path.clone(), |it| format!("{}?{it}", request.path));
        let mut builder = axum::http::Request::builder().method(request.method).uri(uri);
        if let Some(kind) = &request.content_type {
            builder = builder.header("content-type", kind);
        }
        let built = builder.body(Body::from(request.body.clone())).ok()?;
        if built.uri().path() != request.path {
            return None; // a fragment, or another host's
        }
        Some(send(&self.runtime, &self.router, built))
    }

    /// What a query must be answered, or the status by which it must be refused.
    pub(super) fn right(&mut self, by_tokens: bool, asked: &Value) -> Result<Value, u16> {
        const WRONG: u16 = 422;
        let text = |key: &str| asked.get(key).map_or(Ok(None), |it| it.as_str().map(Some).ok_or(WRONG));
        let text_or_null = |key: &str| match asked.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(WRONG),
        };
        let list = |key: &str| asked.get(key).and_then(Value::as_array).ok_or(WRONG);
        let model = text("model_name")?.ok_or(WRONG)?;
        let group = text("routing_group")?.unwrap_or("default");
        let salt = text_or_null("cache_salt")?;
        let mut hashes = Vec::new();
        let mut prompt = Prompt { cache_salt: salt, ..Prompt::default() };
        let mut tokens: Vec<u32> = Vec::new();
        if by_tokens {
            let token = |value: &Value| value.as_u64().and_then(|it| u32::try_from(it).ok()).ok_or(WRONG);
            tokens = list("token_ids")?.iter().map(token).collect::<Result<_, _>>()?;
            prompt.lora_name = text_or_null("lora_name")?;
            prompt.bigram = asked.get("bigram").map_or(Ok(false), |it| it.as_bool().ok_or(WRONG))?;
        } else {
            let hash = |value: &Value| value.as_i64().map(|it| LocalHash(it.cast_unsigned())).ok_or(WRONG);
            hashes = list("block_hashes")?.iter().map(hash).collect::<Result<_, _>>()?;
            if salt.is_some() {
                return Err(400);
            }
        }
        let is_known = model == "m" && self.twins.contains_key(group);
        if !is_known {
            let none = json!({"scores": {}, "frequencies": [], "instances": {}});
            return if self.is_registered(model, group) { Ok(none) } else { Err(404) };
        }
        let twin = self.twins.get_mut(group).expect("known");
        if by_tokens {
            prompt.token_ids = &tokens;
            prompt.block_size = twin.block_size;
            prompt.local_hashes(&mut hashes);
        }
        Ok(twin.answer(&hashes))
    }

    fn is_registered(&self, model: &str, group: &str) -> bool {
        let workers = self.ask("GET", "/workers", Value::Null);
        let workers = workers.as_array().expect("a list");
        workers.iter().any(|worker| worker["model_name"] == model && worker["routing_group"] == group)
    }

    /// What is held does not change by asking, nor by sources that bring nothing.
    pub(super) fn check_dump(&self, body: &[u8]) {
        let dump: Value = serde_json::from_slice(body).expect("JSON");
        for (partition, held) in self.dump.as_object().expect("partitions") {
            // Sources that bring nothing are listed besides.
            let is_same = |now: &Value| ["events", "severed"].iter().all(|part| now[part] == held[part]);
            assert!(dump.get(partition).is_none_or(is_same), "{partition}: {dump}");
        }
    }

    /// Local hashes of a prompt that is held, as clients send them.
    pub(super) fn held_hashes(blocks: u32, group: &str) -> Vec<i64> {
        let tokens: Vec<u32> = (1..=blocks * block_size(group)).collect();
        let mut hashes = Vec::new();
        Prompt::new(&tokens, block_size(group)).local_hashes(&mut hashes);
        hashes.iter().map(|hash| hash.0.cast_signed()).collect()
    }

    /// Unregisters what an input has registered. Says whether all is left that holds blocks.
    pub(super) fn tidy(&self) -> bool {
        let mut left = 0;
        let workers = self.ask("GET", "/workers", Value::Null);
        for worker in workers.as_array().expect("a list") {
            let worker_id = worker["instance_id"].as_u64().expect("an instance");
            for (rank, endpoint) in worker["endpoints"].as_object().expect("ranks") {
                let dp_rank = rank.parse().expect("a rank");
                if !endpoint.as_str().expect("an endpoint").starts_with(NOWHERE) {
                    left += 1;
                    continue;
                }
                let model_name = worker["model_name"].as_str().expect("a model").to_owned();
                let which =
                    Unregistration { worker_id, model_name, routing_group: None, dp_rank: Some(dp_rank) };
                self.service.unregister(&which).expect("registered");
            }
        }
        left == HOLDERS.len()
    }
}
