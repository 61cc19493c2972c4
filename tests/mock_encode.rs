//! The stand-in's bytes, read back by an independent msgpack reader, say field by field what its events say.

use kvtap::mock::{Batch, Encoding, Event, MockEngine, MockOptions, Scenario, Stored};
use rmpv::Value;

const BATCHES: usize = 400;

/// Streams with everything an encoding can express.
fn streams() -> impl Iterator<Item = (Encoding, Vec<Vec<Event>>)> {
    Encoding::ALL.into_iter().map(|encoding| {
        let mut options = MockOptions::new(Scenario::Mixed, encoding);
        options.pool_blocks = 128;
        let mut mock = MockEngine::new(&options).unwrap();
        (encoding, (0..BATCHES).map(|_| mock.next_batch()).collect())
    })
}

fn decoded(encoding: Encoding, timestamp: f64, events: &[Event]) -> Value {
    let bytes = encoding.encode(&Batch { timestamp, events, dp_rank: 2 });
    let mut rest = bytes.as_slice();
    let value = rmpv::decode::read_value(&mut rest).unwrap();
    assert!(rest.is_empty());
    value
}

/// A map in the order of its keys, as producers write it; fields that are left out are left out.
fn map(fields: Vec<(&str, Option<Value>)>) -> Value {
    let set = fields.into_iter().filter_map(|(key, value)| Some((Value::from(key), value?)));
    Value::Map(set.collect())
}

fn or_nil(value: Option<impl Into<Value>>) -> Value {
    value.map_or(Value::Nil, Into::into)
}

fn hash(encoding: Encoding, hash: u64) -> Value {
    match encoding {
        Encoding::VllmMap | Encoding::VllmTuple => hash.into(),
        Encoding::Sglang | Encoding::Trtllm | _ => hash.cast_signed().into(),
    }
}

fn list<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    Value::Array(items.iter().map(value).collect())
}

fn extra_keys(stored: &Stored) -> Option<Value> {
    if stored.block_size == 0 || stored.block_hashes.is_empty() {
        return None;
    }
    let count = stored.block_hashes.len();
    let whole = stored.token_ids.len() == count * usize::try_from(stored.block_size).unwrap();
    let entry = |block: usize| {
        let mut keys: Vec<Value> = Vec::new();
        keys.extend(stored.identity.lora.as_ref().map(|lora| lora.name.as_str().into()));
        if block == 0 && whole && stored.parent.is_none() {
            keys.extend(stored.identity.cache_salt.as_deref().map(Value::from));
        }
        if keys.is_empty() { Value::Nil } else { Value::Array(keys) }
    };
    Some(Value::Array((0..count).map(entry).collect()))
}

fn stored(encoding: Encoding, stored: &Stored) -> Value {
    let by_hash = stored.block_size == 0;
    let identity = &stored.identity;
    let lora_id = or_nil(identity.lora.as_ref().map(|lora| lora.id));
    let lora_name = identity.lora.as_ref().map(|lora| Value::from(lora.name.as_str()));
    let hashes = list(&stored.block_hashes, |block| hash(encoding, block.0));
    let parent = or_nil(stored.parent.map(|parent| hash(encoding, parent.0)));
    let tokens = list(&stored.token_ids, |token| Value::from(*token));
    let medium = Value::from(encoding.medium(stored.medium));
    let salt = identity.cache_salt.as_deref().map(Value::from);
    let session = identity.session_id.as_deref().map(Value::from);
    let kind = (!by_hash).then(|| Value::from(stored.group.spec_kind));
    let window = stored.group.sliding_window.map(Value::from);
    if encoding == Encoding::VllmTuple {
        return Value::Array(vec![
            "BlockStored".into(),
            hashes,
            parent,
            tokens,
            stored.block_size.into(),
            lora_id,
            medium,
            or_nil(lora_name),
            or_nil(extra_keys(stored)),
            stored.group.index.into(),
            or_nil(kind),
            or_nil(window),
        ]);
    }
    let mut fields = vec![
        ("type", Some("BlockStored".into())),
        ("block_hashes", Some(hashes)),
        ("parent_block_hash", Some(parent)),
        ("token_ids", Some(tokens)),
        ("block_size", Some(stored.block_size.into())),
    ];
    match encoding {
        Encoding::VllmMap => fields.extend([
            ("lora_id", Some(lora_id)),
            ("medium", Some(medium)),
            ("lora_name", Some(or_nil(lora_name))),
            ("extra_keys", extra_keys(stored)),
            ("group_idx", Some(stored.group.index.into())),
            ("kv_cache_spec_kind", kind),
            ("kv_cache_spec_sliding_window", window),
            ("session_id", session),
        ]),
        Encoding::Sglang => fields.extend([
            ("lora_id", Some(Value::Nil)),
            ("medium", Some(medium)),
            ("cache_salt", salt),
            ("session_id", session),
            ("lora_name", lora_name),
        ]),
        Encoding::VllmTuple | Encoding::Trtllm | _ => {
            fields.extend([("lora_name", lora_name), ("cache_salt", salt)]);
        }
    }
    map(fields)
}

fn expected(encoding: Encoding, event: &Event) -> Value {
    match event {
        Event::Stored(event) => stored(encoding, event),
        Event::Removed(removed) => {
            let hashes = list(&removed.block_hashes, |block| hash(encoding, block.0));
            let medium = Value::from(encoding.medium(removed.medium));
            let group = Value::from(removed.group_idx);
            let fields = match encoding {
                Encoding::VllmTuple => {
                    return Value::Array(vec!["BlockRemoved".into(), hashes, medium, group]);
                }
                Encoding::VllmMap => vec![("medium", Some(medium)), ("group_idx", Some(group))],
                Encoding::Sglang => vec![("medium", Some(medium))],
                Encoding::Trtllm | _ => Vec::new(),
            };
            let head = vec![("type", Some("BlockRemoved".into())), ("block_hashes", Some(hashes))];
            map([head, fields].concat())
        }
        Event::Cleared if encoding == Encoding::VllmTuple => Value::Array(vec!["AllBlocksCleared".into()]),
        Event::Cleared => map(vec![("type", Some("AllBlocksCleared".into()))]),
    }
}

#[test]
fn every_field_is_on_the_wire_as_it_is_in_the_event() {
    for (encoding, batches) in streams() {
        for (step, events) in batches.iter().enumerate() {
            let timestamp = f64::from(u32::try_from(step).unwrap()) + 0.25;
            let value = decoded(encoding, timestamp, events);
            let items = list(events, |event| expected(encoding, event));
            assert_eq!(
                value,
                Value::Array(vec![timestamp.into(), items, 2.into()]),
                "{} batch {step}",
                encoding.label()
            );
        }
    }
}

#[test]
fn tensorrt_sends_one_event_per_batch() {
    let (_, batches) = streams().find(|(encoding, _)| *encoding == Encoding::Trtllm).unwrap();
    assert!(batches.iter().all(|events| events.len() == 1));
}

#[test]
fn sglang_starts_by_saying_that_its_cache_is_empty() {
    for (encoding, batches) in streams() {
        assert_eq!(batches[0] == [Event::Cleared], encoding == Encoding::Sglang, "{}", encoding.label());
    }
}
