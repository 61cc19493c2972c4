//! The service over real HTTP on loopback: every endpoint, every kind of error, and its end.

mod support;

#[path = "support/client.rs"]
mod client;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use kvtap::server::{Server, Service, ServiceOptions};
use serde_json::{Value, json};

use support::publisher::{Publisher, TCP};
use support::source::{Event, list, pack, payload, store};

/// Enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    service: Arc<Service>,
    server: Server,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        let service = Arc::new(Service::new(ServiceOptions::default()).unwrap());
        let server = Server::start(Arc::clone(&service), "127.0.0.1:0").unwrap();
        let client = Client::new(server.address(), PATIENCE);
        Self { service, server, client }
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.client.get(path)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.client.post(path, body)
    }

    /// Registers a publisher and waits until it is subscribed to.
    fn register(&self, publisher: &Publisher, instance_id: u64, dp_rank: u32) {
        let (status, answer) =
            self.post("/register", &registration(&publisher.endpoint, instance_id, dp_rank));
        assert_eq!((status, answer), (201, json!({"status": "ok"})));
        publisher.wait_for_subscriber();
    }

    /// Waits until so many batches have come, and are visible.
    fn wait_for_batches(&self, batches: u64) {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen: u64 = self.service.statuses().iter().map(|status| status.counters.batches).sum();
            if seen >= batches {
                break;
            }
            assert!(Instant::now() < end, "{seen} of {batches} batches");
            std::thread::yield_now();
        }
    }

    /// Asks until the answer is as wanted: what was applied becomes visible a moment later.
    fn query_until(&self, body: &Value, is_so: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let (status, answer) = self.post("/query", body);
            assert_eq!(status, 200, "{answer}");
            if is_so(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "{answer}");
            std::thread::yield_now();
        }
    }
}

fn registration(endpoint: &str, instance_id: u64, dp_rank: u32) -> Value {
    json!({
        "instance_id": instance_id, "endpoint": endpoint, "model_name": "m", "block_size": 4, "dp_rank": dp_rank,
        "tenant_id": "says nothing",
    })
}

fn at(event: Event, medium: &str) -> Event {
    event.set("medium", medium)
}

fn query(tokens: u32) -> Value {
    json!({"token_ids": (1..=tokens).collect::<Vec<_>>(), "model_name": "m"})
}

#[test]
fn answers_have_the_shapes_of_the_routers_own_indexer() {
    let bench = Bench::new();
    let publishers = [Publisher::bind(TCP, TCP), Publisher::bind(TCP, TCP)];
    bench.register(&publishers[0], 7, 0);
    bench.register(&publishers[1], 7, 1);
    // Rank 0: two blocks on the device, one more in host memory, one more on disk. Rank 1: the first block.
    let events = [
        store(&[1, 2], None, 1..=8),
        at(store(&[3], Some(2), 9..=12), "CPU"),
        at(store(&[4], Some(3), 13..=16), "DISK"),
    ];
    publishers[0].send(0, &payload(events, 0));
    publishers[1].send(0, &payload([store(&[1], None, 1..=4)], 1));
    bench.wait_for_batches(2);
    let done = |answer: &Value| answer["instances"]["7"]["disk"] == 16 && answer["scores"]["7"]["1"] == 4;
    let answer = bench.query_until(&query(18), done);
    let wanted = json!({
        "scores": {"7": {"0": 8, "1": 4}},
        "frequencies": [],
        "instances": {"7": {"longest_matched": 16, "gpu": 8, "dp": {"0": 8, "1": 4}, "cpu": 12, "disk": 16}},
    });
    assert_eq!(answer, wanted);
    // With what the index says, if asked: blocks by rank and tier.
    let mut asked = query(18);
    asked["depths"] = true.into();
    let depths = json!({"block_size": 4, "blocks": 4, "matches": [
        {"instance_id": 7, "dp_rank": 0, "device": 2, "host_pinned": 3, "disk": 4, "external": 4},
        {"instance_id": 7, "dp_rank": 1, "device": 1, "host_pinned": 1, "disk": 1, "external": 1},
    ]});
    let mut with_depths = wanted.clone();
    with_depths["depths"] = depths;
    assert_eq!(bench.post("/query", &asked), (200, with_depths));
    // By local hashes, signed as Dynamo's clients send them.
    let mut hashes = Vec::new();
    kvtap::Prompt::new(&(1..=18).collect::<Vec<_>>(), 4).local_hashes(&mut hashes);
    let hashes: Vec<i64> = hashes.iter().map(|hash| hash.0.cast_signed()).collect();
    assert!(hashes.iter().any(|&hash| hash < 0), "a case of its own");
    let by_hash = bench.post("/query_by_hash", &json!({"block_hashes": hashes, "model_name": "m"}));
    assert_eq!(by_hash, (200, wanted));
    let none = json!({"scores": {}, "frequencies": [], "instances": {}});
    for other in [json!({"lora_name": "a"}), json!({"cache_salt": "s"}), json!({"token_ids": []})] {
        let mut body = query(18);
        body.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        assert_eq!(bench.post("/query", &body), (200, none.clone()), "{other}");
    }
}

