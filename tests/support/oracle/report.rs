//! What the oracle says about a payload, an event, a placed block and a whole stream.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::event::{Body, Head};
use super::fields::Tag;
use super::value::Rejection;

/// What became of an event before any verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Stored,
    Removed,
    Cleared,
    Unknown,
    Malformed,
}

/// One event, with whatever of it was read: after a refusal by the first reading the second one's fields are
/// none, and of a malformed or unknown event all are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OracleEvent {
    pub(crate) kind: EventKind,
    pub(crate) block_hashes: Option<Vec<u64>>,
    /// As on the wire, also where it stands for the root.
    pub(crate) parent: Option<u64>,
    /// One per position; of a pair, its first.
    pub(crate) token_ids: Option<Vec<u32>>,
    pub(crate) bigram: bool,
    pub(crate) block_size: Option<u32>,
    pub(crate) medium: Option<String>,
    pub(crate) lora_name: Option<String>,
    /// The event's own field; neither from extra keys nor inherited.
    pub(crate) cache_salt: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) group_idx: Option<u32>,
    pub(crate) spec_kind: Option<String>,
    pub(crate) sliding_window: Option<u32>,
    pub(crate) locality: Option<String>,
    pub(crate) ownership: Option<String>,
    /// `place`, or the reason that stopped the whole event; empty for malformed and unknown events.
    pub(crate) verdict: String,
}

impl OracleEvent {
    pub(crate) fn empty(kind: EventKind) -> Self {
        Self {
            kind,
            block_hashes: None,
            parent: None,
            token_ids: None,
            bigram: false,
            block_size: None,
            medium: None,
            lora_name: None,
            cache_salt: None,
            session_id: None,
            group_idx: None,
            spec_kind: None,
            sliding_window: None,
            locality: None,
            ownership: None,
            verdict: String::new(),
        }
    }

    pub(crate) fn of_head(tag: Tag, head: &Head) -> Self {
        let kind = match tag {
            Tag::Stored => EventKind::Stored,
            Tag::Removed => EventKind::Removed,
            Tag::Cleared => EventKind::Cleared,
        };
        Self {
            medium: head.medium.clone(),
            group_idx: head.group_idx,
            spec_kind: head.spec_kind.clone(),
            sliding_window: head.sliding_window,
            locality: head.locality.clone(),
            ownership: head.ownership.clone(),
            verdict: "place".to_owned(),
            ..Self::empty(kind)
        }
    }

    pub(crate) fn add_body(&mut self, body: &Body) {
        self.block_hashes = Some(body.block_hashes.clone());
        self.parent = body.wire_parent;
        self.token_ids = Some(body.tokens.ids.clone());
        self.bigram = body.tokens.after_last.is_some();
        self.block_size = Some(body.block_size);
        self.lora_name.clone_from(&body.lora_name);
        self.cache_salt.clone_from(&body.cache_salt);
        self.session_id.clone_from(&body.session_id);
    }
}

/// One line of `kvtap placements`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OraclePlacement {
    pub(crate) worker_id: u64,
    pub(crate) dp_rank: u32,
    /// `store`, `remove` or `clear`.
    pub(crate) op: &'static str,
    /// None for a clear, like the hashes.
    pub(crate) tier: Option<&'static str>,
    pub(crate) engine_hash: Option<u64>,
    /// None where no tokens were given.
    pub(crate) local_hash: Option<u64>,
    pub(crate) prefix_hash: Option<u64>,
}

impl OraclePlacement {
    pub(crate) fn to_json(self, sequence: u64) -> Json {
        let hash = |hash: Option<u64>| hash.map(|hash| hash.to_string());
        json!({
            "seq": sequence,
            "worker": self.worker_id,
            "dp_rank": self.dp_rank,
            "op": self.op,
            "tier": self.tier,
            "engine_hash": hash(self.engine_hash),
            "local_hash": hash(self.local_hash),
            "prefix_hash": hash(self.prefix_hash),
        })
    }
}

/// What one payload did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) sequence: u64,
    /// The whole payload was refused.
    pub(crate) rejected: bool,
    /// Why, if it was.
    pub(crate) rejection: Option<Rejection>,
    /// The batch's rank; the configured one for a refused payload.
    pub(crate) dp_rank: u32,
    pub(crate) events: Vec<OracleEvent>,
    pub(crate) placements: Vec<OraclePlacement>,
}

impl Applied {
    pub(crate) fn accepted(sequence: u64, dp_rank: u32) -> Self {
        Self { sequence, rejected: false, rejection: None, dp_rank, events: vec![], placements: vec![] }
    }

    pub(crate) fn rejected(sequence: u64, dp_rank: u32, rejection: Rejection) -> Self {
        Self { rejected: true, rejection: Some(rejection), ..Self::accepted(sequence, dp_rank) }
    }
}

/// What a whole stream came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) batches: u64,
    pub(crate) malformed_batches: u64,
    pub(crate) stored: u64,
    pub(crate) removed: u64,
    pub(crate) cleared: u64,
    pub(crate) unknown: u64,
    pub(crate) malformed: u64,
    /// By reason; none is zero.
    pub(crate) filtered: BTreeMap<&'static str, u64>,
    pub(crate) blocks_placed: u64,
    pub(crate) blocks_removed: u64,
    pub(crate) tokens: u64,
    pub(crate) payload_bytes: u64,
    /// Worker and rank pairs of accepted batches.
    pub(crate) workers: usize,
    /// Live (worker, tier, engine hash) triples.
    pub(crate) entries: usize,
    pub(crate) digest: u64,
}

impl Summary {
    /// The object of `replay --json`, without timing and memory.
    pub(crate) fn to_json(&self) -> Json {
        json!({
            "batches": self.batches,
            "malformed_batches": self.malformed_batches,
            "events": {
                "stored": self.stored,
                "removed": self.removed,
                "cleared": self.cleared,
                "unknown": self.unknown,
                "malformed": self.malformed,
            },
            "filtered": self.filtered,
            "blocks": { "placed": self.blocks_placed, "removed": self.blocks_removed },
            "tokens": self.tokens,
            "payload_bytes": self.payload_bytes,
            "index": { "workers": self.workers, "entries": self.entries },
            "digest": format!("{:016x}", self.digest),
        })
    }
}
