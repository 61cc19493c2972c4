//! What the doctor found, and the advice that follows from it.

use std::collections::BTreeMap;
use std::time::Duration;

use kvtap::{Ingest, Reason, Sequence};
use serde::Serialize;

use super::super::args::DoctorArgs;
use super::Heard;
use super::mix::{Kind, Mix};
use crate::json::{Events, Filtered};
use crate::producers;
use crate::report::explain;

/// All of it; the shape of `doctor --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) endpoint: String,
    pub(crate) seconds: f64,
    pub(crate) messages: u64,
    pub(crate) bad_messages: u64,
    pub(crate) topics: Vec<(String, u64)>,
    pub(crate) first_sequence: Option<u64>,
    pub(crate) cursor: Option<u64>,
    /// While listening; what was sent before is not counted.
    pub(crate) missing_batches: u64,
    pub(crate) duplicates: u64,
    pub(crate) restarts: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) malformed_batches: u64,
    pub(crate) sent_by: String,
    pub(crate) encodings: Vec<Encoding>,
    pub(crate) events: Events,
    pub(crate) mix: Vec<Row>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) cache_salts: Vec<String>,
    pub(crate) lora_names: Vec<String>,
    pub(crate) bigram_events: u64,
    pub(crate) drift: BTreeMap<String, u64>,
    pub(crate) replay: ReplayFinding,
    pub(crate) block_size: u32,
    pub(crate) filtered: Filtered,
    pub(crate) advice: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Encoding {
    pub(crate) form: String,
    pub(crate) events: u64,
    pub(crate) sent_by: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) events: u64,
}

/// What the replay socket said.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum ReplayFinding {
    /// No endpoint was given.
    NotAsked,
    /// Replies have this many frames, the delimiter included.
    Answers { frames: usize },
    /// A reply that is none.
    Strange { error: String },
    /// Nothing.
    Silent,
}

impl Findings {
    pub(crate) fn new(
        args: &DoctorArgs,
        elapsed: Duration,
        (heard, sequence, replay): (&Heard, &Sequence, ReplayFinding),
        (ingest, mix): (&Ingest, Mix),
    ) -> Self {
        let counters = ingest.counters();
        let counts = sequence.counts();
        let mut encodings: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (shape, events) in ingest.shapes() {
            let row = (shape.form(), producers::names(&producers::releases(shape)));
            *encodings.entry(row).or_default() += events;
        }
        let encodings =
            encodings.into_iter().map(|((form, sent_by), events)| Encoding { form, events, sent_by });
        let mut ranks: Vec<u32> = ingest.workers().map(|worker| worker.dp_rank).collect();
        ranks.sort_unstable();
        let mut found = Self {
            endpoint: args.endpoint.clone(),
            seconds: elapsed.as_secs_f64(),
            messages: heard.messages,
            bad_messages: heard.bad_messages,
            topics: heard
                .topics
                .iter()
                .map(|(topic, count)| (topic.escape_ascii().to_string(), *count))
                .collect(),
            first_sequence: heard.first_sequence,
            cursor: sequence.cursor(),
            missing_batches: heard.missing,
            duplicates: counts.duplicates,
            restarts: counts.restarts,
            payload_bytes: counters.payload_bytes,
            malformed_batches: counters.malformed_batches,
            sent_by: producers::of_shapes(ingest.shapes().map(|(shape, _)| shape)),
            encodings: encodings.collect(),
            events: Events::of(counters),
            mix: mix.events.into_iter().map(|(kind, events)| Row { kind, events }).collect(),
            ranks,
            cache_salts: mix.salts.into_iter().collect(),
            lora_names: mix.loras.into_iter().collect(),
            bigram_events: mix.bigram_events,
            drift: ingest.drift().map(|(name, count)| (name.to_owned(), count)).collect(),
            replay,
            block_size: args.block_size,
            filtered: Filtered::of(counters),
            advice: Vec::new(),
        };
        found.advice = found.advise(ingest);
        found
    }

    /// What to change, the most important first.
    fn advise(&self, ingest: &Ingest) -> Vec<String> {
        let mut advice = Vec::new();
        if self.messages == 0 {
            advice.push(
                "Nothing came: check host and port (each data-parallel rank has its own: port + rank), that the engine \
                 runs with KV events enabled, and that it is busy; engines send nothing while no block changes."
                    .to_owned(),
            );
        }
        if self.topics.iter().any(|(topic, _)| topic == "load") {
            advice.push(
                "Topic 'load' is SGLang's scheduler load, not events: use the KV events endpoint.".to_owned(),
            );
        }
        if self.topics.len() > 1 {
            advice.push(
                "More than one topic: name the one to follow with topic= in the source's SPEC.".to_owned(),
            );
        }
        for (worker, block_size, events) in ingest.mismatched_block_sizes() {
            advice.push(format!(
                "Rank {} publishes blocks of {block_size} tokens: set block_size={block_size}, or its {events} stored \
                 events are not placed.",
                worker.dp_rank,
            ));
        }
        match &self.replay {
            ReplayFinding::NotAsked if self.first_sequence.is_some_and(|first| first > 0) => advice.push(
                "Batches were sent before we came: give a replay endpoint (replay= in the SPEC), or what they stored stays \
                 unknown."
                    .to_owned(),
            ),
            ReplayFinding::Silent => advice.push(
                "The replay socket does not answer: check its port, and that the engine has a replay endpoint configured."
                    .to_owned(),
            ),
            ReplayFinding::Strange { error } => {
                advice.push(format!("Whatever answers at the replay endpoint is none: {error}."));
            }
            ReplayFinding::NotAsked | ReplayFinding::Answers { .. } => {}
        }
        if self.malformed_batches > 0 {
            advice.push(
                "Some payloads are no event batches at all: see `kvtap capture` and `kvtap inspect`."
                    .to_owned(),
            );
        }
        let (late, other): (Vec<_>, Vec<_>) = self.filtered.0.iter().partition(|(reason, _)| {
            let is_late =
                matches!(reason, Reason::UnknownParent | Reason::UnknownBlock | Reason::UnlearnedGroupIdx);
            is_late && self.first_sequence.is_some_and(|first| first > 0)
        });
        if !late.is_empty() {
            let labels: Vec<_> = late.iter().map(|(reason, _)| reason.label()).collect();
            advice.push(format!(
                "{} come of listening late, as the doctor did; a source with a replay has seen what was before.",
                labels.join(", "),
            ));
        }
        for (reason, count) in other {
            // These are explained by what is told above, or are as it should be.
            if !matches!(
                reason,
                Reason::BlockSizeMismatch | Reason::NonMainAttentionKind | Reason::NonMainAttentionGroup
            ) {
                advice.push(format!("{count} × {}: {}.", reason.label(), explain(reason)));
            }
        }
        advice
    }
}
