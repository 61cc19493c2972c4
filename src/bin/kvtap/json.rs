//! Shapes of the JSON output. Their keys and their order are a contract with scripts.

use std::io::{self, Write};
use std::time::Duration;

use kvtap::{Counters, Match, Placement, PrefixHash, Reason, Worker};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Writes one value as one line.
pub(crate) fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// A 64-bit hash; in JSON a decimal string, because many readers keep numbers as doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) u64);

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The answer of `replay`.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Summary {
    pub(crate) batches: u64,
    pub(crate) malformed_batches: u64,
    pub(crate) events: Events,
    pub(crate) filtered: Filtered,
    pub(crate) blocks: Blocks,
    pub(crate) tokens: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) index: Index,
    pub(crate) digest: String,
}

/// What a summary is made of.
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    pub(crate) elapsed: Duration,
    pub(crate) workers: usize,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    pub(crate) digest: u64,
}

impl From<Totals> for Summary {
    fn from(totals: Totals) -> Self {
        let Totals { counters, workers, entries, bytes, .. } = totals;
        Self {
            batches: counters.batches,
            malformed_batches: counters.malformed_batches,
            events: Events::of(&counters),
            filtered: Filtered::of(&counters),
            blocks: Blocks { placed: counters.placed_blocks, removed: counters.removed_blocks },
            tokens: counters.placed_tokens,
            payload_bytes: counters.payload_bytes,
            elapsed_s: totals.elapsed.as_secs_f64(),
            index: Index { workers, entries, bytes },
            digest: format!("{:016x}", totals.digest),
        }
    }
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct Events {
    pub(crate) stored: u64,
    pub(crate) removed: u64,
    pub(crate) cleared: u64,
    pub(crate) unknown: u64,
    pub(crate) malformed: u64,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct Blocks {
    pub(crate) placed: u64,
    pub(crate) removed: u64,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct Index {
    pub(crate) workers: usize,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Events {
    pub(crate) fn of(counters: &Counters) -> Self {
        Self {
            stored: counters.stored_events,
            removed: counters.removed_events,
            cleared: counters.cleared_events,
            unknown: counters.unknown_events,
            malformed: counters.malformed_events,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.stored + self.removed + self.cleared + self.unknown + self.malformed
    }
}

/// Reasons with their counts, those that never occurred left out.
#[derive(Debug)]
pub(crate) struct Filtered(pub(crate) Vec<(Reason, u64)>);

impl Filtered {
    pub(crate) fn of(counters: &Counters) -> Self {
        let counts = Reason::ALL.into_iter().map(|reason| (reason, counters.filtered(reason)));
        Self(counts.filter(|&(_, count)| count > 0).collect())
    }
}

impl Serialize for Filtered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (reason, count) in &self.0 {
            map.serialize_entry(reason.label(), count)?;
        }
        map.end()
    }
}

/// One event of `inspect`, or a whole batch that was refused.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct EventLine {
    pub(crate) batch: u64,
    pub(crate) seq: u64,
    pub(crate) ts: Option<f64>,
    pub(crate) dp_rank: Option<u32>,
    pub(crate) event: Option<u64>,
    pub(crate) kind: &'static str,
    pub(crate) block_hashes: Option<Vec<Hash>>,
    pub(crate) parent: Option<Hash>,
    pub(crate) token_ids: Option<Vec<u32>>,
    pub(crate) bigram: Option<bool>,
    pub(crate) block_size: Option<u32>,
    pub(crate) medium: Option<String>,
    pub(crate) lora_name: Option<String>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) group_idx: Option<u32>,
    pub(crate) spec_kind: Option<String>,
    pub(crate) sliding_window: Option<u32>,
    pub(crate) locality: Option<String>,
    pub(crate) ownership: Option<String>,
    pub(crate) verdict: Option<&'static str>,
    /// What is wrong, and where in the payload; only of what is malformed.
    #[serde(flatten)]
    pub(crate) fault: Option<Fault>,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct Fault {
    pub(crate) error: String,
    pub(crate) offset: u32,
}

/// One block of `placements`, or a clear.
#[derive(Debug, serde::Serialize)]
pub(crate) struct PlacementLine {
    pub(crate) seq: u64,
    pub(crate) worker: u64,
    pub(crate) dp_rank: u32,
    pub(crate) op: &'static str,
    pub(crate) tier: Option<&'static str>,
    pub(crate) engine_hash: Option<Hash>,
    pub(crate) local_hash: Option<Hash>,
    pub(crate) prefix_hash: Option<Hash>,
}

impl PlacementLine {
    /// `None` for a kind of placement this program does not know.
    pub(crate) fn new(
        sequence: u64,
        worker: Worker,
        placement: Placement,
        prefix_hash: Option<PrefixHash>,
    ) -> Option<Self> {
        let line = |op| Self {
            seq: sequence,
            worker: worker.worker_id,
            dp_rank: worker.dp_rank,
            op,
            tier: None,
            engine_hash: None,
            local_hash: None,
            prefix_hash: prefix_hash.map(|hash| Hash(hash.0)),
        };
        Some(match placement {
            Placement::Store { tier, engine_hash, local_hash, .. } => Self {
                tier: Some(tier.label()),
                engine_hash: Some(Hash(engine_hash.0)),
                local_hash: local_hash.map(|hash| Hash(hash.0)),
                ..line("store")
            },
            Placement::Remove { tier, engine_hash } => {
                Self { tier: Some(tier.label()), engine_hash: Some(Hash(engine_hash.0)), ..line("remove") }
            }
            Placement::Clear => line("clear"),
            _ => return None,
        })
    }
}

/// The answer to one prompt of `query`.
#[derive(Debug, serde::Serialize)]
pub(crate) struct PromptLine {
    pub(crate) prompt: usize,
    pub(crate) blocks: usize,
    pub(crate) matches: Vec<MatchEntry>,
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct MatchEntry {
    pub(crate) worker: u64,
    pub(crate) dp_rank: u32,
    pub(crate) device: u32,
    pub(crate) host_pinned: u32,
    pub(crate) disk: u32,
    pub(crate) external: u32,
}

impl From<&Match> for MatchEntry {
    fn from(found: &Match) -> Self {
        let [device, host_pinned, disk, external] = found.depths;
        let Worker { worker_id, dp_rank } = found.worker;
        Self { worker: worker_id, dp_rank, device, host_pinned, disk, external }
    }
}

/// The answer of `serve`: that of `replay`, and its sources.
#[cfg(feature = "zmq")]
#[derive(Debug, serde::Serialize)]
pub(crate) struct ServeSummary {
    #[serde(flatten)]
    pub(crate) summary: Summary,
    pub(crate) sources: Vec<SourceEntry>,
}

/// One source of `serve`.
#[cfg(feature = "zmq")]
#[derive(Debug, serde::Serialize)]
pub(crate) struct SourceEntry {
    pub(crate) endpoint: String,
    pub(crate) worker: u64,
    pub(crate) dp_rank: u32,
    pub(crate) state: &'static str,
    pub(crate) cursor: Option<u64>,
    pub(crate) batches: u64,
    pub(crate) gaps: u64,
    pub(crate) replayed_batches: u64,
    pub(crate) lost_batches: u64,
    pub(crate) restarts: u64,
    pub(crate) duplicates: u64,
    pub(crate) degraded: bool,
    // Beyond the contract.
    pub(crate) watermark: Option<f64>,
    pub(crate) skipped_sequences: u64,
    pub(crate) bad_messages: u64,
    pub(crate) foreign_messages: u64,
    pub(crate) connects: u64,
    pub(crate) disconnects: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) back_pressure: u64,
    pub(crate) filtered: Filtered,
    pub(crate) sent_by: String,
    pub(crate) last_error: Option<String>,
}

#[cfg(feature = "zmq")]
impl From<&kvtap::source::Report> for SourceEntry {
    fn from(report: &kvtap::source::Report) -> Self {
        let status = &report.status;
        let (sequence, counters) = (status.sequence, &status.counters);
        Self {
            endpoint: status.endpoint.clone(),
            worker: status.worker.worker_id,
            dp_rank: status.worker.dp_rank,
            state: status.state.label(),
            cursor: status.cursor,
            batches: counters.batches,
            gaps: sequence.gaps,
            replayed_batches: sequence.replayed_batches,
            lost_batches: sequence.lost_batches,
            restarts: sequence.restarts,
            duplicates: sequence.duplicates,
            degraded: status.degraded,
            watermark: status.watermark,
            skipped_sequences: sequence.skipped_sequences,
            bad_messages: status.bad_messages,
            foreign_messages: status.foreign_messages,
            connects: status.connects,
            disconnects: status.disconnects,
            payload_bytes: counters.payload_bytes,
            back_pressure: counters.back_pressure,
            filtered: Filtered::of(counters),
            sent_by: crate::producers::of_shapes(report.shapes.iter().map(|&(shape, _)| shape)),
            last_error: status.last_error.clone(),
        }
    }
}