#[test]
fn workers_are_listed_filtered_and_unregistered() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 7, 0);
    publisher.send(0, &payload([store(&[1], None, 1..=4)], 0));
    bench.query_until(&query(4), |answer| answer["scores"]["7"]["0"] == 4);
    let endpoint = &publisher.endpoint;
    let wanted = json!([{
        "instance_id": 7, "source": "zmq", "status": "active", "model_name": "m", "routing_group": "default",
        "block_size": 4, "endpoints": {"0": endpoint},
        "listeners": {"0": {"endpoint": endpoint, "status": "active"}},
    }]);
    assert_eq!(bench.get("/workers"), (200, wanted.clone()));
    assert_eq!(bench.get("/workers?model_name=m&routing_group=default&tenant_id=x"), (200, wanted));
    assert_eq!(bench.get("/workers?model_name=other"), (200, json!([])));

    let (status, error) =
        bench.post("/unregister", &json!({"instance_id": 7, "model_name": "m", "dp_rank": 3}));
    assert_eq!((status, error), (404, json!({"error": "instance 7 dp_rank 3 not found"})));
    let gone = bench.post("/unregister", &json!({"instance_id": 7, "model_name": "m"}));
    assert_eq!(gone, (200, json!({"status": "ok"})));
    assert_eq!(bench.get("/workers"), (200, json!([])));
    // The partition went with its last source.
    let (status, error) = bench.post("/query", &query(4));
    assert_eq!((status, error), (404, json!({"error": "no indexer for model=m routing_group=default"})));
}

