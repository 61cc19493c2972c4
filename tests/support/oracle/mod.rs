//! The slow, obvious answer: decoding, policy, hashes and index as the contract words them, in owned trees and
//! flat maps. It shares no code with the crate, so that the two can only agree by both being right.

mod envelope;
mod event;
mod fields;
mod hashes;
mod identity;
mod index;
mod policy;
mod report;
mod value;

use std::collections::BTreeMap;

use event::{Body, Head};
use fields::{Malformed, Opened, Tag};
use index::{Index, TIERS};
use policy::RankState;
use value::Value;

pub(crate) use index::Match;
pub(crate) use report::{Applied, EventKind, OracleEvent, OraclePlacement, Summary};

/// How repeated stores of a block count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Each is a copy with a removal of its own.
    Count,
    /// They say the same thing again; the first removal is final.
    Set,
}

/// Which 64 bits of a digest name the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    /// The last eight bytes, as vLLM.
    Low,
    /// The first eight bytes, as SGLang and TensorRT-LLM.
    High,
}

/// One source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OracleConfig {
    pub(crate) worker_id: u64,
    /// The rank of batches that name none.
    pub(crate) dp_rank: u32,
    /// Tokens per block.
    pub(crate) block_size: u32,
    pub(crate) copies: Copies,
    pub(crate) digest: Digest,
}

impl OracleConfig {
    /// Worker 0, rank 0, copies counted, low digests.
    pub(crate) fn new(block_size: u32) -> Self {
        Self { worker_id: 0, dp_rank: 0, block_size, copies: Copies::Count, digest: Digest::Low }
    }
}

/// What a prompt is hashed under.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryOptions {
    pub(crate) lora_name: Option<String>,
    pub(crate) cache_salt: Option<String>,
    /// Blocks overlap their successor by one token, as with EAGLE.
    pub(crate) bigram: bool,
}

/// One source's stream, applied batch by batch.
#[derive(Clone, Debug)]
pub(crate) struct Oracle {
    config: OracleConfig,
    index: Index,
    /// One per rank of an accepted batch.
    ranks: BTreeMap<u32, RankState>,
    summary: Summary,
}

impl Oracle {
    pub(crate) fn new(config: OracleConfig) -> Self {
        Self { config, index: Index::default(), ranks: BTreeMap::new(), summary: Summary::default() }
    }

    /// Applies one payload.
    pub(crate) fn apply(&mut self, sequence: u64, payload: &[u8]) -> Applied {
        self.summary.batches += 1;
        self.summary.payload_bytes += u64::try_from(payload.len()).expect("a length");
        let batch = match envelope::read(payload) {
            Ok(batch) => batch,
            Err(rejection) => {
                self.summary.malformed_batches += 1;
                return Applied::rejected(sequence, self.config.dp_rank, rejection);
            }
        };
        let dp_rank = batch.dp_rank.unwrap_or(self.config.dp_rank);
        self.ranks.entry(dp_rank).or_default();
        let mut applied = Applied::accepted(sequence, dp_rank);
        for event in &batch.events {
            let seen = self.event(dp_rank, event, &mut applied).unwrap_or_else(|Malformed| {
                self.summary.malformed += 1;
                OracleEvent::empty(EventKind::Malformed)
            });
            applied.events.push(seen);
        }
        applied
    }

    fn event(
        &mut self,
        dp_rank: u32,
        event: &Value<'_>,
        applied: &mut Applied,
    ) -> Result<OracleEvent, Malformed> {
        let (tag, fields) = match fields::open(event) {
            Opened::Known(tag, fields) => (tag, fields),
            Opened::Malformed => return Err(Malformed),
            Opened::Unknown => {
                self.summary.unknown += 1;
                return Ok(OracleEvent::empty(EventKind::Unknown));
            }
        };
        let head = Head::read(tag, &fields)?;
        if tag == Tag::Cleared {
            return Ok(self.cleared(dp_rank, &head, applied));
        }
        let state = self.ranks.get_mut(&dp_rank).expect("entered with the batch");
        let verdict = state.admit_head(tag, &head);
        let mut seen = OracleEvent::of_head(tag, &head);
        let tier = match verdict {
            Ok(tier) => tier,
            Err(reason) => {
                self.count_kind(tag);
                self.filter(&mut seen, reason, 1);
                return Ok(seen);
            }
        };
        if tag == Tag::Removed {
            let hashes = event::hashes(&fields, self.config.digest)?;
            self.count_kind(tag);
            self.removed(tier, &hashes, applied);
            seen.block_hashes = Some(hashes);
        } else {
            let body = Body::read(&fields, self.config.digest)?;
            self.count_kind(tag);
            seen.add_body(&body);
            self.stored(tier, &body, &mut seen, applied);
        }
        Ok(seen)
    }

    fn count_kind(&mut self, tag: Tag) {
        *match tag {
            Tag::Stored => &mut self.summary.stored,
            Tag::Removed => &mut self.summary.removed,
            Tag::Cleared => &mut self.summary.cleared,
        } += 1;
    }

    fn count(&mut self, reason: &'static str, times: u64) {
        if times > 0 {
            *self.summary.filtered.entry(reason).or_default() += times;
        }
    }

    fn filter(&mut self, seen: &mut OracleEvent, reason: &'static str, times: u64) {
        reason.clone_into(&mut seen.verdict);
        self.count(reason, times);
    }

    fn cleared(&mut self, dp_rank: u32, head: &Head, applied: &mut Applied) -> OracleEvent {
        self.count_kind(Tag::Cleared);
        let mut seen = OracleEvent::of_head(Tag::Cleared, head);
        if let Err(reason) = policy::ownership(head) {
            self.filter(&mut seen, reason, 1);
            return seen;
        }
        self.index.clear(self.config.worker_id, dp_rank);
        self.ranks.get_mut(&dp_rank).expect("entered with the batch").clear();
        applied.placements.push(OraclePlacement {
            worker_id: self.config.worker_id,
            dp_rank,
            op: "clear",
            tier: None,
            engine_hash: None,
            local_hash: None,
            prefix_hash: None,
        });
        seen
    }

