//! Per worker and rank: engine hash → ordinal of the block in its shard, and the copies at each tier.
//!
//! The engine names blocks by hashes of its own; only here are they translated, so shards need none of them.

use ahash::RandomState;

use super::names::{COPIES_MANY, Check, Name, Names, Place};
use super::ordinals::Ordinals;
use super::record::{Ordinal, shard_of};
use crate::hash::{SaltHash, chain_check};
use crate::ids::{EngineHash, LocalHash, Tier};
use crate::policy::{KnownBlocks, Namespace};
use crate::rare::Rare;

/// A block as its children and its shard know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) shard: usize,
    pub(super) ordinal: Ordinal,
    check: Check,
}

/// All that a source knows of a block that is held, but for where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) engine_hash: EngineHash,
    /// By tier.
    pub(crate) copies: [u32; 4],
    pub(crate) salt: Option<SaltHash>,
    pub(crate) is_ambiguous: bool,
}

/// A block that is held, by its source's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) known: Known,
    pub(crate) ordinal: Ordinal,
}

/// How a store of one block changed what the worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Another copy of what it held there already.
    None,
    /// The worker did not hold the block; its ordinal is new.
    New,
    /// It held it at another tier.
    Entered,
    /// The hash named another block before, which was held at the tiers marked. The block's ordinal is new.
    Replaced(Link, [bool; 4]),
}

/// The blocks of one worker and rank by engine hash.
#[derive(Debug)]
pub(crate) struct Chain {
    names: Names,
    /// By shard.
    ordinals: Vec<Ordinals>,
    /// Copies of those that have three or more at a tier.
    many: Rare<(EngineHash, Tier), u32>,
    /// Only blocks with a salt: hardly any source has them.
    salts: Rare<EngineHash, SaltHash>,
    /// Sum over `names` of tiers with copies.
    entries: usize,
    /// Stores are idempotent and the first removal is final.
    as_set: bool,
    /// Names there may be.
    blocks_max: usize,
    hasher: RandomState,
}

impl KnownBlocks for Chain {
    fn namespace(&self, engine_hash: EngineHash) -> Namespace {
        match self.names.get(engine_hash) {
            Some(name) if name.is_ambiguous() => Namespace::Ambiguous,
            Some(name) if name.is_salted() => {
                self.salts.get(&engine_hash).map_or(Namespace::Plain, |&salt| Namespace::Salted(salt))
            }
            _ => Namespace::Plain,
        }
    }
}

const fn link(name: Name) -> Link {
    Link { shard: name.shard(), ordinal: name.ordinal(), check: name.check() }
}

impl Chain {
    pub(crate) fn new(as_set: bool, shards: usize, hasher: &RandomState) -> Self {
        Self {
            names: Names::new(hasher),
            ordinals: (0..shards).map(|_| Ordinals::default()).collect(),
            many: Rare::new(hasher),
            salts: Rare::new(hasher),
            entries: 0,
            as_set,
            blocks_max: usize::MAX,
            hasher: hasher.clone(),
        }
    }

    /// Sets how many blocks it may know; more of them stay.
    pub(crate) const fn set_blocks_max(&mut self, blocks: usize) {
        self.blocks_max = blocks;
    }

    /// Blocks it knows.
    pub(crate) const fn blocks(&self) -> usize {
        self.names.len()
    }

    /// Asks for what is known of some hashes to be fetched.
    #[inline]
    pub(super) fn prefetch(&self, hashes: &[EngineHash]) {
        self.names.prefetch(hashes);
    }

    /// A known block.
    #[inline]
    pub(super) fn find(&self, engine_hash: EngineHash) -> Option<Link> {
        self.names.get(engine_hash).copied().map(link)
    }

    /// Notes one copy of a block placed from its tokens, after its parent. `None` if the block is new and there are as many
    /// as may be.
    #[inline]
    pub(super) fn store(
        &mut self,
        engine_hash: EngineHash,
        parent: Option<Link>,
        local_hash: LocalHash,
        at: (Tier, Option<SaltHash>),
    ) -> Option<(Link, Change)> {
        let (tier, salt) = at;
        let check = Check::new(chain_check(parent.map(|parent| parent.check.bits()), local_hash));
        let shard = parent.map_or_else(|| shard_of(local_hash, self.ordinals.len()), |parent| parent.shard);
        let place = self.names.find(engine_hash);
        if let Ok(place) = place
            && self.names.at(place).check() == check
        {
            return Some(self.add_copy(engine_hash, place, tier));
        }
        if place.is_err() && self.names.len() >= self.blocks_max {
            return None;
        }
        let ordinal = self.ordinals[shard].take();
        let mut fresh = Name::new(check, shard, ordinal);
        fresh.set_copies(tier, 1);
        if salt.is_some() {
            fresh.set_salted();
        }
        let place = match place {
            Ok(place) => place,
            Err(place) => {
                self.names.insert(place, fresh);
                self.entries += 1;
                if let Some(salt) = salt {
                    self.salts.insert(engine_hash, salt);
                }
                return Some((link(fresh), Change::New));
            }
        };
        let old = *self.names.at(place);
        let old_salt = if old.is_salted() { self.salts.get(&engine_hash).copied() } else { None };
        if old.is_ambiguous() || old_salt != salt {
            fresh.set_ambiguous();
        }
        self.names.at(place).replace_by(fresh);
        match salt {
            Some(salt) => self.salts.insert(engine_hash, salt),
            None => self.salts.remove(&engine_hash),
        }
        let held = Tier::ALL.map(|tier| old.copies(tier) > 0);
        self.entries = self.entries + 1 - held.iter().filter(|&&held| held).count();
        if !self.many.is_empty() {
            Tier::ALL.iter().for_each(|&tier| self.many.remove(&(engine_hash, tier)));
        }
        self.ordinals[old.shard()].free(old.ordinal());
        Some((link(fresh), Change::Replaced(link(old), held)))
    }