#[test]
fn partitions_do_not_see_each_other() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 1, 0);
    let mut other = registration(&publisher.endpoint, 2, 0);
    other["routing_group"] = "g".into();
    other["block_size"] = 8.into();
    assert_eq!(bench.post("/register", &other).0, 201);
    publisher.wait_for_subscriber();
    publisher.send(0, &payload([store(&[1, 2], None, 1..=8)], 0));
    let answer = bench.query_until(&query(8), |answer| answer["scores"] == json!({"1": {"0": 8}}));
    assert_eq!(answer["instances"]["1"]["gpu"], 8);
    bench.wait_for_batches(2);
    let mut in_group = query(8);
    in_group["routing_group"] = "g".into();
    // There the block size is another one, so nothing was placed; and it says so.
    assert_eq!(bench.post("/query", &in_group).1["scores"], json!({}));
    let (status, explained) = bench.get("/explain?instance_id=2");
    assert_eq!((status, &explained[0]["not_placed"][0]["reason"]), (200, &json!("block_size_mismatch")));
    let last = &explained[0]["not_placed"][0]["last"];
    assert_eq!(
        (&last["kind"], &last["blocks"], &last["first_block_hash"]),
        (&json!("stored"), &json!(2), &json!("1"))
    );
    assert_eq!(explained[0]["block_size_mismatches"], json!([{"dp_rank": 0, "block_size": 4, "events": 1}]));
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence_with_its_status() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 7, 0);
    let with = |key: &str, value: Value| {
        let mut changed = registration(&publisher.endpoint, 8, 0);
        changed[key] = value;
        bench.post("/register", &changed)
    };
    let taken = publisher.endpoint.replace("127.0.0.1", "*");
    let cases = [
        (with("endpoint", "nowhere".into()), 400, "tcp://HOST:PORT"),
        (with("replay_endpoint", "nowhere".into()), 400, "tcp://HOST:PORT"),
        // Longer than a path to a socket may be.
        (with("endpoint", format!("ipc://@{}", "x".repeat(200)).into()), 400, "cannot be connected to"),
        (with("endpoint", taken.into()), 400, "cannot be bound: Address already in use"),
        (
            with("block_size", 8.into()),
            409,
            "block_size mismatch for model=m routing_group=default: existing=4, requested=8",
        ),
        (with("instance_id", 7.into()), 409, "instance 7 dp_rank 0 already registered"),
        (with("block_size", 65_537.into()), 400, "block size must be 1 to 65536 tokens, not 65537"),
        (with("block_size", "four".into()), 422, "block_size"),
        (with("copies", "two".into()), 422, "copies"),
        (
            bench.post("/unregister", &json!({"instance_id": 9, "model_name": "m"})),
            404,
            "instance 9 not found",
        ),
        (bench.post("/unregister", &json!({"instance_id": 7, "model_name": "x"})), 404, "model=m"),
        (bench.post("/query", &json!({"model_name": "m"})), 422, "token_ids"),
        (bench.post("/query", &json!({"model_name": "m", "token_ids": [-1]})), 422, "token_ids"),
        (
            bench.post("/query_by_hash", &json!({"model_name": "m", "block_hashes": [], "cache_salt": "s"})),
            400,
            "cache_salt",
        ),
        (bench.client.send("/query", "application/json", "{"), 400, "JSON"),
        (bench.client.send("/query", "text/plain", "{}"), 415, "application/json"),
        (bench.client.send("/register", "application/json", &" ".repeat(65 << 10)), 413, "longer"),
        (bench.get("/nothing"), 404, "/nothing"),
        (bench.get("/query"), 405, "GET"),
        (bench.get("/explain?instance_id=9"), 404, "instance 9"),
        (bench.get("/sources?instance_id=x"), 400, "instance_id"),
    ];
    for ((status, answer), wanted, part) in cases {
        let sentence = answer["error"].as_str().unwrap_or_else(|| panic!("{part}: {answer}"));
        assert!(status == wanted && sentence.contains(part), "{part}: {status} {answer}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
    let with_group = json!({
        "instance_id": 7, "endpoint": publisher.endpoint, "model_name": "other", "block_size": 4, "dp_rank": 1,
    });
    let (status, answer) = bench.post("/register", &with_group);
    assert_eq!(status, 409);
    assert_eq!(answer["error"], "instance 7 is already registered for model=m routing_group=default");
    // A partition that came to nothing is not there.
    let mut bad = registration(&format!("ipc://@{}", "x".repeat(200)), 8, 0);
    bad["model_name"] = "new".into();
    assert_eq!(bench.post("/register", &bad).0, 400);
    assert_eq!(bench.post("/query", &json!({"token_ids": [], "model_name": "new"})).0, 404);
}

#[test]
fn a_million_tokens_are_answered() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 7, 0);
    publisher.send(0, &payload([store(&[1, 2], None, 4_294_000_000..=4_294_000_007)], 0));
    let tokens: Vec<u32> =
        (4_294_000_000..4_295_000_000_u64).filter_map(|token| u32::try_from(token).ok()).collect();
    let tokens: Vec<u32> = tokens.iter().copied().chain(0..).take(1_000_000).collect();
    let body = json!({"token_ids": tokens, "model_name": "m"});
    assert!(body.to_string().len() > 10_000_000);
    let answer = bench.query_until(&body, |answer| answer["scores"]["7"]["0"] == 8);
    assert_eq!(answer["instances"]["7"]["longest_matched"], 8);
    let (status, error) = bench.client.send("/query", "application/json", &" ".repeat((16 << 20) + 1));
    assert_eq!(status, 413, "{error}");
}

