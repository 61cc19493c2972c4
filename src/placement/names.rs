//! Engine hash → what is known of the block, in 20 bytes: a table sorted by a keyed mix of the hash.
//!
//! A name stands at its share of the table (mix ÷ 2^64 × places) or after it, in order of the mix. So a search ends early,
//! removing leaves no marks, and growing is one pass from the start to the end, by a fifth at a time: the table is never much
//! emptier than it need be. The mix can be undone, so the engine hash itself is not kept.

use ahash::RandomState;

use crate::ids::{EngineHash, Tier};

use super::record::Ordinal;

/// What is known of a block by its engine hash. Packed by hand: the mix, the ordinal, then 48 bits that tell one prefix from
/// another under the same hash, the shard, flags, and two bits of copies for each tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name([u32; 5]);

/// Copies at a tier that are counted in the name; at this number they are counted elsewhere.
pub(super) const COPIES_MANY: u8 = 3;
const SALTED: u32 = 1 << 8;
const AMBIGUOUS: u32 = 1 << 9;
const SHARD_SHIFT: u32 = 10;

/// 48 bits in place of a prefix: which block, after which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Check(u64);

impl Check {
    /// Of 64 uniform bits.
    pub(super) const fn new(bits: u64) -> Self {
        Self(bits >> 16)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

impl Name {
    pub(super) const fn new(check: Check, shard: usize, ordinal: Ordinal) -> Self {
        let low = (check.0 as u32) << 16 | (shard as u32) << SHARD_SHIFT;
        Self([0, 0, ordinal.0, (check.0 >> 16) as u32, low])
    }

    const fn mix(self) -> u64 {
        (self.0[0] as u64) << 32 | self.0[1] as u64
    }

    const fn with_mix(mut self, mix: u64) -> Self {
        self.0[0] = (mix >> 32) as u32;
        self.0[1] = mix as u32;
        self
    }

    /// Becomes another name of the same hash.
    pub(super) const fn replace_by(&mut self, name: Self) {
        *self = name.with_mix(self.mix());
    }

    /// Live names have a copy somewhere.
    const fn is_free(self) -> bool {
        self.0[4] & 0xff == 0
    }

    pub(super) const fn ordinal(self) -> Ordinal {
        Ordinal(self.0[2])
    }

    pub(super) const fn check(self) -> Check {
        Check((self.0[3] as u64) << 16 | (self.0[4] >> 16) as u64)
    }

    pub(super) const fn shard(self) -> usize {
        (self.0[4] >> SHARD_SHIFT & 63) as usize
    }

    pub(super) const fn copies(self, tier: Tier) -> u8 {
        (self.0[4] >> (2 * tier as u32) & 3) as u8
    }

    pub(super) const fn set_copies(&mut self, tier: Tier, copies: u8) {
        let shift = 2 * tier as u32;
        self.0[4] = self.0[4] & !(3 << shift) | (copies as u32 & 3) << shift;
    }

    pub(super) const fn is_held(self) -> bool {
        !self.is_free()
    }

    pub(super) const fn is_salted(self) -> bool {
        self.0[4] & SALTED > 0
    }

    pub(super) const fn set_salted(&mut self) {
        self.0[4] |= SALTED;
    }

    pub(super) const fn is_ambiguous(self) -> bool {
        self.0[4] & AMBIGUOUS > 0
    }

    pub(super) const fn set_ambiguous(&mut self) {
        self.0[4] |= AMBIGUOUS;
    }
}

/// A place of a table, good until the table changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    mix: u64,
    at: usize,
}

/// The names of one worker and rank.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<Name>,
    /// Shares; the table is longer, for names that stand after theirs.
    places: usize,
    live: usize,
    keys: [u64; 2],
}

/// Places after the last share.
const TAIL: usize = 32;
const PLACES_MIN: usize = 16;
/// Tables up to this are not worth shrinking.
const PLACES_KEPT: usize = 256;

impl Names {
    pub(super) fn new(hasher: &RandomState) -> Self {
        // Without the keys nobody can aim at one place.
        let keys = [hasher.hash_one(0_u64), hasher.hash_one(1_u64) | 1];
        Self { names: Vec::new(), places: 0, live: 0, keys }
    }

    #[inline]
    fn mix(&self, hash: EngineHash) -> u64 {
        let mix = (hash.0 ^ self.keys[0]).wrapping_mul(self.keys[1]);
        (mix ^ mix >> 32).wrapping_mul(self.keys[1])
    }