    /// Notes one more copy of a known block, whatever its tokens. `None` if it is unknown.
    #[inline]
    pub(super) fn store_known(&mut self, engine_hash: EngineHash, tier: Tier) -> Option<(Link, Change)> {
        let place = self.names.find(engine_hash).ok()?;
        Some(self.add_copy(engine_hash, place, tier))
    }

    #[inline]
    fn add_copy(&mut self, engine_hash: EngineHash, place: Place, tier: Tier) -> (Link, Change) {
        let name = self.names.at(place);
        let change = match name.copies(tier) {
            0 => {
                name.set_copies(tier, 1);
                self.entries += 1;
                Change::Entered
            }
            _ if self.as_set => Change::None,
            COPIES_MANY => {
                let copies = self.many.get_or_insert((engine_hash, tier), u32::from(COPIES_MANY));
                *copies = copies.saturating_add(1);
                Change::None
            }
            copies => {
                name.set_copies(tier, copies + 1);
                Change::None
            }
        };
        (link(*name), change)
    }

    /// Takes one copy away. Gives the block; whether that was the last copy at the tier, and whether the last of all. `None`
    /// if it is not known there.
    #[inline]
    pub(super) fn remove(&mut self, engine_hash: EngineHash, tier: Tier) -> Option<(Link, bool, bool)> {
        let place = self.names.find(engine_hash).ok()?;
        let name = self.names.at(place);
        let copies = name.copies(tier);
        if copies == 0 {
            return None;
        }
        if copies == COPIES_MANY
            && let Some(many) = self.many.get_mut(&(engine_hash, tier))
        {
            *many -= 1;
            if *many == u32::from(COPIES_MANY) {
                self.many.remove(&(engine_hash, tier));
            }
            return Some((link(*name), false, false));
        }
        name.set_copies(tier, copies - 1);
        let found = link(*name);
        if copies > 1 {
            return Some((found, false, false));
        }
        self.entries -= 1;
        if name.is_held() {
            return Some((found, true, false));
        }
        if name.is_salted() {
            self.salts.remove(&engine_hash);
        }
        self.names.remove(place);
        self.ordinals[found.shard].free(found.ordinal);
        Some((found, true, true))
    }

    /// Enters a block as another chain knows it. `None`, and nothing done, if its hash is known already.
    pub(super) fn load(
        &mut self,
        known: &Known,
        parent: Option<Link>,
        local_hash: LocalHash,
    ) -> Option<Link> {
        let engine_hash = known.engine_hash;
        let Err(place) = self.names.find(engine_hash) else { return None };
        let check = Check::new(chain_check(parent.map(|parent| parent.check.bits()), local_hash));
        let shard = parent.map_or_else(|| shard_of(local_hash, self.ordinals.len()), |parent| parent.shard);
        let mut name = Name::new(check, shard, self.ordinals[shard].take());
        for (tier, copies) in Tier::ALL.into_iter().zip(known.copies) {
            let copies = if self.as_set { copies.min(1) } else { copies };
            let kept = u8::try_from(copies).unwrap_or(COPIES_MANY).min(COPIES_MANY);
            name.set_copies(tier, kept);
            self.entries += usize::from(kept > 0);
            if copies > u32::from(COPIES_MANY) {
                self.many.insert((engine_hash, tier), copies);
            }
        }
        if let Some(salt) = known.salt {
            name.set_salted();
            self.salts.insert(engine_hash, salt);
        }
        if known.is_ambiguous {
            name.set_ambiguous();
        }
        self.names.insert(place, name);
        Some(link(name))
    }

    /// How stores count from now on.
    pub(crate) const fn set_as_set(&mut self, as_set: bool) {
        self.as_set = as_set;
    }

    /// Forgets everything, and gives the memory back.
    pub(crate) fn clear(&mut self) {
        let blocks_max = self.blocks_max;
        *self = Self { blocks_max, ..Self::new(self.as_set, self.ordinals.len(), &self.hasher) };
    }

    /// Live (tier, engine hash) pairs.
    pub(crate) const fn entries(&self) -> usize {
        self.entries
    }

    /// Every live (tier, engine hash) pair.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Tier, EngineHash)> {
        self.names.iter().flat_map(|(engine_hash, name)| {
            let held = Tier::ALL.into_iter().filter(move |&tier| name.copies(tier) > 0);
            held.map(move |tier| (tier, engine_hash))
        })
    }

    /// Every block that is held in a shard.
    pub(crate) fn named(&self, shard: usize) -> impl Iterator<Item = Named> {
        let here = self.names.iter().filter(move |(_, name)| name.shard() == shard);
        here.map(|(engine_hash, name)| Named {
            known: self.known(engine_hash, name),
            ordinal: name.ordinal(),
        })
    }

    fn known(&self, engine_hash: EngineHash, name: Name) -> Known {
        let copies = |tier| match name.copies(tier) {
            COPIES_MANY => self.many.get(&(engine_hash, tier)).copied().unwrap_or(u32::from(COPIES_MANY)),
            copies => u32::from(copies),
        };
        Known {
            engine_hash,
            copies: Tier::ALL.map(copies),
            salt: if name.is_salted() { self.salts.get(&engine_hash).copied() } else { None },
            is_ambiguous: name.is_ambiguous(),
        }
    }

    /// Bytes the maps take.
    pub(crate) fn bytes(&self) -> usize {
        self.names.bytes()
            + self.ordinals.iter().map(Ordinals::bytes).sum::<usize>()
            + self.salts.bytes()
            + self.many.bytes()
    }
}
