//! `/dump`: all that is held, as the events that would bring it about, in Dynamo's shape, with what kvtap needs besides to go
//! on from there. Asks every source in turn; what is told of one is of one moment.
//!
//! Dynamo's reader takes `block_size` and `events`, passes over the rest, and stops at an event whose parent is unknown at its
//! tier and those nearer. So blocks that would be refused stand in `severed`, and what was learned of a source in `sources`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::control::off_the_loop;
use super::partition::PartitionId;
use super::problem::ServiceError;
use super::service::Service;
use crate::source::SourceState;
use crate::{EngineHash, GroupKind, HeldBlock, HeldRank, Position, Tier};

/// By `model:group`, or more than that where two would be the same.
pub(super) type Dump = BTreeMap<String, PartitionDump>;

/// One partition.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PartitionDump {
    pub(super) block_size: u32,
    pub(super) events: Vec<RouterEvent>,
    /// The two parts of its name, either of which may have a colon.
    pub(super) model_name: Option<String>,
    pub(super) routing_group: Option<String>,
    /// To be read after `events`: blocks that continue none which is held at their tier or a nearer one, and the places between.
    #[serde(default)]
    pub(super) severed: Vec<RouterEvent>,
    #[serde(default)]
    pub(super) sources: Vec<SourceDump>,
}

