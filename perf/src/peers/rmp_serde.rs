//! rmp-serde into derived structs: the best that a derive can do. The kind of event is known beforehand (per case), strings
//! are borrowed, and only the group decides. A tagged enum would buffer every event first and is several times slower.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};

use super::{System, local_hash};
use crate::support::cases::{Case, Content};
use crate::support::payload::{Payload, Record, blocks};

pub(super) const NAME: &str = "rmp-serde";

pub(super) struct Typed {
    case: Case,
    unfolded: Vec<u32>,
}

/// A 64-bit hash of either sign.
struct Hash(u64);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnySign;
        impl Visitor<'_> for AnySign {
            type Value = Hash;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an integer")
            }
            fn visit_u64<E: Error>(self, hash: u64) -> Result<Hash, E> {
                Ok(Hash(hash))
            }
            fn visit_i64<E: Error>(self, hash: i64) -> Result<Hash, E> {
                Ok(Hash(hash.cast_unsigned()))
            }
        }
        deserializer.deserialize_u64(AnySign)
    }
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
#[expect(dead_code, reason = "a decoder that does not know beforehand what counts reads every field")]
struct Stored<'a, T> {
    #[serde(borrow, rename = "type")]
    tag: &'a str,
    block_hashes: Vec<Hash>,
    parent_block_hash: Option<Hash>,
    token_ids: Vec<T>,
    block_size: usize,
    #[serde(default)]
    lora_id: Option<u64>,
    #[serde(default)]
    medium: Option<&'a str>,
    #[serde(default)]
    lora_name: Option<&'a str>,
    #[serde(default)]
    extra_keys: Option<Vec<Option<Vec<&'a str>>>>,
    #[serde(default)]
    group_idx: Option<u32>,
    #[serde(default)]
    kv_cache_spec_kind: Option<&'a str>,
    #[serde(default)]
    kv_cache_spec_sliding_window: Option<u32>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "as above")]
struct Removed<'a> {
    #[serde(borrow, rename = "type")]
    tag: &'a str,
    block_hashes: Vec<Hash>,
    #[serde(default)]
    medium: Option<&'a str>,
}

type Batch<E> = (f64, Vec<E>, Option<i32>);

impl Typed {
    pub(super) fn new(case: &Case) -> Self {
        Self { case: case.clone(), unfolded: Vec::new() }
    }

    fn push(&self, hashes: &[Hash], tokens: &[u32], records: &mut Vec<Record>) {
        let pairs = hashes.iter().zip(blocks(&self.case, tokens));
        records.extend(
            pairs.map(|(hash, tokens)| Record { engine_hash: hash.0, local_hash: local_hash(tokens) }),
        );
    }
}

impl System for Typed {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn decode(&mut self, payload: &Payload, records: &mut Vec<Record>) {
        let bytes = payload.bytes.as_slice();
        match self.case.content {
            Content::Removed => {
                let batch: Batch<Removed<'_>> = ::rmp_serde::from_slice(bytes).expect("a sound payload");
                for event in &batch.1 {
                    let hashes = event.block_hashes.iter();
                    records.extend(hashes.map(|hash| Record { engine_hash: hash.0, local_hash: 0 }));
                }
            }
            Content::Bigram => {
                let batch: Batch<Stored<'_, (u32, u32)>> =
                    ::rmp_serde::from_slice(bytes).expect("a sound payload");
                for event in &batch.1 {
                    let mut tokens = std::mem::take(&mut self.unfolded);
                    tokens.clear();
                    tokens.extend(event.token_ids.first().map(|pair| pair.0));
                    tokens.extend(event.token_ids.iter().map(|pair| pair.1));
                    self.push(&event.block_hashes, &tokens, records);
                    self.unfolded = tokens;
                }
            }
            Content::Plain | Content::Groups { .. } | Content::Legacy | Content::LoraMultimodal => {
                let batch: Batch<Stored<'_, u32>> = ::rmp_serde::from_slice(bytes).expect("a sound payload");
                let placed = batch.1.iter().filter(|event| event.group_idx.unwrap_or(0) == 0);
                placed.for_each(|event| self.push(&event.block_hashes, &event.token_ids, records));
            }
        }
    }
}
