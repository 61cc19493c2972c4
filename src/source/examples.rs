//! The last event of every kind that was not placed, so that somebody can look at one. Data plane: strings are reused.

use std::fmt::Write as _;

use super::stream::Losses;
use crate::wire::{Event, Gate};
use crate::{EngineHash, Observer, Placement, Reason, Verdict, Worker};

/// Bytes kept of a text from the wire.
const TEXT_BYTES_MAX: usize = 64;
/// Verdicts other than a reason.
const UNKNOWN: usize = Reason::ALL.len();
const MALFORMED: usize = UNKNOWN + 1;

/// An event that was not placed. What it does not say is empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Example {
    /// The reason's label, `unknown` or `malformed`.
    pub verdict: &'static str,
    /// Sequence number of its batch.
    pub sequence: u64,
    /// Whose it was.
    pub worker: Option<Worker>,
    /// `stored`, `removed`, `cleared`, or nothing.
    pub kind: &'static str,
    /// Blocks it names; 0 if it was not looked at for so long.
    pub blocks: usize,
    /// The first of them.
    pub first: Option<EngineHash>,
    /// Wire name of the tier.
    pub medium: String,
    /// KV cache group.
    pub group_idx: Option<u32>,
    /// Attention kind of the group.
    pub spec_kind: String,
    /// What is wrong with it, or its unknown tag.
    pub detail: String,
}

/// One example for each verdict.
#[derive(Debug, Default)]
pub(super) struct Examples {
    last: [Kept; MALFORMED + 1],
    batches: u64,
}

#[derive(Debug, Default)]
struct Kept {
    example: Example,
    /// The batch it was taken from, counted here; 0 if there is none. One of each batch is enough.
    batch: u64,
}

impl Examples {
    /// Those that there are.
    pub(super) fn all(&self) -> Vec<Example> {
        self.last.iter().filter(|kept| kept.batch > 0).map(|kept| kept.example.clone()).collect()
    }

    fn note(&mut self, sequence: u64, worker: Worker, event: &mut Event<'_>, verdict: Verdict) {
        let (at, label) = match verdict {
            Verdict::Filter(reason) => (reason as usize, reason.label()),
            Verdict::Unknown => (UNKNOWN, "unknown"),
            Verdict::Malformed(_) => (MALFORMED, "malformed"),
            Verdict::Place => return,
        };
        let kept = &mut self.last[at];
        if kept.batch == self.batches {
            return;
        }
        kept.batch = self.batches;
        let example = &mut kept.example;
        (example.verdict, example.sequence, example.worker) = (label, sequence, Some(worker));
        example.look_at(event);
        if let Verdict::Malformed(error) = verdict {
            // Writing to a string cannot fail.
            let _ = write!(example.detail, "{error}");
        }
    }
}

impl Example {
    fn look_at(&mut self, event: &mut Event<'_>) {
        for text in [&mut self.medium, &mut self.spec_kind, &mut self.detail] {
            text.clear();
        }
        (self.group_idx, self.blocks, self.first, self.kind) = (None, 0, None, "");
        match event {
            Event::Stored(stored) => {
                self.kind = "stored";
                if let Ok(gate) = stored.gate() {
                    self.look_at_gate(gate);
                }
                if let Ok(body) = stored.body() {
                    (self.blocks, self.first) = (body.block_hashes.len(), body.block_hashes.first().copied());
                }
            }
            Event::Removed(removed) => {
                self.kind = "removed";
                if let Ok(gate) = removed.gate() {
                    self.look_at_gate(gate);
                }
                if let Ok(hashes) = removed.block_hashes() {
                    (self.blocks, self.first) = (hashes.len(), hashes.first().copied());
                }
            }
            Event::Cleared(_) => self.kind = "cleared",
            Event::Unknown(tag) => keep(&mut self.detail, Some(tag)),
            Event::Malformed(_) => {}
        }
    }

    fn look_at_gate(&mut self, gate: Gate<'_>) {
        keep(&mut self.medium, gate.medium);
        keep(&mut self.spec_kind, gate.spec_kind);
        self.group_idx = gate.group_idx;
    }
}

fn keep(kept: &mut String, text: Option<&str>) {
    let text = text.unwrap_or_default();
    kept.push_str(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
}

/// Looks at the events of one batch.
pub(super) struct Watch<'w> {
    sequence: u64,
    examples: &'w mut Examples,
    /// Clears matter only to those who have lost something.
    losses: Option<&'w mut Losses>,
}

impl<'w> Watch<'w> {
    pub(super) fn new(sequence: u64, examples: &'w mut Examples, losses: Option<&'w mut Losses>) -> Self {
        examples.batches += 1;
        Self { sequence, examples, losses }
    }
}

impl Observer for Watch<'_> {
    fn is_watching(&self) -> bool {
        self.losses.is_some()
    }

    #[inline]
    fn event(&mut self, worker: Worker, event: &mut Event<'_>, verdict: Verdict) {
        if verdict != Verdict::Place {
            self.examples.note(self.sequence, worker, event, verdict);
        }
    }

    fn placement(&mut self, worker: Worker, placement: Placement) {
        if let Some(losses) = &mut self.losses {
            losses.placement(worker, placement);
        }
    }
}
