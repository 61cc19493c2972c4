//! Every place of a payload where a value may stand, as the bytes before it and behind it.

use rmpv::Value;

use crate::support::source::{list, pack, remove, store};

/// A place for one value.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) before: Vec<u8>,
    pub(crate) behind: Vec<u8>,
    /// Depth of a container that stands here; the batch is 1.
    pub(crate) depth: usize,
    /// Whether a sound value of the wrong type is the event's business, not the payload's.
    pub(crate) any_type: bool,
}

impl Place {
    /// The payload with a value put in.
    pub(crate) fn put(&self, value: &[u8]) -> Vec<u8> {
        [&self.before[..], value, &self.behind].concat()
    }
}

/// Stands for the value while a payload is built; occurs nowhere else.
const HOLE: &[u8] = b"\xa6(here)";

fn hole() -> Value {
    Value::from("(here)")
}

fn place(name: String, payload: &[u8], depth: usize) -> Place {
    let mut found = payload.windows(HOLE.len()).enumerate().filter(|&(_, window)| window == HOLE);
    let (at, _) = found.next().expect("a hole");
    assert!(found.next().is_none(), "one hole: {name}");
    let behind = payload[at + HOLE.len()..].to_vec();
    Place { name, before: payload[..at].to_vec(), behind, depth, any_type: true }
}

/// Events with a hole, and the depth there.
fn events() -> Vec<(String, Value, usize)> {
    let mut events = vec![("event".to_owned(), hole(), 3)];
    for tag in ["BlockStored", "BlockRemoved", "AllBlocksCleared", "Tomorrow"] {
        for key in KEYS {
            let name = format!("{tag}.{key}");
            let map = vec![(Value::from("type"), Value::from(tag)), (Value::from(key), hole())];
            events.push((name, Value::Map(map), 4));
        }
        let map = vec![(hole(), Value::from(1)), (Value::from("type"), Value::from(tag))];
        events.push((format!("{tag} key"), Value::Map(map), 4));
        for slot in 1..16 {
            let mut elements = vec![Value::from(tag)];
            elements.resize(slot, Value::Nil);
            elements.extend([hole(), Value::from(7), Value::from("mamba")]);
            events.push((format!("{tag}[{slot}]"), Value::Array(elements), 4));
        }
    }
    events.push(("tag of a tuple".to_owned(), list![hole(), 1, 2], 4));
    events.push(("tag of a map".to_owned(), Value::Map(vec![(Value::from("type"), hole())]), 4));
    events.extend(INSIDE.map(|(field, wrap, depth)| {
        let value = wrap(hole());
        (format!("inside {field}"), Value::from(store(&[1], None, 1..=4).set(field, value)), depth)
    }));
    let metadata = |key: Value, value: Value| {
        let map = Value::Map(vec![(key, value)]);
        list!["BlockStored", list![1], Value::Nil, list![1, 2, 3, 4], 4, Value::Nil, "GPU", map]
    };
    events.push(("salt in the metadata".to_owned(), metadata(Value::from("cache_salt"), hole()), 5));
    events.push(("metadata value".to_owned(), metadata(Value::from("other"), hole()), 5));
    events.push(("metadata key".to_owned(), metadata(hole(), Value::from(1)), 5));
    events
}

const KEYS: [&str; 19] = [
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "block_mm_infos",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "cache_salt",
    "lookahead_token_ids",
    "unheard_of",
];

/// Ways to stand inside a field's list, and the depth there.
type Wrap = fn(Value) -> Value;
const INSIDE: [(&str, Wrap, usize); 11] = [
    ("block_hashes", |hole| list![hole], 5),
    ("block_hashes", |hole| list![1, 2, hole, 3], 5),
    ("token_ids", |hole| list![hole], 5),
    ("token_ids", |hole| list![1, 2, 3, hole], 5),
    ("token_ids", |hole| list![list![1, hole]], 6),
    ("token_ids", |hole| list![list![1, 2], list![hole, 3]], 6),
    ("extra_keys", |hole| list![hole], 5),
    ("extra_keys", |hole| list![Value::Nil, list!["a", hole]], 6),
    ("extra_keys", |hole| list![list![list!["a", hole]]], 7),
    ("block_mm_infos", |hole| list![Value::Map(vec![(Value::from("mm_objects"), hole)])], 6),
    ("block_mm_infos", |hole| list![list![list![list![hole]]]], 8),
];

/// The events alone, and among sound ones.
fn in_batches(name: &str, event: &Value, depth: usize) -> [Place; 4] {
    let sound = || Value::from(store(&[7, 8], None, 1..=8));
    let also = || Value::from(remove(&[7]));
    let batches = [
        ("alone", list![event.clone()]),
        ("first", list![event.clone(), sound(), also()]),
        ("between", list![sound(), event.clone(), also()]),
        ("last", list![sound(), also(), event.clone()]),
    ];
    batches.map(|(where_, events)| place(format!("{name}, {where_}"), &pack(&list![1.0, events, 0]), depth))
}

/// Places outside the events.
fn envelopes() -> Vec<Place> {
    let events = || list![Value::from(store(&[7], None, 1..=4))];
    let text = |key: &str| Value::from(key);
    let map = |pairs: Vec<(Value, Value)>| Value::Map(pairs);
    let known = || vec![(text("ts"), Value::from(1)), (text("events"), events())];
    let with = |key: Value, value: Value, front: bool| {
        let mut pairs = known();
        pairs.insert(if front { 0 } else { 2 }, (key, value));
        map(pairs)
    };
    let any_type = [
        ("fourth slot", list![1.0, events(), 0, hole()]),
        ("sixth slot", list![1.0, events(), 0, Value::Nil, "x", hole(), 1]),
        ("unknown value in front", with(text("x"), hole(), true)),
        ("unknown value behind", with(text("x"), hole(), false)),
        ("unknown key in front", with(hole(), Value::from(1), true)),
        ("unknown key behind", with(hole(), Value::from(1), false)),
        ("a value overruled", map([vec![(text("ts"), hole())], known()].concat())),
        // Of several ranks the first by name counts, wherever it stands.
        ("a rank overruled", {
            let ranks = vec![(text("dp_rank"), hole()), (text("data_parallel_rank"), Value::from(1))];
            map([known(), ranks].concat())
        }),
    ];
    let own_type = [
        ("timestamp", list![hole(), events(), 0]),
        ("events", list![1.0, hole(), 0]),
        ("rank", list![1.0, events(), hole()]),
        ("timestamp of a map", map(vec![(text("ts"), hole()), (text("events"), events())])),
        ("events of a map", map(vec![(text("events"), hole()), (text("ts"), Value::from(1))])),
        ("rank of a map", with(text("attn_dp_rank"), hole(), false)),
    ];
    let mut places: Vec<_> =
        any_type.into_iter().map(|(name, value)| place(name.to_owned(), &pack(&value), 2)).collect();
    places.extend(
        own_type
            .into_iter()
            .map(|(name, value)| Place { any_type: false, ..place(name.to_owned(), &pack(&value), 2) }),
    );
    places
}

/// All of them.
pub(crate) fn places() -> Vec<Place> {
    let mut places = envelopes();
    for (name, event, depth) in events() {
        places.extend(in_batches(&name, &event, depth));
    }
    assert!(places.len() > 500);
    places
}
