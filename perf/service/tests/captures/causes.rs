//! What the peer does otherwise than the contract, each as a change of the stream after which it makes no difference.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use dynamo_kv_router::zmq_wire::decode_event_batch;
use kvtap_perf_service::publish::encode;
use rmpv::Value;

use super::oracle::{Oracle, OracleConfig};

/// Marks a salt among a block's extra keys.
const TAG: &str = "dynamo-cache-salt:";
/// Python's hash of the empty tuple, which SGLang up to 0.4.9 sends for "no parent".
const EMPTY_TUPLE: i64 = 5_740_354_900_026_072_187;

/// Why the two differ about a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The peer drops a whole batch for one event, tag, hash or envelope that it cannot read.
    LosesTheBatch,
    /// The peer takes a payload that is broken: bytes after the batch, repeated keys.
    TakesBrokenPayloads,
    /// The peer takes the hash of Python's empty tuple for a parent, which it does not know.
    TakesRootsForChildren,
    /// The peer takes the rank -1 for 4294967295.
    TakesNoRankForARank,
    /// The peer takes a salt among the extra keys only if Dynamo's frontend tagged it, so it mixes up tenants.
    IgnoresUntaggedSalts,
    /// The peer forgets a block at the first removal, however many copies were announced.
    CountsNoCopies,
    /// The peer knows media by their upper-case names alone.
    ReadsMediaInUpperCase,
    /// The peer takes what lay beyond a removed block for gone with it, also when that block alone is stored again.
    EvictsWhatLiesBeyond,
    /// The peer knows one engine hash per place of a prompt; a second one, from keys that the stream does not tell, is lost.
    KnowsOneNamePerPrefix,
}

use Cause::{
    CountsNoCopies, EvictsWhatLiesBeyond, IgnoresUntaggedSalts, KnowsOneNamePerPrefix, LosesTheBatch,
    ReadsMediaInUpperCase, TakesBrokenPayloads, TakesNoRankForARank, TakesRootsForChildren,
};

impl Cause {
    /// The payload without what the peer takes otherwise; `None` if that is all of it.
    pub(crate) fn undo(self, payload: Vec<u8>, config: OracleConfig) -> Option<Vec<u8>> {
        match self {
            LosesTheBatch => decode_event_batch(&payload).is_ok().then_some(payload),
            TakesBrokenPayloads => (!Oracle::new(config).apply(0, &payload).rejected).then_some(payload),
            TakesNoRankForARank => Some(change_batch(payload, |batch| {
                if let Some(rank) = batch.get_mut(2).filter(|rank| rank.as_i64().is_some_and(|rank| rank < 0))
                {
                    *rank = Value::Nil;
                }
            })),
            TakesRootsForChildren => Some(change_events(payload, |event| {
                if let Some(parent) = field(event, "parent_block_hash", 2)
                    && parent.as_i64() == Some(EMPTY_TUPLE)
                {
                    *parent = Value::Nil;
                }
            })),
            IgnoresUntaggedSalts => Some(change_events(payload, tag_salt)),
            // Not a matter of one payload: see `copies` of the registration, `Descendants` and `Names`.
            CountsNoCopies | EvictsWhatLiesBeyond | KnowsOneNamePerPrefix => Some(payload),
            ReadsMediaInUpperCase => Some(change_events(payload, |event| {
                let slot = if is_stored(event) { 6 } else { 2 };
                if let Some(medium) = field(event, "medium", slot)
                    && let Some(text) = medium.as_str()
                {
                    *medium = text.to_ascii_uppercase().into();
                }
            })),
        }
    }
}

fn change_batch(payload: Vec<u8>, change: impl FnOnce(&mut Vec<Value>)) -> Vec<u8> {
    let mut rest = &payload[..];
    let Ok(Value::Array(mut batch)) = rmpv::decode::read_value_with_max_depth(&mut rest, 64) else {
        return payload;
    };
    if !rest.is_empty() {
        return payload;
    }
    let before = batch.clone();
    change(&mut batch);
    if before == batch { payload } else { encode(&Value::Array(batch)) }
}

fn change_events(payload: Vec<u8>, change: impl FnMut(&mut Value)) -> Vec<u8> {
    change_batch(payload, |batch| {
        if let Some(Value::Array(events)) = batch.get_mut(1) {
            events.iter_mut().for_each(change);
        }
    })
}

/// A field of an event in either form.
fn field<'v>(event: &'v mut Value, name: &str, slot: usize) -> Option<&'v mut Value> {
    match event {
        Value::Array(slots) => slots.get_mut(slot),
        Value::Map(pairs) => {
            pairs.iter_mut().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
        }
        _ => None,
    }
}