#[test]
fn sources_and_reasons_are_told() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 7, 0);
    let events =
        [store(&[1], None, 1..=4), at(store(&[2], Some(1), 5..=8), "TAPE"), Event::new("BlockMoved")];
    publisher.send(0, &payload(events, 0));
    // A batch is missing, and nobody replays it.
    publisher.send(2, &pack(&list![1.0, list![], 0]));
    bench.wait_for_batches(2);
    let (status, sources) = bench.get("/sources");
    let source = &sources[0];
    assert_eq!(
        (status, &source["instance_id"], &source["endpoint"]),
        (200, &json!(7), &json!(publisher.endpoint))
    );
    assert_eq!(
        (&source["state"], &source["degraded"], &source["cursor"]),
        (&json!("live"), &json!(true), &json!(2))
    );
    assert_eq!(
        (&source["gaps"], &source["lost_batches"], &source["entries"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(source["encodings"], json!({"stored, map": 2}));
    assert!(source["lag_s"].as_f64().unwrap() > 1e9, "its clock is of 1970: {source}");

    let (status, explained) =
        bench.get("/explain?instance_id=7&dp_rank=0&model_name=m&routing_group=default");
    assert_eq!((status, explained.as_array().unwrap().len()), (200, 1));
    let reasons = &explained[0]["not_placed"];
    let of =
        |reason: &str| reasons.as_array().unwrap().iter().find(|entry| entry["reason"] == reason).unwrap();
    assert_eq!(
        (&of("unknown_medium")["count"], &of("unknown_medium")["last"]["medium"]),
        (&json!(1), &json!("TAPE"))
    );
    assert_eq!(of("unknown_medium")["counted_in"], "events");
    assert_eq!(of("unknown")["last"]["detail"], "BlockMoved");
    assert_eq!(explained[0]["drift"], json!({"unknown_tag:BlockMoved": 1}));

    assert_eq!(bench.post("/query", &query(4)).0, 200);
    let (status, metrics) = bench.get("/metrics");
    let metrics = metrics.as_str().unwrap();
    assert!(status == 200 && metrics.ends_with("# EOF\n"), "{metrics}");
    let labels = r#"model_name="m",routing_group="default",instance_id="7",dp_rank="0""#;
    for line in [
        format!("kvtap_batches_total{{{labels}}} 2"),
        format!("kvtap_events_total{{{labels},kind=\"stored\"}} 2"),
        format!("kvtap_events_total{{{labels},kind=\"unknown\"}} 1"),
        format!("kvtap_not_placed_total{{{labels},reason=\"unknown_medium\",counted_in=\"events\"}} 1"),
        format!("kvtap_gaps_total{{{labels}}} 1"),
        format!("kvtap_lost_batches_total{{{labels}}} 1"),
        format!("kvtap_schema_drift_total{{{labels},field=\"unknown_tag:BlockMoved\"}} 1"),
        format!("kvtap_source_state{{{labels},state=\"live\"}} 1.0"),
        format!("kvtap_source_degraded{{{labels}}} 1.0"),
        r#"kvtap_index_entries{model_name="m",routing_group="default"} 1.0"#.to_owned(),
        r#"kvtap_query_seconds_count{endpoint="query"} 1"#.to_owned(),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[test]
fn a_dump_brings_about_what_is_held() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 7, 0);
    // A chain of 40 blocks with a branch after its second, one end in host memory, and one block taken out.
    let hashes: Vec<u64> = (1..=40).collect();
    let events = [
        store(&hashes, None, 1..=160),
        store(&[100, 101], Some(2), 900..=907),
        at(store(&[200], Some(101), 908..=911), "CPU"),
        support::source::remove(&[40]),
    ];
    publisher.send(0, &payload(events, 0));
    bench.wait_for_batches(1);
    let (status, dumped) = bench.get("/dump");
    assert_eq!((status, &dumped["m:default"]["block_size"]), (200, &json!(4)));
    let mut locals = std::collections::BTreeMap::new();
    let mut held = Vec::new();
    for event in dumped["m:default"]["events"].as_array().unwrap() {
        assert_eq!((&event["worker_id"], &event["event"]["dp_rank"]), (&json!(7), &json!(0)));
        let stored = &event["event"]["data"]["stored"];
        let mut parent = stored["parent_hash"].as_u64();
        for block in stored["blocks"].as_array().unwrap() {
            let hash = block["block_hash"].as_u64().unwrap();
            assert!(parent.is_none_or(|parent| locals.contains_key(&parent)), "parents come first: {dumped}");
            locals.insert(hash, block["tokens_hash"].as_u64().unwrap());
            held.push((event["storage_tier"].as_str().unwrap(), hash, parent));
            parent = Some(hash);
        }
    }
    held.sort_unstable();
    let mut wanted: Vec<_> =
        (1..=39).map(|hash| ("device", hash, Some(hash - 1).filter(|&hash| hash > 0))).collect();
    wanted.extend([("device", 100, Some(2)), ("device", 101, Some(100)), ("host_pinned", 200, Some(101))]);
    assert_eq!(held, wanted);
    let mut hashes = Vec::new();
    kvtap::Prompt::new(&(1..=156).collect::<Vec<_>>(), 4).local_hashes(&mut hashes);
    assert!((1..).zip(&hashes).all(|(hash, local)| locals[&hash] == local.0));
}

/// Names of metrics, and the labels their samples have.
fn metric_labels(metrics: &str) -> std::collections::BTreeMap<String, Vec<String>> {
    let mut found = std::collections::BTreeMap::<String, Vec<String>>::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(['{', ' ']).unwrap();
        let labels = rest.split_once("} ").map_or("", |(labels, _)| labels);
        let keys = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        found.entry(name.to_owned()).or_default().extend(keys);
    }
    found
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    bench.register(&publisher, 7, 0);
    publisher.send(0, &payload([at(store(&[1], None, 1..=4), "TAPE"), Event::new("BlockMoved")], 0));
    bench.wait_for_batches(1);
    let metrics = metric_labels(bench.get("/metrics").1.as_str().unwrap());
    let dashboard: Value = serde_json::from_str(include_str!("../dashboards/kvtap.json")).unwrap();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let words: Vec<&str> = query
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|word| !word.is_empty())
                .collect();
            let names: Vec<_> = words.iter().filter(|word| word.starts_with("kvtap_")).collect();
            assert!(!names.is_empty(), "{query}");
            let known = |name: &&&str| metrics.get(**name).unwrap_or_else(|| panic!("{name} of {query}"));
            let labels: Vec<_> = names.iter().flat_map(known).collect();
            // Labels it groups by, and labels it selects.
            let grouped =
                query.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(','));
            let selected = query.split(['{', ',']).filter_map(|part| Some(part.split_once("=~")?.0));
            for label in grouped.chain(selected).map(str::trim) {
                assert!(labels.iter().any(|known| *known == label), "{label} of {query}");
            }
            asked += names.len();
        }
    }
    assert!(asked > 10, "{asked}");
}

