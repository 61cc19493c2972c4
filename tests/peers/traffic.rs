//! Loading while an engine publishes: nothing is missed, nothing counts twice.

use std::collections::{BTreeMap, HashMap};

use kvtap::Worker;
use kvtap::mock::{self, Batch, Encoding, MockEngine, MockOptions, Scenario};
use serde_json::{Value, json};

use crate::bench::{Instance, query};
use crate::support::publisher::{Publisher, TCP};
use crate::support::source::{Event, payload, remove, store};

const WORKER: Worker = Worker { worker_id: 7, dp_rank: 0 };

struct Traffic {
    engine: MockEngine,
    publisher: Publisher,
    next: u64,
}

fn engine(seed: u64) -> MockEngine {
    let mut options = MockOptions::new(Scenario::Mixed, Encoding::VllmMap);
    (options.seed, options.block_size) = (seed, 4);
    MockEngine::new(&options).unwrap()
}

/// Seeds of engines that clear nothing from batch 300 to 900: whenever another takes over meanwhile, there is something to take.
fn seeds() -> impl Iterator<Item = u64> {
    (0..).filter(|&seed| {
        let mut engine = engine(seed);
        (0..900).all(|number| !engine.next_batch().contains(&mock::Event::Cleared) || number < 300)
    })
}

impl Traffic {
    fn new(seed: u64) -> Self {
        Self { engine: engine(seed), publisher: Publisher::bind(TCP, TCP), next: 0 }
    }

    fn publish(&mut self, batches: usize) {
        for _ in 0..batches {
            let events = self.engine.next_batch();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let batch = Batch { timestamp: self.next as f64, events: &events, dp_rank: 0 };
            self.publisher.send(self.next, &Encoding::VllmMap.encode(&batch));
            self.next += 1;
        }
    }

    /// What the engine holds, that a listener has to hold as well.
    fn digest(&self) -> u64 {
        self.engine.digest(WORKER)
    }

    const fn last(&self) -> u64 {
        self.next - 1
    }
}

/// Every chain of blocks in a dump, as local hashes.
fn chains(dump: &Value) -> Vec<Vec<i64>> {
    let mut paths: HashMap<u64, Vec<i64>> = HashMap::new();
    let mut chains = Vec::new();
    for event in dump["m:default"]["events"].as_array().unwrap() {
        let stored = &event["event"]["data"]["stored"];
        let mut path = stored["parent_hash"].as_u64().map_or_else(Vec::new, |parent| paths[&parent].clone());
        for block in stored["blocks"].as_array().unwrap() {
            path.push(block["tokens_hash"].as_u64().unwrap().cast_signed());
            paths.insert(block["block_hash"].as_u64().unwrap(), path.clone());
        }
        chains.push(path);
    }
    chains
}

fn answers(instance: &Instance, chains: &[Vec<i64>]) -> Vec<Value> {
    let ask = |chain: &Vec<i64>| {
        instance.post("/query_by_hash", &json!({"block_hashes": chain, "model_name": "m"})).1
    };
    chains.iter().map(ask).collect()
}

/// What a dump says, whatever the order and the names of places that only lead to others.
fn said(dump: &Value) -> (BTreeMap<String, usize>, Value) {
    let partition = &dump["m:default"];
    let mut blocks = BTreeMap::new();
    for event in
        [&partition["events"], &partition["severed"]].into_iter().flat_map(|list| list.as_array().unwrap())
    {
        for block in event["event"]["data"]["stored"]["blocks"].as_array().unwrap() {
            let mut block = block.clone();
            if block["copies"] == 0 {
                block["block_hash"] = Value::Null;
            }
            let said = format!("{} {} {block}", event["storage_tier"], event["event"]["dp_rank"]);
            *blocks.entry(said).or_insert(0) += 1;
        }
    }
    (blocks, partition["sources"].clone())
}

#[test]
fn an_instance_that_starts_amid_traffic_ends_as_its_peer() {
    for seed in seeds().take(4) {
        let mut traffic = Traffic::new(seed);
        let endpoint = traffic.publisher.endpoint.clone();
        let first = Instance::new();
        first.register(&endpoint, 7, None);
        traffic.publisher.wait_for_subscriber();
        traffic.publish(400);
        first.wait_for_cursor(traffic.last());

        // It has subscribed, but reads nothing before it knows what came before.
        let second = Instance::with(&[first.url()], |_| ());
        second.register(&endpoint, 7, None);
        traffic.publisher.wait_for_subscriber();
        traffic.publish(100);
        assert_eq!(second.status().cursor, None);
        assert!(second.service.ready().unwrap_err().to_string().contains("peer"));
        let second = second.listening();
        for _ in 0..50 {
            traffic.publish(8);
        }
        for instance in [&first, &second] {
            instance.wait_for_cursor(traffic.last());
        }
        second.wait_until_loaded();
        assert_eq!(second.get("/ready").0, 200);
        let status = second.status();
        assert!(status.taken_blocks > 100, "{status:?}");
        let sequence = status.sequence;
        assert_eq!((sequence.gaps, sequence.lost_batches, sequence.restarts), (0, 0, 0), "{status:?}");
        assert!(!status.degraded);

        let [dump, other] = [&first, &second].map(|instance| instance.get("/dump").1);
        assert_eq!(said(&dump), said(&other), "{seed}");
        let chains = chains(&dump);
        assert!(chains.len() > 20, "{}", chains.len());
        assert_eq!(answers(&first, &chains), answers(&second, &chains));
        let [one, two] = [first, second].map(|instance| instance.service.stop().remove(0));
        assert_eq!((one.digest, two.digest), (traffic.digest(), traffic.digest()), "{seed}");
        assert_eq!(one.entries, two.entries);
    }
}

