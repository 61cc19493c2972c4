//! A dump of another instance, kvtap's or Dynamo's → what each source held. Whoever wrote it may have written anything: a block
//! is taken only after its parent, and once.

use std::collections::{BTreeMap, HashMap};

use super::dump::{Block, Data, Dump, PartitionDump, RouterEvent, SourceDump};
use super::partition::PartitionId;
use crate::source::SourceState;
use crate::{EngineHash, HeldBlock, HeldRank, LocalHash, Worker};

/// An index has room for so many ranks; more sources cannot be of use.
const SOURCES_MAX: usize = 4096;
/// Each partition is an index with threads.
const PARTITIONS_MAX: usize = 64;

/// What a dump says.
#[derive(Debug, Default)]
pub(super) struct Restored {
    pub(super) partitions: Vec<RestoredPartition>,
    /// Blocks whose parent it does not have: no prompt could reach them.
    pub(super) left_out: usize,
}

#[derive(Debug)]
pub(super) struct RestoredPartition {
    pub(super) id: PartitionId,
    pub(super) block_size: u32,
    /// By worker, and the rank it is registered with.
    pub(super) sources: BTreeMap<(u64, u32), SourceState>,
}

/// A source under construction: its ranks, and where each block of theirs stands.
#[derive(Debug, Default)]
struct Builder {
    state: SourceState,
    ranks: HashMap<u32, usize>,
    places: HashMap<(u32, EngineHash), usize>,
}

/// Reads a dump; what is wrong with it is a sentence.
pub(super) fn restore(dump: Dump) -> Result<Restored, String> {
    if dump.len() > PARTITIONS_MAX {
        return Err(format!("the dump has {} partitions, more than {PARTITIONS_MAX}", dump.len()));
    }
    let mut restored = Restored::default();
    let mut sources = 0;
    for (key, partition) in dump {
        let id = partition_id(&key, &partition)?;
        if restored.partitions.iter().any(|known| known.id == id) {
            return Err(format!("partition '{}' comes twice", key.escape_debug()));
        }
        let block_size = partition.block_size;
        let builders = build(partition, &mut restored.left_out)?;
        sources += builders.len();
        if sources > SOURCES_MAX {
            return Err(format!("the dump has more than {SOURCES_MAX} sources"));
        }
        let sources = builders.into_iter().map(|(source, builder)| (source, builder.state)).collect();
        restored.partitions.push(RestoredPartition { id, block_size, sources });
    }
    Ok(restored)
}

fn partition_id(key: &str, partition: &PartitionDump) -> Result<PartitionId, String> {
    if let (Some(model_name), Some(routing_group)) = (&partition.model_name, &partition.routing_group) {
        return Ok(PartitionId { model_name: model_name.clone(), routing_group: routing_group.clone() });
    }
    let parts = key.split_once(':');
    let (model_name, routing_group) =
        parts.ok_or_else(|| format!("'{}' is no partition: model:group", key.escape_debug()))?;
    Ok(PartitionId { model_name: model_name.to_owned(), routing_group: routing_group.to_owned() })
}

fn build(partition: PartitionDump, left_out: &mut usize) -> Result<BTreeMap<(u64, u32), Builder>, String> {
    let mut builders = BTreeMap::<(u64, u32), Builder>::new();
    for source in &partition.sources {
        let (worker_id, dp_rank) = (source.instance_id, source.dp_rank);
        if builders.insert((worker_id, dp_rank), Builder::new(source)?).is_some() {
            return Err(format!("source {dp_rank} of worker {worker_id} comes twice"));
        }
    }
    for event in partition.events.into_iter().chain(partition.severed) {
        let source = event.source_rank.unwrap_or(event.event.dp_rank);
        let builder = builders.entry((event.worker_id, source)).or_default();
        *left_out += builder.add(event)?;
        if builders.len() > SOURCES_MAX {
            break;
        }
    }
    Ok(builders)
}

impl Builder {
    fn new(source: &SourceDump) -> Result<Self, String> {
        let mut builder = Self::default();
        (builder.state.position, builder.state.degraded) = (source.position(), source.degraded);
        for rank in &source.ranks {
            let worker = Worker { worker_id: source.instance_id, dp_rank: rank.dp_rank };
            if builder.ranks.contains_key(&rank.dp_rank) {
                return Err(format!("worker {worker} comes twice in source {}", source.dp_rank));
            }
            let held = builder.rank(worker);
            held.has_full_block = rank.has_full_block;
            held.groups = rank.groups.iter().map(|&(group, kind)| (group, kind.into())).collect();
        }
        Ok(builder)
    }

    fn rank(&mut self, worker: Worker) -> &mut HeldRank {
        let ranks = &mut self.state.ranks;
        let at = *self.ranks.entry(worker.dp_rank).or_insert_with(|| {
            ranks.push(HeldRank::new(worker));
            ranks.len() - 1
        });
        &mut ranks[at]
    }

    /// Adds the blocks of an event. Gives how many had to be left out.
    fn add(&mut self, event: RouterEvent) -> Result<usize, String> {
        let worker = Worker { worker_id: event.worker_id, dp_rank: event.event.dp_rank };
        let tier = event.storage_tier as usize;
        let Data::Stored(stored) = event.event.data;
        let mut parent = stored.parent_hash.map(EngineHash);
        let count = stored.blocks.len();
        for (done, block) in stored.blocks.iter().enumerate() {
            if !self.add_block(worker, parent, block, tier)? {
                self.state.degraded = true;
                return Ok(count - done);
            }
            parent = Some(EngineHash(block.block_hash));
        }
        Ok(0)
    }

    /// Adds one block at one tier. False if its parent is not there.
    fn add_block(
        &mut self,
        worker: Worker,
        parent: Option<EngineHash>,
        block: &Block,
        tier: usize,
    ) -> Result<bool, String> {
        let dp_rank = worker.dp_rank;
        let (engine_hash, local_hash) = (EngineHash(block.block_hash), LocalHash(block.tokens_hash));
        let place = self.places.get(&(dp_rank, engine_hash)).copied();
        if place.is_none() && parent.is_some_and(|parent| !self.places.contains_key(&(dp_rank, parent))) {
            return Ok(false);
        }
        let blocks = &mut self.rank(worker).blocks;
        let at = place.unwrap_or(blocks.len());
        if place.is_none() {
            blocks.push(HeldBlock::new(engine_hash, parent, local_hash));
        }
        let held = &mut blocks[at];
        if held.local_hash != local_hash {
            return Err(format!("block {} of worker {worker} comes twice, with other tokens", engine_hash.0));
        }
        held.copies[tier] = held.copies[tier].max(block.copies.unwrap_or(1));
        held.salt = held.salt.or(block.salt);
        held.is_ambiguous |= block.ambiguous;
        self.places.insert((dp_rank, engine_hash), at);
        Ok(true)
    }
}
