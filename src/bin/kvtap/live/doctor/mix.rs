//! Counts events by what distinguishes them. Bounded: a publisher can make up as many kinds as it likes.

use std::collections::{BTreeMap, BTreeSet};

use kvtap::wire::Event;
use kvtap::{Applied, Observer, Verdict, Worker};

/// Distinct rows and names kept; more are counted together.
const ROWS_MAX: usize = 64;
const NAMES_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 64;

/// What an event is, as far as a router cares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct Kind {
    pub(crate) event: &'static str,
    pub(crate) medium: Option<String>,
    pub(crate) group_idx: Option<u32>,
    pub(crate) spec_kind: Option<String>,
    /// Of stores.
    pub(crate) block_size: Option<u32>,
    pub(crate) verdict: &'static str,
}

/// The event mix of a stream.
#[derive(Debug, Default)]
pub(crate) struct Mix {
    pub(crate) events: BTreeMap<Kind, u64>,
    pub(crate) more_events: u64,
    /// Names of cache salts and adapters.
    pub(crate) salts: BTreeSet<String>,
    pub(crate) loras: BTreeSet<String>,
    pub(crate) bigram_events: u64,
    pub(crate) first_timestamp: Option<f64>,
    pub(crate) last_timestamp: Option<f64>,
}

impl Observer for Mix {
    fn batch(&mut self, batch: Applied) {
        self.first_timestamp.get_or_insert(batch.timestamp);
        self.last_timestamp = Some(batch.timestamp);
    }

    fn event(&mut self, _: Worker, event: &mut Event<'_>, verdict: Verdict) {
        let verdict = match verdict {
            Verdict::Place => "place",
            Verdict::Filter(reason) => reason.label(),
            Verdict::Unknown => "unknown",
            Verdict::Malformed(_) | _ => "malformed",
        };
        let mut kind = Kind {
            event: "other",
            medium: None,
            group_idx: None,
            spec_kind: None,
            block_size: None,
            verdict,
        };
        match event {
            Event::Stored(stored) => {
                kind.event = "stored";
                if let Ok(gate) = stored.gate() {
                    (kind.medium, kind.group_idx, kind.spec_kind) =
                        (name(gate.medium), gate.group_idx, name(gate.spec_kind));
                }
                if let Ok(body) = stored.body() {
                    kind.block_size = Some(body.block_size);
                    self.bigram_events += u64::from(body.bigram);
                    keep(&mut self.salts, name(body.cache_salt));
                    keep(&mut self.loras, name(body.lora_name));
                }
            }
            Event::Removed(removed) => {
                kind.event = "removed";
                if let Ok(gate) = removed.gate() {
                    (kind.medium, kind.group_idx, kind.spec_kind) =
                        (name(gate.medium), gate.group_idx, name(gate.spec_kind));
                }
            }
            Event::Cleared(_) => kind.event = "cleared",
            Event::Unknown(_) | Event::Malformed(_) | _ => {}
        }
        if let Some(count) = self.events.get_mut(&kind) {
            *count += 1;
        } else if self.events.len() < ROWS_MAX {
            self.events.insert(kind, 1);
        } else {
            self.more_events += 1;
        }
    }
}

/// Text of a publisher, made short and safe for a terminal.
fn name(text: Option<&str>) -> Option<String> {
    text.map(|text| text.chars().take(NAME_CHARS_MAX).flat_map(char::escape_debug).collect())
}

fn keep(names: &mut BTreeSet<String>, name: Option<String>) {
    if let Some(name) = name.filter(|_| names.len() < NAMES_MAX) {
        names.insert(name);
    }
}