/// Batches 0 to 3 of a small engine, as it keeps them: blocks 1 to 4 under a salt, block 2 twice, block 9 taken out.
fn kept() -> Vec<(u64, Vec<u8>)> {
    let salted = |event: Event| event.set("cache_salt", "s");
    let batches = [
        payload([salted(store(&[1, 2], None, 1..=8))], 0),
        payload([store(&[3, 4], Some(2), 9..=16), store(&[2], Some(1), 5..=8)], 0),
        payload([store(&[9], None, 91..=94)], 0),
        payload([remove(&[9])], 0),
        // After the dump: a copy of 2 goes, 4 goes, 5 follows 3 without saying the salt.
        payload([remove(&[2, 4]), store(&[5], Some(3), 17..=20)], 0),
        payload([store(&[6], Some(5), 21..=24)], 0),
        payload([remove(&[6])], 0),
    ];
    (0..).zip(batches).collect()
}

fn salted(tokens: impl IntoIterator<Item = u32>) -> Value {
    json!({"token_ids": tokens.into_iter().collect::<Vec<_>>(), "model_name": "m", "cache_salt": "s"})
}

/// An instance that knows batches 0 to 3.
fn knowing(publisher: &Publisher) -> Instance {
    let first = Instance::new();
    first.register(&publisher.endpoint, 7, None);
    publisher.wait_for_subscriber();
    kept()[..4].iter().for_each(|(sequence, payload)| publisher.send(*sequence, payload));
    first.wait_for_cursor(3);
    first
}

#[test]
fn a_worker_counts_before_it_registers_and_goes_on_from_there() {
    let publisher = Publisher::bind(TCP, TCP);
    let first = knowing(&publisher);
    let second = Instance::with(&[first.url()], |_| ()).listening();
    second.wait_until_loaded();
    second.expect(&salted(1..=24), &json!({"0": 16}));
    assert_eq!(second.get("/workers").1, json!([]));
    // A third learns it from the second.
    let third = Instance::with(&[second.url()], |_| ()).listening();
    third.wait_until_loaded();
    assert_eq!(said(&third.get("/dump").1), said(&first.get("/dump").1));
    drop(first);

    // Batches 4 and 5 are heard by nobody.
    second.register(&publisher.endpoint, 7, Some(&publisher.replay_endpoint));
    publisher.wait_for_subscriber();
    second.expect(&salted(1..=24), &json!({"0": 16}));
    publisher.send(6, &kept()[6].1);
    assert_eq!(publisher.answer(&kept()), 3, "asked from the batch before the gap on");
    second.wait_for_cursor(6);
    second.expect(
        &salted([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].into_iter().chain(17..=24)),
        &json!({"0": 16}),
    );
    let status = second.status();
    assert_eq!((status.sequence.gaps, status.sequence.replayed_batches), (1, 2));
    assert_eq!((status.sequence.lost_batches, status.degraded), (0, false));
    assert_eq!(status.counters.filtered(kvtap::Reason::UnknownBlock), 0, "every removal found its block");
    assert_eq!(status.counters.filtered(kvtap::Reason::UnknownParent), 0);

    // Without a replay the same is lost, and said to be.
    third.register(&publisher.endpoint, 7, None);
    publisher.wait_for_subscriber();
    publisher.send(6, &kept()[6].1);
    third.wait_for_cursor(6);
    let status = third.status();
    assert_eq!((status.sequence.lost_batches, status.degraded), (2, true));
}

#[test]
fn an_engine_that_has_restarted_since_is_noticed() {
    let publisher = Publisher::bind(TCP, TCP);
    let first = knowing(&publisher);
    let second = Instance::with(&[first.url()], |_| ()).listening();
    second.wait_until_loaded();
    drop(first);
    second.register(&publisher.endpoint, 7, None);
    publisher.wait_for_subscriber();
    let event: rmpv::Value = store(&[1], None, 1..=4).into();
    let newer = rmpv::Value::Array(vec![2.0.into(), rmpv::Value::Array(vec![event]), 0.into()]);
    publisher.send(0, &crate::support::source::pack(&newer));
    second.wait_for_cursor(0);
    second.expect(&query(8), &json!({"0": 4}));
    second.expect(&salted(1..=24), &Value::Null);
    assert_eq!(second.status().sequence.restarts, 1);
}
