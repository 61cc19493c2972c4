//! What is to be held of a dump, from its values alone: blocks by the local hashes that lead to them, so that it does not matter
//! in which order a dump tells of them, nor how it names what only leads to others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::shape::{Fields, Refused, boolean, float, integer, list, number, text, variant};
use crate::asking::Depths;

const PARTITIONS_MAX: usize = 64;
const SOURCES_MAX: usize = 4096;
const GROUPS_MAX: usize = 1024;
const RANKS_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 256;
const TIERS: [&str; 4] = ["device", "host_pinned", "disk", "external"];

/// By model and routing group.
pub(super) type Held = BTreeMap<(String, String), Partition>;

#[derive(Debug, PartialEq)]
pub(super) struct Partition {
    pub(super) block_size: u32,
    /// By worker, and the rank it is registered with.
    pub(super) sources: BTreeMap<(u64, u32), Source>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Source {
    /// Next sequence number, timestamp, watermark.
    position: Option<(u64, Option<f64>, Option<f64>)>,
    degraded: bool,
    ranks: BTreeMap<u32, Rank>,
}

#[derive(Debug, Default, PartialEq)]
struct Rank {
    has_full_block: bool,
    groups: Vec<(u32, String)>,
    /// By engine hash.
    blocks: BTreeMap<u64, Block>,
}

/// Local hashes from a prompt's start.
pub(super) type Path = Vec<u64>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Block {
    path: Path,
    copies: [u32; 4],
    salt: Option<u64>,
    ambiguous: bool,
}

impl Block {
    fn is_held(&self) -> bool {
        self.copies != [0; 4]
    }
}

/// What a dump says is to be held, or that it is of no use as a whole.
pub(super) fn held(dump: &Value) -> Result<Held, Refused> {
    let mut held = told(dump)?;
    for ((model_name, routing_group), partition) in &mut held {
        // Nobody can register for the others, nor for what has blocks of no size.
        let is_one = [model_name, routing_group].iter().all(|name| name.len() <= NAME_BYTES_MAX)
            && (1..=65_536).contains(&partition.block_size);
        partition.sources.retain(|_, source| is_one && source.has_room());
        for rank in partition.sources.values_mut().flat_map(|source| source.ranks.values_mut()) {
            rank.blocks.retain(|_, block| block.is_held());
        }
    }
    held.retain(|_, partition| !partition.sources.is_empty());
    Ok(held)
}

/// Checks that a dump of kvtap's own leaves nothing to be put right: every block follows one that was told of, in `events` one at
/// its tier or a nearer one, as Dynamo's reader wants it; and places that only lead to others do lead to some.
pub(super) fn check_own(dump: &Value) {
    for partition in dump.as_object().expect("partitions").values() {
        let mut nearest = HashMap::<(&Value, &Value, &Value, u64), usize>::new();
        for (event, is_severed) in events(partition) {
            let (worker, at) = (&event["worker_id"], &event["event"]);
            let who = |hash: u64| (worker, &event["source_rank"], &at["dp_rank"], hash);
            let tier = TIERS.iter().position(|tier| event["storage_tier"] == *tier).expect("a tier");
            let stored = &at["data"]["stored"];
            let mut parent = stored["parent_hash"].as_u64();
            for block in stored["blocks"].as_array().expect("blocks") {
                let known = parent.map_or(Some(&0), |parent| nearest.get(&who(parent)));
                assert!(known.is_some_and(|&known| is_severed || known <= tier), "{block} of {dump}");
                let hash = block["block_hash"].as_u64().expect("a hash");
                let nearest = nearest.entry(who(hash)).or_insert(tier);
                *nearest = tier.min(*nearest);
                parent = Some(hash);
            }
        }
    }
    for partition in told(dump).expect("a dump").values() {
        for rank in partition.sources.values().flat_map(|source| source.ranks.values()) {
            let paths = |is_held: bool| {
                let such = rank.blocks.values().filter(move |block| block.is_held() == is_held);
                such.map(|block| block.path.as_slice())
            };
            let held: BTreeSet<&[u64]> = paths(true).collect();
            let mut between: BTreeSet<&[u64]> =
                held.iter().flat_map(|path| (1..path.len()).map(|end| &path[..end])).collect();
            between.retain(|path| !held.contains(path));
            assert_eq!(paths(false).count(), between.len(), "{dump}");
            assert_eq!(paths(false).collect::<BTreeSet<_>>(), between, "{dump}");
        }
    }
}

fn events(partition: &Value) -> impl Iterator<Item = (&Value, bool)> {
    ["events", "severed"].into_iter().flat_map(move |part| {
        let all = partition[part].as_array().expect("events").iter();
        all.map(move |event| (event, part == "severed"))
    })
}

fn told(dump: &Value) -> Result<Held, Refused> {
    let partitions = dump.as_object().ok_or(Refused)?;
    let mut told = Held::new();
    let mut sources = 0;
    for (key, value) in partitions {
        let fields = Fields::of(
            value,
            &["block_size", "events", "model_name", "routing_group", "severed", "sources"],
            4,
        )?;
        let names = ["model_name", "routing_group"].map(|name| fields.optional(name, text));
        let name = match names {
            [Err(refused), _] | [_, Err(refused)] => return Err(refused),
            [Ok(Some(model_name)), Ok(Some(routing_group))] => (model_name, routing_group),
            _ => {
                let (model_name, routing_group) = key.split_once(':').ok_or(Refused)?;
                (model_name.to_owned(), routing_group.to_owned())
            }
        };
        let partition = Partition::read(&fields)?;
        sources += partition.sources.len();
        if told.insert(name, partition).is_some() {
            return Err(Refused);
        }
    }
    let is_too_much = partitions.len() > PARTITIONS_MAX || sources > SOURCES_MAX;
    if is_too_much { Err(Refused) } else { Ok(told) }
}

impl Partition {
    fn read(fields: &Fields<'_>) -> Result<Self, Refused> {
        let block_size = fields.needed("block_size", number)?;
        let mut sources = BTreeMap::new();
        for source in fields.or("sources", list, &[])? {
            let (name, source) = Source::read(source)?;
            if sources.insert(name, source).is_some() {
                return Err(Refused);
            }
        }
        let severed = fields.or("severed", list, &[])?;
        for event in fields.needed("events", list)?.iter().chain(severed) {
            add(&mut sources, event)?;
        }
        Ok(Self { block_size, sources })
    }

