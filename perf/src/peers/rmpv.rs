//! rmpv: a tree of values that borrows strings from the payload, looked into afterwards.

use rmpv::ValueRef;

use super::{System, local_hash};
use crate::support::cases::{Case, Content};
use crate::support::payload::{Payload, Record, blocks};

pub(super) const NAME: &str = "rmpv";

pub(super) struct Dynamic {
    case: Case,
    hashes: Vec<u64>,
    tokens: Vec<u32>,
}

impl Dynamic {
    pub(super) fn new(case: &Case) -> Self {
        Self { case: case.clone(), hashes: Vec::new(), tokens: Vec::new() }
    }

    fn event(&mut self, event: &ValueRef<'_>, records: &mut Vec<Record>) {
        let group = field(event, 9, "group_idx").and_then(ValueRef::as_u64);
        if group.unwrap_or(0) != 0 {
            return;
        }
        self.hashes.clear();
        self.hashes.extend(list(event, 1, "block_hashes").iter().map(hash));
        if self.case.content == Content::Removed {
            records.extend(self.hashes.iter().map(|&engine_hash| Record { engine_hash, local_hash: 0 }));
            return;
        }
        self.tokens.clear();
        let tokens = list(event, 3, "token_ids");
        if self.case.content == Content::Bigram {
            let pair = |pair: &ValueRef<'_>, at: usize| token(&items(pair)[at]);
            self.tokens.extend(tokens.first().map(|first| pair(first, 0)));
            self.tokens.extend(tokens.iter().map(|next| pair(next, 1)));
        } else {
            self.tokens.extend(tokens.iter().map(token));
        }
        let pairs = self.hashes.iter().zip(blocks(&self.case, &self.tokens));
        records.extend(
            pairs.map(|(&engine_hash, tokens)| Record { engine_hash, local_hash: local_hash(tokens) }),
        );
    }
}

impl System for Dynamic {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn decode(&mut self, payload: &Payload, records: &mut Vec<Record>) {
        let mut bytes = payload.bytes.as_slice();
        let batch = ::rmpv::decode::read_value_ref(&mut bytes).expect("a sound payload");
        items(&items(&batch)[1]).iter().for_each(|event| self.event(event, records));
    }
}

fn items<'v, 'p>(value: &'v ValueRef<'p>) -> &'v [ValueRef<'p>] {
    match value {
        ValueRef::Array(items) => items,
        _ => &[],
    }
}

/// A field by its slot or its key.
fn field<'v, 'p>(event: &'v ValueRef<'p>, slot: usize, key: &str) -> Option<&'v ValueRef<'p>> {
    match event {
        ValueRef::Array(items) => items.get(slot),
        ValueRef::Map(pairs) => {
            let named =
                |name: &ValueRef<'_>| matches!(name, ValueRef::String(text) if text.as_str() == Some(key));
            pairs.iter().find(|(name, _)| named(name)).map(|(_, value)| value)
        }
        _ => None,
    }
}

fn list<'v, 'p>(event: &'v ValueRef<'p>, slot: usize, key: &str) -> &'v [ValueRef<'p>] {
    field(event, slot, key).map(items).unwrap_or_default()
}

fn hash(value: &ValueRef<'_>) -> u64 {
    let ValueRef::Integer(hash) = value else { panic!("no integer") };
    hash.as_u64().or_else(|| hash.as_i64().map(i64::cast_unsigned)).expect("64 bits")
}

fn token(value: &ValueRef<'_>) -> u32 {
    value.as_u64().and_then(|token| u32::try_from(token).ok()).expect("a token")
}
