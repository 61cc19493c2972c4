//! `/metrics`: OpenMetrics text, made from the sources' counts when somebody asks; only latencies are kept here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::control::off_the_loop;
use super::partition::{Partition, PartitionId};
use super::problem::ServiceError;
use super::reports::{counted_in, lag_seconds};
use super::service::Service;
use super::unclaimed::Unclaimed;
use crate::Reason;
use crate::source::{Glance, State as SourceState, Status};
use crate::wire::{EventErrorKind, WireErrorKind};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a short prompt to a million tokens with their JSON, in seconds.
const BUCKETS: [f64; 14] = [5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.2, 1.0];

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Query,
    QueryByHash,
}

/// How long answers took, from the body's arrival to the answer's JSON.
#[derive(Clone, Debug)]
pub(super) struct Latencies([(&'static str, Histogram); 2]);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(["query", "query_by_hash"].map(|endpoint| (endpoint, Histogram::new(BUCKETS))))
    }

    pub(super) fn observe(&self, endpoint: Endpoint, taken: Duration) {
        let [query, by_hash] = &self.0;
        let (_, histogram) = if endpoint == Endpoint::Query { query } else { by_hash };
        histogram.observe(taken.as_secs_f64());
    }
}

pub(super) async fn metrics(State(service): State<Arc<Service>>) -> Result<Response, ServiceError> {
    let text = off_the_loop(move || text(&service)).await?.map_err(ServiceError::internal)?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

fn text(service: &Service) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("kvtap");
    registry.register_collector(Box::new(Snapshot::take(service)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// All that is told, of one moment.
#[derive(Debug)]
struct Snapshot {
    sources: Vec<Source>,
    partitions: Vec<PartitionCounts>,
    latencies: Latencies,
}

#[derive(Debug)]
struct Source {
    labels: Labels<4>,
    partition: PartitionId,
    status: Status,
    glance: Option<Glance>,
}

#[derive(Debug)]
struct PartitionCounts {
    labels: Labels<2>,
    entries: usize,
    unclaimed_entries: usize,
    map_bytes: usize,
    index_bytes: usize,
    waiting_batches: usize,
    refused_blocks: u64,
}

type Labels<const N: usize> = [(&'static str, String); N];

fn partition_labels(id: &PartitionId) -> Labels<2> {
    [("model_name", id.model_name.clone()), ("routing_group", id.routing_group.clone())]
}

impl Snapshot {
    fn take(service: &Service) -> Self {
        let source = |registered: super::service::Registered| {
            let (status, id) = (registered.source.status(), &registered.partition.id);
            let [model, group] = partition_labels(id);
            let worker = status.worker;
            let instance = ("instance_id", worker.worker_id.to_string());
            let labels = [model, group, instance, ("dp_rank", worker.dp_rank.to_string())];
            Source { labels, partition: id.clone(), status, glance: registered.source.glance() }
        };
        let sources: Vec<Source> = service.registered().into_iter().map(source).collect();
        let unclaimed = service.unclaimed();
        let partition = |it: &Arc<Partition>| PartitionCounts::new(it, &sources, &unclaimed);
        let partitions = service.partitions().iter().map(partition).collect();
        Self { sources, partitions, latencies: service.latencies.clone() }
    }
}

impl PartitionCounts {
    fn new(partition: &Partition, sources: &[Source], unclaimed: &[Arc<Unclaimed>]) -> Self {
        let mine = sources.iter().filter(|source| source.partition == partition.id);
        let glances = mine.filter_map(|source| source.glance.as_ref());
        let (entries, map_bytes) =
            glances.fold((0, 0), |(entries, bytes), glance| (entries + glance.entries, bytes + glance.bytes));
        let theirs = unclaimed.iter().filter(|unclaimed| unclaimed.partition.id == partition.id);
        let (unclaimed_entries, unclaimed_bytes) = theirs.fold((0, 0), |(entries, bytes), unclaimed| {
            (entries + unclaimed.entries(), bytes + unclaimed.bytes())
        });
        Self {
            labels: partition_labels(&partition.id),
            entries: entries + unclaimed_entries,
            unclaimed_entries,
            map_bytes: map_bytes + unclaimed_bytes,
            index_bytes: partition.engine.index_bytes(),
            waiting_batches: partition.engine.waiting_batches(),
            refused_blocks: partition.engine.refused_blocks(),
        }
    }
}

/// One number of a source, or of a partition: name, help, value.
type Row<T, V> = (&'static str, &'static str, fn(&T) -> V);

const SOURCE_COUNTERS: [Row<Status, u64>; 18] = [
    ("batches", "Payloads read, refused ones included", |it| it.counters.batches),
    ("payload_bytes", "Bytes of all payloads", |it| it.counters.payload_bytes),
    ("placed_blocks", "Blocks placed, every copy", |it| it.counters.placed_blocks),
    ("removed_blocks", "Blocks removed, every copy", |it| it.counters.removed_blocks),
    ("placed_tokens", "Tokens of the blocks placed", |it| it.counters.placed_tokens),
    ("undelivered_records", "Changes for a shard that has died", |it| it.counters.undelivered_records),
    ("taken_blocks", "Blocks taken over from a peer", |it| it.taken_blocks),
    ("back_pressure", "Times a full channel held the source up", |it| it.counters.back_pressure),
    ("gaps", "Gaps in the sequence numbers", |it| it.sequence.gaps),
    ("replayed_batches", "Batches that a replay brought", |it| it.sequence.replayed_batches),
    ("lost_batches", "Batches that nothing brought", |it| it.sequence.lost_batches),
    ("skipped_sequences", "Numbers that were never sent", |it| it.sequence.skipped_sequences),
    ("restarts", "Restarts of the engine", |it| it.sequence.restarts),
    ("duplicates", "Batches that came again", |it| it.sequence.duplicates),
    ("connects", "Connections made", |it| it.connects),
    ("disconnects", "Connections lost", |it| it.disconnects),
    ("bad_messages", "Messages with frames of no known shape", |it| it.bad_messages),
    ("foreign_messages", "Messages on other topics", |it| it.foreign_messages),
];

const KINDS: [Row<Status, u64>; 5] = [
    ("stored", "", |it| it.counters.stored_events),
    ("removed", "", |it| it.counters.removed_events),
    ("cleared", "", |it| it.counters.cleared_events),
    ("unknown", "", |it| it.counters.unknown_events),
    ("malformed", "", |it| it.counters.malformed_events),
];

const PARTITION_GAUGES: [Row<PartitionCounts, u64>; 6] = [
    ("index_entries", "Live (worker, tier, engine hash) triples", |it| it.entries as u64),
    ("unclaimed_entries", "Those of sources that a peer tells of and nobody registered", |it| {
        it.unclaimed_entries as u64
    }),
    ("index_bytes", "Bytes of the shards", |it| it.index_bytes as u64),
    ("engine_hash_bytes", "Bytes of the sources' engine-hash maps", |it| it.map_bytes as u64),
    ("channel_batches", "Record batches on their way to the shards", |it| it.waiting_batches as u64),
    ("refused_blocks", "Blocks that found no room in their shard", |it| it.refused_blocks),
];

const STATES: [SourceState; 4] =
    [SourceState::Connecting, SourceState::Live, SourceState::Replaying, SourceState::Disconnected];

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in SOURCE_COUNTERS {
            let samples = self.sources.iter().map(|source| (source.labels.clone(), value(&source.status)));
            counters(&mut encoder, (name, help), samples)?;
        }
        self.events(&mut encoder)?;
        self.states(&mut encoder)?;
        for (name, help, value) in PARTITION_GAUGES {
            let samples = self.partitions.iter().map(|it| (it.labels.clone(), number(value(it))));
            gauges(&mut encoder, (name, help), samples)?;
        }
        self.latencies(&mut encoder)
    }
}

impl Snapshot {
    fn events(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kinds = self.sources.iter().flat_map(|source| {
            KINDS.map(|(kind, _, value)| (source.with([("kind", kind)]), value(&source.status)))
        });
        counters(encoder, ("events", "Events by kind"), kinds)?;
        let reasons = self.sources.iter().flat_map(|source| {
            Reason::ALL.into_iter().filter_map(|reason| {
                let count = source.status.counters.filtered(reason);
                let labels = [("reason", reason.label()), ("counted_in", counted_in(reason))];
                (count > 0).then(|| (source.with(labels), count))
            })
        });
        let help = "Events or blocks not placed, by reason; see counted_in";
        counters(encoder, ("not_placed", help), reasons)?;
        // Every kind, so that rates have a beginning.
        let refused = self.sources.iter().flat_map(|source| {
            WireErrorKind::ALL
                .map(|kind| (source.with([("reason", kind.label())]), source.status.counters.refused(kind)))
        });
        counters(encoder, ("malformed_batches", "Payloads refused whole, by the rule broken"), refused)?;
        let malformed = self.sources.iter().flat_map(|source| {
            EventErrorKind::ALL
                .map(|kind| (source.with([("reason", kind.label())]), source.status.counters.malformed(kind)))
        });
        let help = "Events of sound payloads that broke a rule, by rule";
        counters(encoder, ("malformed_events", help), malformed)?;
        let drift = self.sources.iter().flat_map(|source| {
            let drift = source.glance.iter().flat_map(|glance| &glance.drift);
            drift.map(|(field, count)| (source.with([("field", field.as_str())]), *count))
        });
        counters(encoder, ("schema_drift", "Fields and tags that no known producer version sends"), drift)
    }

    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let states = self.sources.iter().flat_map(|source| {
            STATES.map(|state| {
                (source.with([("state", state.label())]), f64::from(u8::from(source.status.state == state)))
            })
        });
        gauges(encoder, ("source_state", "1 for the state the source is in, 0 for the others"), states)?;
        let degraded =
            self.sources.iter().map(|it| (it.labels.clone(), f64::from(u8::from(it.status.degraded))));
        gauges(
            encoder,
            ("source_degraded", "1 if batches were lost since its blocks were cleared"),
            degraded,
        )?;
        let lags = self.sources.iter().filter_map(|it| Some((it.labels.clone(), lag_seconds(&it.status)?)));
        let help = "Age of the last batch applied; a quiet engine's grows too";
        gauges(encoder, ("source_lag_seconds", help), lags)
    }

    fn latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "From a query's body to its answer's JSON";
        let mut family =
            encoder.encode_descriptor("query", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (endpoint, histogram) in &self.latencies.0 {
            histogram.encode(family.encode_family(&[("endpoint", *endpoint)])?)?;
        }
        Ok(())
    }
}

impl Source {
    fn with<const N: usize>(&self, more: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
        let more = more.map(|(key, value)| (key, value.to_owned()));
        self.labels.iter().cloned().chain(more).collect()
    }
}

/// Exact below 2⁵³, as every number of OpenMetrics.
#[expect(clippy::cast_precision_loss, reason = "see above")]
const fn number(count: u64) -> f64 {
    count as f64
}

fn counters<L: prometheus_client::encoding::EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    samples: impl Iterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in samples {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges<L: prometheus_client::encoding::EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    samples: impl Iterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
