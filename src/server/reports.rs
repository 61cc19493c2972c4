//! `/sources` and `/explain`: what became of every source and event. Asks the listener threads, so it may wait for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::control::off_the_loop;
use super::problem::ServiceError;
use super::service::{Registered, Service};
use crate::source::{Example, Status};
use crate::wire::{EventErrorKind, WireErrorKind};
use crate::{Reason, Scope};

/// Which sources to tell of; each filter may be left out.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Filter {
    instance_id: Option<u64>,
    dp_rank: Option<u32>,
    model_name: Option<String>,
    routing_group: Option<String>,
}

impl Filter {
    fn sources(&self, service: &Service) -> Result<Vec<Registered>, ServiceError> {
        let mut sources = service.registered();
        sources.retain(|registered| {
            let (id, worker) = (&registered.partition.id, registered.source.status().worker);
            id.is_of(self.model_name.as_deref(), self.routing_group.as_deref())
                && self.instance_id.is_none_or(|worker_id| worker_id == worker.worker_id)
                && self.dp_rank.is_none_or(|dp_rank| dp_rank == worker.dp_rank)
        });
        match self.instance_id {
            Some(worker_id) if sources.is_empty() => {
                Err(ServiceError::not_found(format_args!("no source of instance {worker_id} is registered")))
            }
            _ => Ok(sources),
        }
    }
}

/// Who a source is: the head of every entry.
#[derive(Debug, Serialize)]
struct Head {
    instance_id: u64,
    dp_rank: u32,
    model_name: String,
    routing_group: String,
    block_size: u32,
    endpoint: String,
    replay_endpoint: Option<String>,
}

