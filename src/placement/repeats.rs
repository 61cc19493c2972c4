//! Step 7: whether the hashes of a store can be a chain. Finds repeated ones without allocating once grown.

use crate::ids::EngineHash;
use crate::policy::Reason;
use crate::wire::Body;

/// An open-addressed set that is emptied by counting up.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Power of two, at least twice the hashes of the longest event so far.
    places: Vec<(EngineHash, u32)>,
    /// Places marked otherwise are empty.
    round: u32,
    /// One bit per place of a hash, all 0 between events: tells most lists apart at a third of the set's cost.
    bits: Vec<u64>,
}

/// Bits, and up to how many hashes they are asked first: at 128 they cry wolf in one event of eight.
const BITS: usize = 1 << 16;
const BITS_HASHES_MAX: usize = 128;

/// Places of the largest set; of more hashes than half as many, a sorted copy is looked through.
const PLACES_MAX: usize = 1 << 21;

/// Up to this many hashes, comparing each with each is faster.
const FEW: usize = 8;

/// A publisher that aims at one place gets a sort instead of a long walk.
const WALK_MAX: usize = 64;

impl Repeats {
    /// Refuses stores without hashes, with repeated ones, or with more tokens than they account for.
    #[inline]
    pub(super) fn check(&mut self, body: &Body<'_>, parent: Option<EngineHash>) -> Result<(), Reason> {
        let hashes = body.block_hashes;
        if hashes.is_empty() {
            return Err(Reason::NoHashes);
        }
        if self.find(hashes, parent) {
            return Err(Reason::SelfReferencing);
        }
        if body.token_count() > hashes.len().saturating_mul(body.block_size as usize) {
            return Err(Reason::ExcessTokens);
        }
        Ok(())
    }

    /// Whether a hash comes twice, or is the parent.
    #[inline]
    fn find(&mut self, hashes: &[EngineHash], parent: Option<EngineHash>) -> bool {
        // The most common store there is; 2 % of its instructions.
        if let [hash] = hashes {
            return parent == Some(*hash);
        }
        self.find_among(hashes, parent)
    }

    fn find_among(&mut self, hashes: &[EngineHash], parent: Option<EngineHash>) -> bool {
        if parent.is_some_and(|parent| hashes.contains(&parent)) {
            return true;
        }
        if hashes.len() <= FEW {
            return (1..hashes.len()).any(|at| hashes[..at].contains(&hashes[at]));
        }
        if hashes.len() <= BITS_HASHES_MAX && !self.may_repeat(hashes) {
            return false;
        }
        // The set takes up to 64 bytes for each.
        if hashes.len() > PLACES_MAX / 2 {
            return find_sorted(hashes);
        }
        self.start(hashes.len());
        let mask = self.places.len() - 1;
        for &hash in hashes {
            let mut at = spread(hash) & mask;
            let mut steps = 0;
            while self.places[at].1 == self.round {
                if self.places[at].0 == hash {
                    return true;
                }
                steps += 1;
                if steps > WALK_MAX {
                    return find_sorted(hashes);
                }
                at = (at + 1) & mask;
            }
            self.places[at] = (hash, self.round);
        }
        false
    }

    /// Whether two hashes share a bit; if none do, none are equal.
    fn may_repeat(&mut self, hashes: &[EngineHash]) -> bool {
        self.bits.resize(BITS / 64, 0);
        let place = |hash: EngineHash| {
            let bit = spread(hash) % BITS;
            (bit / 64, 1_u64 << (bit % 64))
        };
        let mut shared = false;
        for &hash in hashes {
            let (word, bit) = place(hash);
            shared |= self.bits[word] & bit != 0;
            self.bits[word] |= bit;
        }
        for &hash in hashes {
            self.bits[place(hash).0] = 0;
        }
        shared
    }

    fn start(&mut self, hashes: usize) {
        let needed = (hashes * 2).next_power_of_two();
        self.round = self.round.wrapping_add(1);
        if self.places.len() < needed || self.round == 0 {
            self.places.clear();
            self.places.resize(needed, (EngineHash(0), 0));
            self.round = 1;
        }
    }
}

/// Fibonacci hashing: engine hashes may be any numbers, and a small mask must not see only their low bits.
const fn spread(hash: EngineHash) -> usize {
    (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

#[cold]
fn find_sorted(hashes: &[EngineHash]) -> bool {
    let mut sorted = hashes.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(values: impl IntoIterator<Item = u64>) -> Vec<EngineHash> {
        values.into_iter().map(EngineHash).collect()
    }

    #[test]
    fn repeats_are_found_at_any_length_and_place() {
        let mut repeats = Repeats::default();
        for length in [1, 2, 7, 8, 9, 64, 1000] {
            let distinct = hashes((0..length).map(|i| i * 0x1_0000_0001));
            assert!(!repeats.find(&distinct, None), "{length}");
            for at in [1, length / 2, length - 1].into_iter().filter(|&at| at > 0 && at < length) {
                let mut repeated = distinct.clone();
                repeated[usize::try_from(at).expect("small")] = distinct[0];
                assert!(repeats.find(&repeated, None), "{length} {at}");
            }
            assert!(repeats.find(&distinct, distinct.last().copied()));
        }
    }

    #[test]
    fn hashes_aimed_at_one_place_are_still_judged_right() {
        let inverse: u64 = 0xf1de_83e1_9937_733d; // of the Fibonacci constant, modulo 2^64
        assert_eq!(inverse.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1);
        let aimed = hashes((0..500).map(|i: u64| i.wrapping_mul(inverse)));
        assert!(!Repeats::default().find(&aimed, None));
        let mut repeated = aimed;
        repeated.push(repeated[3]);
        assert!(Repeats::default().find(&repeated, None));
    }
}
