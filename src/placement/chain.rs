//! Per worker and rank: engine hash → prefix hash and the copies at each tier.
//!
//! The engine names blocks by hashes of its own; only here are they translated, so shards need none of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ahash::RandomState;

use crate::hash::SaltHash;
use crate::ids::{EngineHash, PrefixHash, Tier};
use crate::policy::{KnownBlocks, Namespace};

/// What is known of a block by its engine hash.
#[derive(Clone, Copy, Debug)]
struct Known {
    prefix_hash: PrefixHash,
    /// By tier; at least one is not 0. They saturate: a block with 65,535 copies at one tier may leave it early.
    copies: [u16; 4],
    /// Its salt is in `salts`.
    salted: bool,
    /// Placed under more than one salt since it entered.
    ambiguous: bool,
}

/// How a store of one block changed what the worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Another copy of what it held there already.
    None,
    /// The block is new at that tier.
    Entered,
    /// It also replaced another prefix, which was held at the tiers marked.
    Replaced(PrefixHash, [bool; 4]),
}

/// The blocks of one worker and rank by engine hash.
#[derive(Debug)]
pub(crate) struct Chain {
    blocks: HashMap<EngineHash, Known, RandomState>,
    /// Only blocks with a salt: hardly any source has them.
    salts: HashMap<EngineHash, SaltHash, RandomState>,
    /// Sum over `blocks` of tiers with copies.
    entries: usize,
    /// Stores are idempotent and the first removal is final.
    as_set: bool,
}

/// Maps smaller than this are not worth shrinking.
const SHRINK_FROM: usize = 4096;

impl KnownBlocks for Chain {
    fn namespace(&self, engine_hash: EngineHash) -> Namespace {
        match self.blocks.get(&engine_hash) {
            Some(known) if known.ambiguous => Namespace::Ambiguous,
            Some(known) if known.salted => {
                self.salts.get(&engine_hash).map_or(Namespace::Plain, |&salt| Namespace::Salted(salt))
            }
            _ => Namespace::Plain,
        }
    }
}

impl Chain {
    pub(crate) fn new(as_set: bool, hasher: &RandomState) -> Self {
        Self {
            blocks: HashMap::with_hasher(hasher.clone()),
            salts: HashMap::with_hasher(hasher.clone()),
            entries: 0,
            as_set,
        }
    }

    /// The prefix hash a block is known by.
    pub(super) fn prefix_hash(&self, engine_hash: EngineHash) -> Option<PrefixHash> {
        self.blocks.get(&engine_hash).map(|known| known.prefix_hash)
    }

    /// Notes one copy of a block placed from its tokens.
    pub(super) fn store(
        &mut self,
        engine_hash: EngineHash,
        prefix_hash: PrefixHash,
        salt: Option<SaltHash>,
        tier: Tier,
    ) -> Change {
        let mut fresh = Known { prefix_hash, copies: [0; 4], salted: salt.is_some(), ambiguous: false };
        fresh.copies[tier.index()] = 1;
        let known = match self.blocks.entry(engine_hash) {
            Entry::Vacant(place) => {
                place.insert(fresh);
                self.entries += 1;
                if let Some(salt) = salt {
                    self.salts.insert(engine_hash, salt);
                }
                return Change::Entered;
            }
            Entry::Occupied(known) if known.get().prefix_hash == prefix_hash => {
                return Self::add_to(known.into_mut(), tier, self.as_set, &mut self.entries);
            }
            Entry::Occupied(known) => known.into_mut(),
        };
        let old_salt = if known.salted { self.salts.get(&engine_hash).copied() } else { None };
        fresh.ambiguous = known.ambiguous || old_salt != salt;
        let old = std::mem::replace(known, fresh);
        match salt {
            Some(salt) => self.salts.insert(engine_hash, salt),
            None => self.salts.remove(&engine_hash),
        };
        let held = old.copies.map(|copies| copies > 0);
        self.entries = self.entries + 1 - held.iter().filter(|&&held| held).count();
        Change::Replaced(old.prefix_hash, held)
    }

    /// Notes one more copy of a known block, whatever its tokens. Gives its prefix hash; `None` if it is unknown.
    pub(super) fn store_known(
        &mut self,
        engine_hash: EngineHash,
        tier: Tier,
    ) -> Option<(PrefixHash, Change)> {
        let known = self.blocks.get_mut(&engine_hash)?;
        let prefix_hash = known.prefix_hash;
        Some((prefix_hash, Self::add_to(known, tier, self.as_set, &mut self.entries)))
    }

    fn add_to(known: &mut Known, tier: Tier, as_set: bool, entries: &mut usize) -> Change {
        let copies = &mut known.copies[tier.index()];
        if *copies == 0 {
            *copies = 1;
            *entries += 1;
            return Change::Entered;
        }
        if !as_set {
            *copies = copies.saturating_add(1);
        }
        Change::None
    }

    /// Takes one copy away. Gives the block's prefix hash and whether that was the last copy at the tier; `None` if
    /// it is not known there.
    pub(super) fn remove(&mut self, engine_hash: EngineHash, tier: Tier) -> Option<(PrefixHash, bool)> {
        let known = self.blocks.get_mut(&engine_hash)?;
        let prefix_hash = known.prefix_hash;
        let copies = &mut known.copies[tier.index()];
        *copies = match *copies {
            0 => return None,
            copies => copies - 1,
        };
        if *copies > 0 {
            return Some((prefix_hash, false));
        }
        self.entries -= 1;
        if known.copies == [0; 4] {
            if known.salted {
                self.salts.remove(&engine_hash);
            }
            self.blocks.remove(&engine_hash);
            self.give_back();
        }
        Some((prefix_hash, true))
    }

    /// Mass eviction gives memory back; the distance between limits keeps a steady size from resizing for ever.
    fn give_back(&mut self) {
        shrink(&mut self.blocks);
        shrink(&mut self.salts);
    }

    /// Forgets everything, and gives the memory back.
    pub(super) fn clear(&mut self) {
        self.blocks = HashMap::with_hasher(self.blocks.hasher().clone());
        self.salts = HashMap::with_hasher(self.salts.hasher().clone());
        self.entries = 0;
    }

    /// Live (tier, engine hash) pairs.
    pub(crate) const fn entries(&self) -> usize {
        self.entries
    }

    /// Every live (tier, engine hash) pair.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Tier, EngineHash)> {
        self.blocks.iter().flat_map(|(&engine_hash, known)| {
            let held = known.copies;
            Tier::ALL
                .into_iter()
                .filter(move |tier| held[tier.index()] > 0)
                .map(move |tier| (tier, engine_hash))
        })
    }

    /// Bytes the maps take: buckets and a control byte each.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * (size_of::<(EngineHash, Known)>() + 1)
            + self.salts.capacity() * (size_of::<(EngineHash, SaltHash)>() + 1)
    }
}

fn shrink<V>(map: &mut HashMap<EngineHash, V, RandomState>) {
    if map.capacity() > SHRINK_FROM && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}