impl Head {
    fn new(registered: &Registered, status: &Status) -> Self {
        let partition = &registered.partition;
        Self {
            instance_id: status.worker.worker_id,
            dp_rank: status.worker.dp_rank,
            model_name: partition.id.model_name.clone(),
            routing_group: partition.id.routing_group.clone(),
            block_size: partition.block_size,
            endpoint: status.endpoint.clone(),
            replay_endpoint: registered.replay_endpoint.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct SourceEntry {
    #[serde(flatten)]
    head: Head,
    state: &'static str,
    degraded: bool,
    last_error: Option<String>,
    /// The last sequence number dealt with.
    cursor: Option<u64>,
    /// When the last batch applied was made, in Unix seconds; and how long ago that is.
    watermark: Option<f64>,
    lag_s: Option<f64>,
    batches: u64,
    payload_bytes: u64,
    gaps: u64,
    replayed_batches: u64,
    lost_batches: u64,
    skipped_sequences: u64,
    restarts: u64,
    duplicates: u64,
    connects: u64,
    disconnects: u64,
    bad_messages: u64,
    foreign_messages: u64,
    taken_blocks: u64,
    back_pressure: u64,
    entries: Option<usize>,
    /// Events by what they are and how they are written.
    encodings: BTreeMap<String, u64>,
}

impl SourceEntry {
    fn new(registered: &Registered) -> Self {
        let (status, glance) = (registered.source.status(), registered.source.glance());
        let (sequence, counters) = (status.sequence, &status.counters);
        let mut encodings = BTreeMap::new();
        for (shape, events) in glance.iter().flat_map(|glance| &glance.shapes) {
            *encodings.entry(shape.form()).or_default() += events;
        }
        Self {
            head: Head::new(registered, &status),
            state: status.state.label(),
            degraded: status.degraded,
            cursor: status.cursor,
            watermark: status.watermark,
            lag_s: lag_seconds(&status),
            batches: counters.batches,
            payload_bytes: counters.payload_bytes,
            gaps: sequence.gaps,
            replayed_batches: sequence.replayed_batches,
            lost_batches: sequence.lost_batches,
            skipped_sequences: sequence.skipped_sequences,
            restarts: sequence.restarts,
            duplicates: sequence.duplicates,
            connects: status.connects,
            disconnects: status.disconnects,
            bad_messages: status.bad_messages,
            foreign_messages: status.foreign_messages,
            taken_blocks: status.taken_blocks,
            back_pressure: counters.back_pressure,
            entries: glance.map(|glance| glance.entries),
            encodings,
            last_error: status.last_error,
        }
    }
}

/// How long ago the last batch applied was made. A quiet engine's grows too.
pub(super) fn lag_seconds(status: &Status) -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some((now.as_secs_f64() - status.watermark?).max(0.0))
}

pub(super) async fn sources(
    State(service): State<Arc<Service>>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Response, ServiceError> {
    report(service, filter, SourceEntry::new).await
}

/// An entry for each source that is asked for.
async fn report<T: Serialize + Send + 'static>(
    service: Arc<Service>,
    filter: Result<Query<Filter>, QueryRejection>,
    entry: fn(&Registered) -> T,
) -> Result<Response, ServiceError> {
    let Query(filter) = filter?;
    let entries = off_the_loop(move || {
        let sources = filter.sources(&service)?;
        Ok::<_, ServiceError>(sources.iter().map(entry).collect::<Vec<_>>())
    });
    Ok(Json(entries.await??).into_response())
}

#[derive(Debug, Serialize)]
struct Explanation {
    #[serde(flatten)]
    head: Head,
    events: Events,
    blocks_placed: u64,
    blocks_removed: u64,
    malformed_batches: u64,
    /// Those and malformed events by the rule they broke; rules nobody broke are left out.
    malformed_batches_by_reason: BTreeMap<&'static str, u64>,
    malformed_events_by_reason: BTreeMap<&'static str, u64>,
    /// Every reason that occurred, the most frequent first.
    not_placed: Vec<NotPlaced>,
    /// Ranks whose producer uses another block size than the partition.
    block_size_mismatches: Vec<Mismatch>,
    /// What no known producer version sends.
    drift: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Events {
    stored: u64,
    removed: u64,
    cleared: u64,
    unknown: u64,
    malformed: u64,
}

#[derive(Debug, Serialize)]
struct NotPlaced {
    reason: &'static str,
    counted_in: &'static str,
    count: u64,
    /// The last such event; `null` where single blocks are counted.
    last: Option<Last>,
}

#[derive(Debug, Serialize)]
struct Mismatch {
    dp_rank: u32,
    block_size: u32,
    events: u64,
}

#[derive(Debug, Serialize)]
struct Last {
    sequence: u64,
    dp_rank: Option<u32>,
    kind: &'static str,
    blocks: usize,
    /// Decimal, in a string: many readers keep numbers as doubles.
    first_block_hash: Option<String>,
    medium: Option<String>,
    group_idx: Option<u32>,
    spec_kind: Option<String>,
    detail: Option<String>,
}

impl From<&Example> for Last {
    fn from(example: &Example) -> Self {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self {
            sequence: example.sequence,
            dp_rank: example.worker.map(|worker| worker.dp_rank),
            kind: example.kind,
            blocks: example.blocks,
            first_block_hash: example.first.map(|hash| hash.0.to_string()),
            medium: text(&example.medium),
            group_idx: example.group_idx,
            spec_kind: text(&example.spec_kind),
            detail: text(&example.detail),
        }
    }
}

impl Explanation {
    fn new(registered: &Registered) -> Self {
        let (status, glance) = (registered.source.status(), registered.source.glance());
        let (drift, examples) =
            glance.map_or_else(Default::default, |glance| (glance.drift, glance.examples));
        let counters = &status.counters;
        let last = |verdict| examples.iter().find(|example| example.verdict == verdict).map(Last::from);
        let reasons = Reason::ALL.into_iter().map(|reason| {
            let counted_in = counted_in(reason);
            (reason.label(), counted_in, counters.filtered(reason))
        });
        let others = [
            ("unknown", "events", counters.unknown_events),
            ("malformed", "events", counters.malformed_events),
        ];
        let mut not_placed: Vec<_> = reasons
            .chain(others)
            .filter(|&(.., count)| count > 0)
            .map(|(reason, counted_in, count)| NotPlaced { reason, counted_in, count, last: last(reason) })
            .collect();
        not_placed.sort_by_key(|entry| std::cmp::Reverse(entry.count));
        let mismatches = status.mismatched_block_sizes.iter();
        let mismatch = |&(worker, block_size, events): &(crate::Worker, _, _)| Mismatch {
            dp_rank: worker.dp_rank,
            block_size,
            events,
        };
        Self {
            head: Head::new(registered, &status),
            events: Events {
                stored: counters.stored_events,
                removed: counters.removed_events,
                cleared: counters.cleared_events,
                unknown: counters.unknown_events,
                malformed: counters.malformed_events,
            },
            blocks_placed: counters.placed_blocks,
            blocks_removed: counters.removed_blocks,
            malformed_batches: counters.malformed_batches,
            malformed_batches_by_reason: broken(WireErrorKind::ALL, |kind| {
                (kind.label(), counters.refused(kind))
            }),
            malformed_events_by_reason: broken(EventErrorKind::ALL, |kind| {
                (kind.label(), counters.malformed(kind))
            }),
            not_placed,
            block_size_mismatches: mismatches.map(mismatch).collect(),
            drift: drift.into_iter().collect(),
        }
    }
}

/// How often each rule was broken.
fn broken<T, const N: usize>(
    kinds: [T; N],
    count: impl Fn(T) -> (&'static str, u64),
) -> BTreeMap<&'static str, u64> {
    kinds.into_iter().map(count).filter(|&(_, count)| count > 0).collect()
}

pub(super) const fn counted_in(reason: Reason) -> &'static str {
    match reason.scope() {
        Scope::Event => "events",
        Scope::Block => "blocks",
    }
}

pub(super) async fn explain(
    State(service): State<Arc<Service>>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Response, ServiceError> {
    report(service, filter, Explanation::new).await
}