    fn removed(&mut self, tier: u8, hashes: &[u64], applied: &mut Applied) {
        for engine_hash in hashes {
            let key = (self.config.worker_id, applied.dp_rank, tier, *engine_hash);
            match self.index.remove(key) {
                None => self.count("unknown_block", 1),
                Some(prefix_hash) => {
                    self.summary.blocks_removed += 1;
                    if self.config.copies == Copies::Set {
                        debug_assert!(self.index.remove(key).is_none(), "a set holds one copy");
                    }
                    applied.placements.push(placement("remove", key, None, prefix_hash));
                }
            }
        }
    }

    fn stored(&mut self, tier: u8, body: &Body, seen: &mut OracleEvent, applied: &mut Applied) {
        let (worker_id, dp_rank) = (self.config.worker_id, applied.dp_rank);
        let state = self.ranks.get_mut(&dp_rank).expect("entered with the batch");
        let scope = (&self.index, worker_id, dp_rank);
        let admitted = match state.admit_body(body, tier, self.config.block_size, scope) {
            Ok(admitted) => admitted,
            Err(reason) => return self.filter(seen, reason, 1),
        };
        if admitted.placeholder {
            return self.placeholders(tier, body, applied);
        }
        let blocks = u64::try_from(body.block_hashes.len()).expect("a length");
        let mut before = None;
        if let Some(parent) = body.parent() {
            let Some(known) = self.index.find(worker_id, dp_rank, parent) else {
                return self.filter(seen, "unknown_parent", blocks);
            };
            before = Some(known.prefix_hash);
        }
        let size = usize::try_from(body.block_size).expect("u32 fits usize");
        let complete = body.tokens.ids.len() / size;
        for (block, engine_hash) in body.block_hashes.iter().enumerate() {
            if block >= complete {
                self.count("short_tokens", 1);
                continue;
            }
            let tokens = body.tokens.of_block(block, body.block_size);
            let identities = body.identities.blocks.get(block).map(Vec::as_slice).unwrap_or_default();
            let salt = admitted.cache_salt.as_deref();
            let local = hashes::local_hash(&tokens, identities, body.lora_name.as_deref(), salt);
            let prefix = hashes::prefix_hash(before, local);
            let key = (worker_id, dp_rank, tier, *engine_hash);
            if self.index.store(key, (prefix, admitted.cache_salt.clone()), self.config.copies) {
                self.count("rehashed", 1);
            }
            self.summary.blocks_placed += 1;
            self.summary.tokens += u64::from(body.block_size);
            applied.placements.push(placement("store", key, Some(local), prefix));
            before = Some(prefix);
        }
    }

    fn placeholders(&mut self, tier: u8, body: &Body, applied: &mut Applied) {
        for engine_hash in &body.block_hashes {
            let key = (self.config.worker_id, applied.dp_rank, tier, *engine_hash);
            let Some(known) = self.index.find(key.0, key.1, *engine_hash).cloned() else {
                self.count("unresolved_hash", 1);
                continue;
            };
            let rehashed = self.index.store(key, (known.prefix_hash, known.cache_salt), self.config.copies);
            assert!(!rehashed, "the prefix is the known one");
            self.summary.blocks_placed += 1;
            applied.placements.push(placement("store", key, None, known.prefix_hash));
        }
    }

    /// What `replay --json` reports.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        summary.workers = self.ranks.len();
        summary.entries = self.index.len();
        summary.digest = self.digest();
        summary
    }

    /// The order-free digest of the live blocks.
    pub(crate) fn digest(&self) -> u64 {
        self.index.digest()
    }

    /// Complete blocks of a prompt, and what each rank holds of them.
    pub(crate) fn query(&self, tokens: &[u32], options: &QueryOptions) -> (usize, Vec<Match>) {
        let chain = self.chain(tokens, options);
        (chain.len(), self.index.query(&chain))
    }

    /// The prefix hashes of a prompt's complete blocks.
    pub(crate) fn chain(&self, tokens: &[u32], options: &QueryOptions) -> Vec<u64> {
        let size = usize::try_from(self.config.block_size).expect("u32 fits usize");
        let window = size + usize::from(options.bigram);
        let mut chain = Vec::new();
        let mut start = 0;
        while let Some(block) = tokens.get(start..start + window) {
            let (lora_name, cache_salt) = (options.lora_name.as_deref(), options.cache_salt.as_deref());
            let local = hashes::local_hash(block, &[], lora_name, cache_salt);
            chain.push(hashes::prefix_hash(chain.last().copied(), local));
            start += size;
        }
        chain
    }

    /// What each rank holds of a chain of prefix hashes.
    pub(crate) fn query_prefixes(&self, chain: &[u64]) -> Vec<Match> {
        self.index.query(chain)
    }

    /// Every live prefix hash, ascending.
    pub(crate) fn stored_prefixes(&self) -> Vec<u64> {
        self.index.prefixes().into_iter().collect()
    }
}

fn placement(
    op: &'static str,
    key: (u64, u32, u8, u64),
    local_hash: Option<u64>,
    prefix_hash: u64,
) -> OraclePlacement {
    let (worker_id, dp_rank, tier, engine_hash) = key;
    OraclePlacement {
        worker_id,
        dp_rank,
        op,
        tier: Some(TIERS[usize::from(tier)]),
        engine_hash: Some(engine_hash),
        local_hash,
        prefix_hash: Some(prefix_hash),
    }
}