#[test]
fn the_page_is_three_files_that_load_nothing_from_elsewhere() {
    let bench = Bench::new();
    let mut response = bench.client.agent().get(bench.client.url("/")).call().unwrap();
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    let page = response.body_mut().read_to_string().unwrap();
    assert!(page.starts_with("<!doctype html>") && !page.contains("//"), "{page}");
    let mut files = Vec::new();
    for (path, kind) in [("page.css", "text/css"), ("page.js", "text/javascript")] {
        assert!(page.contains(&format!("=\"{path}\"")), "{path}");
        let mut response = bench.client.agent().get(bench.client.url(&format!("/{path}"))).call().unwrap();
        assert_eq!(response.headers()["content-type"], format!("{kind}; charset=utf-8"));
        files.push(response.body_mut().read_to_string().unwrap());
    }
    let script = &files[1];
    assert!(!script.contains("innerHTML"), "what comes from the wire is text");
    for reason in kvtap::Reason::ALL {
        assert!(script.contains(&format!("\n  {}: [", reason.label())), "{} is explained", reason.label());
    }
}

#[test]
fn health_is_at_once_and_ready_when_sources_are_there() {
    let bench = Bench::new();
    let publisher = Publisher::bind(TCP, TCP);
    // Nobody is there yet.
    let free = Publisher::bind(TCP, TCP).endpoint;
    assert_eq!(bench.post("/register", &registration(&free, 1, 0)).0, 201);
    assert_eq!(bench.client.agent().get(bench.client.url("/health")).call().unwrap().status().as_u16(), 200);
    let (status, answer) = bench.get("/ready");
    assert_eq!((status, answer), (503, json!({"error": "1 of 1 sources are still connecting or replaying"})));
    assert_eq!(bench.get("/workers").1[0]["status"], "pending");
    assert_eq!(bench.post("/unregister", &json!({"instance_id": 1, "model_name": "m"})).0, 200);
    bench.register(&publisher, 1, 0);
    publisher.send(0, &pack(&list![1.0, list![], 0]));
    bench.wait_for_batches(1);
    assert_eq!(bench.get("/ready"), (200, json!({"status": "ok"})));
}

#[test]
fn a_request_that_has_begun_is_answered_before_the_server_ends() {
    let Bench { server, .. } = Bench::new();
    let address = server.address();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = json!({"token_ids": [1], "model_name": "m"}).to_string();
    let head = format!(
        "POST /query HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&body.as_bytes()[..3]).unwrap();
    // Another request's answer shows that the first has been taken up: connections are accepted in order.
    let other = ureq::get(format!("http://{address}/health")).call().unwrap();
    assert_eq!(other.status().as_u16(), 200);
    let stopping = std::thread::spawn(move || server.stop());
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < end, "still taking connections");
    }
    connection.write_all(&body.as_bytes()[3..]).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("no indexer for model=m"), "{answer}");
    stopping.join().unwrap();
}