    /// Live names at tiers.
    pub(super) fn entries(&self) -> usize {
        let tiers = |block: &Block| block.copies.iter().filter(|&&copies| copies > 0).count();
        self.ranks().flat_map(|(_, rank)| rank.blocks.values()).map(tiers).sum()
    }

    /// Prompts of some of its blocks.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.ranks().flat_map(|(_, rank)| rank.blocks.values().map(|block| &block.path))
    }

    fn ranks(&self) -> impl Iterator<Item = ((u64, u32), &Rank)> {
        self.sources.iter().flat_map(|(&(worker_id, _), source)| {
            source.ranks.iter().map(move |(&rank, held)| ((worker_id, rank), held))
        })
    }

    /// How much of a prompt each rank holds; where two sources tell of one, the deeper of both.
    pub(super) fn depths(&self, prompt: &[u64]) -> BTreeMap<(u64, u32), Depths> {
        let mut all = BTreeMap::<_, Depths>::new();
        for (worker, rank) in self.ranks() {
            let depths = [0, 1, 2, 3].map(|tier| {
                let is_here = |block: &&Block| block.copies[..=tier].iter().any(|&copies| copies > 0);
                let here: BTreeSet<&[u64]> =
                    rank.blocks.values().filter(is_here).map(|block| &block.path[..]).collect();
                let depth = (1..=prompt.len()).take_while(|&end| here.contains(&prompt[..end])).count();
                u32::try_from(depth).expect("short")
            });
            if depths[3] > 0 {
                let known = all.entry(worker).or_default();
                known.iter_mut().zip(depths).for_each(|(known, depth)| *known = depth.max(*known));
            }
        }
        all
    }
}