    fn engine_hash(&self, mix: u64) -> EngineHash {
        let [key, factor] = self.keys;
        // Newton: each step doubles the bits that are right, from 3.
        let inverse = (0..5).fold(factor, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)))
        });
        let mix = mix.wrapping_mul(inverse);
        EngineHash((mix ^ mix >> 32).wrapping_mul(inverse) ^ key)
    }

    #[inline]
    const fn share(&self, mix: u64) -> usize {
        ((mix as u128 * self.places as u128) >> 64) as usize
    }

    /// Where the hash stands, or would.
    #[inline]
    fn search(&self, mix: u64) -> Result<usize, usize> {
        let mut at = self.share(mix);
        while let Some(name) = self.names.get(at).filter(|name| !name.is_free() && name.mix() <= mix) {
            if name.mix() == mix {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    /// Asks for the places of some hashes to be fetched.
    #[inline]
    pub(super) fn prefetch(&self, hashes: &[EngineHash]) {
        for &hash in hashes {
            if let Some(name) = self.names.get(self.share(self.mix(hash))) {
                crate::prefetch::prefetch(name);
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, hash: EngineHash) -> Option<&Name> {
        self.find(hash).ok().map(|place| &self.names[place.at])
    }

    /// Where a name stands; or, as an error, where it would.
    #[inline]
    pub(super) fn find(&self, hash: EngineHash) -> Result<Place, Place> {
        let mix = self.mix(hash);
        match self.search(mix) {
            Ok(at) => Ok(Place { mix, at }),
            Err(at) => Err(Place { mix, at }),
        }
    }

    /// The name at a place that was found just now.
    #[inline]
    pub(super) fn at(&mut self, place: Place) -> &mut Name {
        &mut self.names[place.at]
    }

    /// Enters a name where it was not found just now.
    #[inline]
    pub(super) fn insert(&mut self, place: Place, name: Name) {
        let Place { mix, mut at } = place;
        if self.live >= self.places * 17 / 20 {
            at = self.grow(mix);
        }
        loop {
            let rest = self.names.get(at..).unwrap_or_default();
            if let Some(free) = rest.iter().position(|name| name.is_free()) {
                self.names.copy_within(at..at + free, at + 1);
                self.names[at] = name.with_mix(mix);
                self.live += 1;
                return;
            }
            at = self.grow(mix);
        }
    }

    /// Grows by a fifth; gives where a mix now stands or would.
    #[cold]
    fn grow(&mut self, mix: u64) -> usize {
        self.resize(self.places * 6 / 5);
        let (Ok(at) | Err(at)) = self.search(mix);
        at
    }

    /// Takes out the name at a place that was found just now.
    #[inline]
    pub(super) fn remove(&mut self, place: Place) {
        let at = place.at;
        let stays = |&(at, name): &(usize, &Name)| name.is_free() || self.share(name.mix()) == at;
        let after = (at + 1..).zip(&self.names[at + 1..]).find(stays);
        let end = after.map_or(self.names.len(), |(at, _)| at);
        self.names.copy_within(at + 1..end, at);
        self.names[end - 1] = Name::default();
        self.live -= 1;
        if self.live < self.places / 2 && self.places > PLACES_KEPT {
            self.resize((self.live * 4 / 3).max(PLACES_KEPT));
        }
    }

    /// Moves all names to a table of another size.
    #[cold]
    fn resize(&mut self, places: usize) {
        let places = places.max(PLACES_MIN);
        self.places = places;
        let mut names = Vec::with_capacity(places + TAIL);
        for &name in self.names.iter().filter(|name| !name.is_free()) {
            let share = self.share(name.mix());
            if names.len() < share {
                names.resize(share, Name::default());
            }
            names.push(name);
        }
        names.resize((places + TAIL).max(names.len() + 1), Name::default());
        self.names = names;
    }

    pub(super) const fn len(&self) -> usize {
        self.live
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EngineHash, Name)> {
        let live = self.names.iter().filter(|name| !name.is_free());
        live.map(|&name| (self.engine_hash(name.mix()), name))
    }

    pub(super) const fn bytes(&self) -> usize {
        self.names.capacity() * size_of::<Name>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn name(number: u32) -> Name {
        let mut name = Name::new(Check::new(u64::from(number) << 30), number as usize % 64, Ordinal(number));
        name.set_copies(Tier::Disk, 1);
        name
    }

    #[test]
    fn names_are_found_like_in_a_map_and_memory_comes_back() {
        let mut names = Names::new(&RandomState::with_seed(7));
        let mut map = HashMap::new();
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state >> 33
        };
        // Under Miri, which takes a thousand times as long, less of everything.
        let size = if cfg!(miri) { 100 } else { 1 };
        for round in 0..200_000_u32 / size {
            // Grows for a while, then shrinks.
            let hash = EngineHash(next() % (20_000 / u64::from(size)));
            let grows = round / (50_000 / size) % 2 == 0;
            match names.find(hash) {
                Err(place) if grows => {
                    names.insert(place, name(round));
                    map.insert(hash, round);
                }
                Ok(place) if !grows || next() % 3 == 0 => {
                    names.remove(place);
                    map.remove(&hash);
                }
                _ => {}
            }
            let found = names.get(hash).map(|name| (name.ordinal().0, name.shard(), name.check()));
            let right = map.get(&hash).map(|&number| (number, number as usize % 64, name(number).check()));
            assert_eq!(found, right);
        }
        assert_eq!(names.iter().map(|(hash, name)| (hash, name.ordinal().0)).collect::<HashMap<_, _>>(), map);
        map.keys().for_each(|&hash| names.remove(names.find(hash).expect("known")));
        assert_eq!(names.len(), 0);
        assert!(names.bytes() <= (PLACES_KEPT + TAIL) * size_of::<Name>());
    }

    #[test]
    fn a_name_keeps_its_parts_apart() {
        let mut name = Name::new(Check::new(u64::MAX), 63, Ordinal(u32::MAX));
        name.set_copies(Tier::External, 2);
        name.set_copies(Tier::Device, 3);
        name.set_copies(Tier::Device, 1);
        assert_eq!(Tier::ALL.map(|tier| name.copies(tier)), [1, 0, 0, 2]);
        assert_eq!(
            (name.shard(), name.ordinal(), name.check()),
            (63, Ordinal(u32::MAX), Check::new(u64::MAX))
        );
        assert!(!name.is_salted() && !name.is_ambiguous());
        name.set_salted();
        assert!(name.is_salted() && !name.is_ambiguous());
    }
}