/// What was learned of a source.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SourceDump {
    pub(super) instance_id: u64,
    pub(super) dp_rank: u32,
    /// The sequence number that comes next; `null` if nobody knows.
    pub(super) next: Option<u64>,
    pub(super) timestamp: Option<f64>,
    pub(super) watermark: Option<f64>,
    pub(super) degraded: bool,
    pub(super) ranks: Vec<RankDump>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct RankDump {
    pub(super) dp_rank: u32,
    pub(super) has_full_block: bool,
    pub(super) groups: Vec<(u32, GroupName)>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GroupName {
    Main,
    Other,
    Unknown,
}

impl From<GroupKind> for GroupName {
    fn from(kind: GroupKind) -> Self {
        match kind {
            GroupKind::Main => Self::Main,
            GroupKind::Other => Self::Other,
            GroupKind::Unknown => Self::Unknown,
        }
    }
}

impl From<GroupName> for GroupKind {
    fn from(name: GroupName) -> Self {
        match name {
            GroupName::Main => Self::Main,
            GroupName::Other => Self::Other,
            GroupName::Unknown => Self::Unknown,
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct RouterEvent {
    pub(super) worker_id: u64,
    #[serde(default)]
    pub(super) storage_tier: TierName,
    pub(super) event: Event,
    /// The rank of the source that tells of it, which may tell of several.
    pub(super) source_rank: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TierName {
    #[default]
    Device,
    HostPinned,
    Disk,
    External,
}

impl From<Tier> for TierName {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Device => Self::Device,
            Tier::HostPinned => Self::HostPinned,
            Tier::Disk => Self::Disk,
            Tier::External => Self::External,
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Event {
    pub(super) event_id: u64,
    pub(super) data: Data,
    #[serde(default)]
    pub(super) dp_rank: u32,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Data {
    Stored(Stored),
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Stored {
    pub(super) parent_hash: Option<u64>,
    /// Dynamo's own dump leaves it open too.
    #[serde(skip_deserializing)]
    start_position: (),
    pub(super) blocks: Vec<Block>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Block {
    pub(super) block_hash: u64,
    pub(super) tokens_hash: u64,
    /// The hash of the tokens has it already.
    #[serde(skip_deserializing)]
    mm_extra_info: (),
    /// At this tier, if more than one; 0 if it is not held and only leads to what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) copies: Option<u32>,
    /// Hash of the cache salt that what follows inherits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) salt: Option<u64>,
    /// Known under several salts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) ambiguous: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(it: &bool) -> bool {
    !*it
}

/// Whose events are written, and at which tier.
#[derive(Clone, Copy)]
struct Head {
    worker_id: u64,
    dp_rank: u32,
    source_rank: u32,
    tier: Tier,
}

/// Events under construction: one for each stretch of a chain.
#[derive(Default)]
struct Events {
    events: Vec<RouterEvent>,
    /// The last block of the last event, and its tier.
    last: Option<(EngineHash, Tier)>,
}

impl Events {
    fn start(events: Vec<RouterEvent>) -> Self {
        Self { events, last: None }
    }

    fn add(&mut self, head: Head, held: &HeldBlock) {
        let copies = held.copies[head.tier.index()];
        let block = Block {
            block_hash: held.engine_hash.0,
            tokens_hash: held.local_hash.0,
            mm_extra_info: (),
            copies: Some(copies).filter(|&copies| copies != 1),
            salt: held.salt,
            ambiguous: held.is_ambiguous,
        };
        let goes_on =
            self.last.is_some_and(|last| held.parent.map(|parent| (parent, head.tier)) == Some(last));
        self.last = Some((held.engine_hash, head.tier));
        if let Some(RouterEvent { event: Event { data: Data::Stored(stored), .. }, .. }) =
            self.events.last_mut().filter(|_| goes_on)
        {
            stored.blocks.push(block);
            return;
        }
        let parent_hash = held.parent.map(|parent| parent.0);
        let data = Data::Stored(Stored { parent_hash, start_position: (), blocks: vec![block] });
        self.events.push(RouterEvent {
            worker_id: head.worker_id,
            storage_tier: head.tier.into(),
            event: Event { event_id: self.events.len() as u64, data, dp_rank: head.dp_rank },
            source_rank: Some(head.source_rank),
        });
    }
}

impl PartitionDump {
    pub(super) fn new(id: &PartitionId, block_size: u32) -> Self {
        Self {
            block_size,
            events: Vec::new(),
            model_name: Some(id.model_name.clone()),
            routing_group: Some(id.routing_group.clone()),
            severed: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Adds all of a source.
    pub(super) fn add(&mut self, worker_id: u64, dp_rank: u32, state: &SourceState) {
        for rank in &state.ranks {
            self.add_rank(rank, dp_rank);
        }
        let rank = |rank: &HeldRank| RankDump {
            dp_rank: rank.worker.dp_rank,
            has_full_block: rank.has_full_block,
            groups: rank.groups.iter().map(|&(group, kind)| (group, kind.into())).collect(),
        };
        let position = state.position.unwrap_or_default();
        // What is no number in JSON is unknown.
        let finite = |seconds: Option<f64>| seconds.filter(|seconds| seconds.is_finite());
        self.sources.push(SourceDump {
            instance_id: worker_id,
            dp_rank,
            next: state.position.map(|position| position.next),
            timestamp: finite(position.timestamp),
            watermark: finite(position.watermark),
            degraded: state.degraded,
            ranks: state.ranks.iter().map(rank).collect(),
        });
    }

    fn add_rank(&mut self, rank: &HeldRank, source_rank: u32) {
        // From which tier on a block's events can be read without `severed`.
        let mut from: HashMap<EngineHash, usize> = HashMap::with_capacity(rank.blocks.len());
        for block in &rank.blocks {
            let parent = block.parent.map_or(Some(0), |parent| from.get(&parent).copied());
            let tiers = |&tier: &usize| block.copies[tier] > 0 && parent.is_some_and(|parent| parent <= tier);
            if let Some(tier) = (0..4).find(tiers) {
                from.insert(block.engine_hash, tier);
            }
        }
        let is_severed = |block: &HeldBlock, tier: usize| {
            block.copies[tier] > 0 && from.get(&block.engine_hash).is_none_or(|&from| tier < from)
        };
        let worker = rank.worker;
        let head = |tier| Head { worker_id: worker.worker_id, dp_rank: worker.dp_rank, source_rank, tier };
        let mut events = Events::start(std::mem::take(&mut self.events));
        // Device first: what lies lower may continue it.
        for tier in Tier::ALL {
            let at = tier.index();
            let here = |block: &&HeldBlock| block.copies[at] > 0 && !is_severed(block, at);
            rank.blocks.iter().filter(here).for_each(|block| events.add(head(tier), block));
        }
        self.events = events.events;
        let mut severed = Events::start(std::mem::take(&mut self.severed));
        for block in &rank.blocks {
            for tier in Tier::ALL {
                let is_place = !block.is_held() && tier == Tier::Device;
                if is_place || is_severed(block, tier.index()) {
                    severed.add(head(tier), block);
                }
            }
        }
        self.severed = severed.events;
    }
}

impl SourceDump {
    pub(super) fn position(&self) -> Option<Position> {
        let (timestamp, watermark) = (self.timestamp, self.watermark);
        self.next.map(|next| Position { next, timestamp, watermark })
    }
}

fn dump(service: &Service) -> Dump {
    let mut partitions = BTreeMap::<PartitionId, PartitionDump>::new();
    let mut add =
        |id: &PartitionId, block_size: u32, (worker_id, dp_rank): (u64, u32), state: &SourceState| {
            let dump = partitions.entry(id.clone()).or_insert_with(|| PartitionDump::new(id, block_size));
            dump.add(worker_id, dp_rank, state);
        };
    for registered in service.registered() {
        let (partition, worker) = (&registered.partition, registered.source.status().worker);
        let state = registered.source.state().unwrap_or_default();
        add(&partition.id, partition.block_size, (worker.worker_id, worker.dp_rank), &state);
    }
    for unclaimed in service.unclaimed() {
        let partition = &unclaimed.partition;
        add(&partition.id, partition.block_size, unclaimed.source, &unclaimed.state());
    }
    let mut dumps = Dump::new();
    for (id, dump) in partitions {
        let mut key = format!("{}:{}", id.model_name, id.routing_group);
        // `a:b` with `c` and `a` with `b:c`: readers take the names from inside.
        while dumps.contains_key(&key) {
            key.push(':');
        }
        dumps.insert(key, dump);
    }
    dumps
}

pub(super) async fn dump_all(State(service): State<Arc<Service>>) -> Result<Response, ServiceError> {
    Ok(Json(off_the_loop(move || dump(&service)).await?).into_response())
}