impl Source {
    fn read(value: &Value) -> Result<((u64, u32), Self), Refused> {
        let names = ["instance_id", "dp_rank", "next", "timestamp", "watermark", "degraded", "ranks"];
        let fields = Fields::of(value, &names, 7)?;
        let mut source = Self { degraded: fields.needed("degraded", boolean)?, ..Self::default() };
        let timestamps = (fields.optional("timestamp", float)?, fields.optional("watermark", float)?);
        let next = fields.optional("next", integer)?;
        source.position = next.map(|next| (next, timestamps.0, timestamps.1));
        for rank in fields.needed("ranks", list)? {
            let rank = Fields::of(rank, &["dp_rank", "has_full_block", "groups"], 3)?;
            let mut held =
                Rank { has_full_block: rank.needed("has_full_block", boolean)?, ..Rank::default() };
            for group in rank.needed("groups", list)? {
                let [group, kind] = list(group)? else { return Err(Refused) };
                let (kind, nothing) = variant(kind)?;
                if !["main", "other", "unknown"].contains(&kind) || !nothing.is_null() {
                    return Err(Refused);
                }
                held.groups.push((number(group)?, kind.to_owned()));
            }
            if source.ranks.insert(rank.needed("dp_rank", number)?, held).is_some() {
                return Err(Refused);
            }
        }
        Ok(((fields.needed("instance_id", integer)?, fields.needed("dp_rank", number)?), source))
    }

    /// Whether it is a source at all, and an index takes it.
    fn has_room(&self) -> bool {
        (1..=RANKS_MAX).contains(&self.ranks.len())
            && self.ranks.values().all(|rank| rank.groups.len() <= GROUPS_MAX)
    }
}

/// Adds an event's blocks, up to the first that follows none which is there.
fn add(sources: &mut BTreeMap<(u64, u32), Source>, event: &Value) -> Result<(), Refused> {
    let fields = Fields::of(event, &["worker_id", "storage_tier", "event", "source_rank"], 4)?;
    let (tier, nothing) = fields.or("storage_tier", variant, (TIERS[0], &Value::Null))?;
    let tier = TIERS.iter().position(|name| *name == tier).filter(|_| nothing.is_null()).ok_or(Refused)?;
    let event = Fields::of(fields.needed("event", Ok)?, &["event_id", "data", "dp_rank"], 2)?;
    event.needed("event_id", integer)?;
    let dp_rank = event.or("dp_rank", number, 0)?;
    let source_rank = fields.optional("source_rank", number)?.unwrap_or(dp_rank);
    let ("stored", stored) = event.needed("data", variant)? else { return Err(Refused) };
    let stored = Fields::of(stored, &["parent_hash", "blocks"], 2)?;
    let mut parent = stored.optional("parent_hash", integer)?;
    let blocks: Vec<Told> =
        stored.needed("blocks", list)?.iter().map(Told::read).collect::<Result<_, _>>()?;

    let source = sources.entry((fields.needed("worker_id", integer)?, source_rank)).or_default();
    for told in blocks {
        let known = source.ranks.get(&dp_rank).map(|rank| &rank.blocks);
        let find = |hash: u64| known.and_then(|known| known.get(&hash));
        let new = || {
            let before = parent.map_or(Some(&[][..]), |parent| find(parent).map(|block| &block.path[..]))?;
            Some(Block { path: [before, &[told.local_hash]].concat(), ..Block::default() })
        };
        let Some(mut block) = find(told.engine_hash).cloned().or_else(new) else {
            source.degraded = true;
            return Ok(());
        };
        if block.path.last() != Some(&told.local_hash) {
            return Err(Refused);
        }
        // Again and again, it is the same copies.
        block.copies[tier] = block.copies[tier].max(told.copies);
        block.salt = block.salt.or(told.salt);
        block.ambiguous |= told.ambiguous;
        source.ranks.entry(dp_rank).or_default().blocks.insert(told.engine_hash, block);
        parent = Some(told.engine_hash);
    }
    Ok(())
}

/// A block as an event tells of it.
struct Told {
    engine_hash: u64,
    local_hash: u64,
    copies: u32,
    salt: Option<u64>,
    ambiguous: bool,
}

impl Told {
    fn read(value: &Value) -> Result<Self, Refused> {
        let names = ["block_hash", "tokens_hash", "copies", "salt", "ambiguous"];
        let fields = Fields::of(value, &names, 4)?;
        Ok(Self {
            engine_hash: fields.needed("block_hash", integer)?,
            local_hash: fields.needed("tokens_hash", integer)?,
            copies: fields.optional("copies", number)?.unwrap_or(1),
            salt: fields.optional("salt", integer)?,
            ambiguous: fields.or("ambiguous", boolean, false)?,
        })
    }
}
