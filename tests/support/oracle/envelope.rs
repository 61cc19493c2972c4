//! The batch around the events: array or map, timestamp, events, rank.

use super::value::{self, Rejection, Value};

/// A payload that passed: its events and the rank it names, if any.
pub(crate) struct Batch<'a> {
    pub(crate) events: Vec<Value<'a>>,
    pub(crate) dp_rank: Option<u32>,
}

/// Reads a payload and judges its envelope.
pub(crate) fn read(payload: &[u8]) -> Result<Batch<'_>, Rejection> {
    let tree = value::read(payload)?;
    let nil = Value::Nil;
    let (timestamp, events, rank) = if let Some(slots) = tree.array() {
        if slots.len() < 2 {
            return reject("an array envelope has at least two elements");
        }
        (&slots[0], &slots[1], slots.get(2).unwrap_or(&nil))
    } else if tree.map().is_some() {
        let names = ["data_parallel_rank", "attn_dp_rank", "dp_rank"];
        // Present means that the key is there, be it nil.
        let rank = names.iter().find_map(|name| tree.key(name)).unwrap_or(&nil);
        (tree.key("ts").unwrap_or(&nil), tree.key("events").unwrap_or(&nil), rank)
    } else {
        return reject("a batch is an array or a map");
    };
    if !matches!(timestamp, Value::Int(_) | Value::Float(_)) {
        return reject("the timestamp is a number");
    }
    let Some(events) = events.array() else { return reject("the events are an array") };
    Ok(Batch { events: events.to_vec(), dp_rank: dp_rank(rank)? })
}

fn dp_rank(rank: &Value<'_>) -> Result<Option<u32>, Rejection> {
    if rank.is_nil() {
        return Ok(None);
    }
    let Some(number) = rank.int() else { return reject("the rank is nil or an integer") };
    if number < 0 {
        return Ok(None);
    }
    u32::try_from(number).map(Some).or_else(|_| reject("the rank fits u32"))
}

fn reject<T>(reason: &'static str) -> Result<T, Rejection> {
    Err(Rejection { offset: 0, reason })
}