fn is_stored(event: &mut Value) -> bool {
    field(event, "type", 0).is_some_and(|tag| tag.as_str() == Some("BlockStored"))
}

/// Which blocks follow which, by engine hash.
#[derive(Default)]
pub(crate) struct Descendants(HashMap<u64, BTreeSet<u64>>);

impl Descendants {
    /// Removals take with them what lies beyond.
    pub(crate) fn remove_too(&mut self, payload: Vec<u8>) -> Vec<u8> {
        change_events(payload, |event| {
            let stored = is_stored(event);
            let parent =
                field(event, "parent_block_hash", 2).filter(|_| stored).and_then(|parent| hash(parent));
            let Some(Value::Array(hashes)) = field(event, "block_hashes", 1) else { return };
            if stored {
                let chain: Vec<u64> = parent.into_iter().chain(hashes.iter().filter_map(hash)).collect();
                for pair in chain.windows(2) {
                    self.0.entry(pair[0]).or_default().insert(pair[1]);
                }
                return;
            }
            let mut place = 0;
            while let Some(removed) = hashes.get(place) {
                let beyond = hash(removed).and_then(|hash| self.0.remove(&hash)).unwrap_or_default();
                hashes.extend(beyond.into_iter().map(Value::from));
                place += 1;
            }
        })
    }
}

/// A name for every prefix, by engine hash.
#[derive(Default)]
pub(crate) struct Names(HashMap<u64, u64>);

impl Names {
    /// Prefixes that look alike get the same engine hash.
    pub(crate) fn unify(&mut self, payload: Vec<u8>) -> Vec<u8> {
        change_events(payload, |event| {
            let of_all = ["cache_salt", "lora_name"]
                .map(|name| field(event, name, 7).map(|value| told(value)).unwrap_or_default());
            let keys: Vec<String> =
                extra_keys(event).into_iter().flatten().map(|keys| keys.to_string()).collect();
            let tokens = field(event, "token_ids", 3).and_then(|tokens| tokens.as_array().cloned());
            let block_size = field(event, "block_size", 4).and_then(|size| size.as_u64()).unwrap_or(0);
            let stored = is_stored(event);
            let mut before = None;
            if let Some(parent) = field(event, "parent_block_hash", 2).filter(|_| stored)
                && let Some(name) = hash(parent)
            {
                before = Some(self.0.get(&name).copied().unwrap_or(name));
                *parent = before.map_or(Value::Nil, Value::from);
            }
            let Some(Value::Array(hashes)) = field(event, "block_hashes", 1) else { return };
            let mut blocks = tokens.iter().flat_map(|tokens| tokens.chunks_exact(block_size.max(1) as usize));
            for (place, value) in hashes.iter_mut().enumerate() {
                let Some(name) = hash(value) else { return };
                if let Some(block) = blocks.next().filter(|_| stored) {
                    let mut hasher = DefaultHasher::new();
                    (before, format!("{block:?}"), &of_all, keys.get(place)).hash(&mut hasher);
                    self.0.insert(name, hasher.finish());
                }
                before = Some(self.0.get(&name).copied().unwrap_or(name));
                *value = before.map_or(Value::Nil, Value::from);
            }
        })
    }
}

/// A salt or an adapter's name, or SGLang's map with a salt, which may say nothing.
fn told(value: &Value) -> String {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(_, value)| told(value)).collect(),
        _ => value.as_str().unwrap_or_default().to_owned(),
    }
}

fn hash(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned))
}

fn extra_keys(event: &mut Value) -> Option<&mut Vec<Value>> {
    match field(event, "extra_keys", 8)? {
        Value::Array(blocks) => Some(blocks),
        _ => None,
    }
}

fn lora_name(event: &mut Value) -> Option<String> {
    field(event, "lora_name", 7)?.as_str().map(str::to_owned)
}

fn is_hex_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The last string of a root's first block that is neither its LoRA name nor a digest.
fn tag_salt(event: &mut Value) {
    let lora_name = lora_name(event);
    if field(event, "parent_block_hash", 2).is_some_and(|parent| !parent.is_nil()) {
        return;
    }
    let Some(Value::Array(keys)) = extra_keys(event).and_then(|blocks| blocks.first_mut()) else { return };
    let skipped = keys.iter().position(|key| key.as_str().is_some() && key.as_str() == lora_name.as_deref());
    let is_salt = |(place, key): &(usize, &mut Value)| {
        Some(*place) != skipped
            && key.as_str().is_some_and(|text| !is_hex_digest(text) && !text.starts_with(TAG))
    };
    if let Some((_, salt)) = keys.iter_mut().enumerate().filter(is_salt).last() {
        *salt = format!("{TAG}{}", salt.as_str().unwrap_or_default()).into();
    }
}
