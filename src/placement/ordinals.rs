//! The numbers by which one slot's blocks are known in one shard: the smallest free one first, so that tables by number stay
//! short.

use super::record::Ordinal;

/// Words of 64 ordinals to an entry of `full`.
const WORDS: usize = 64;

/// Words that are not worth giving back.
const KEPT: usize = 64;

/// Which ordinals are taken.
#[derive(Debug, Default)]
pub(super) struct Ordinals {
    /// A bit each.
    taken: Vec<u64>,
    /// A bit for each word of `taken` that has no free ordinal.
    full: Vec<u64>,
    /// Words of `full` before this one have no free ordinal.
    first: usize,
}

impl Ordinals {
    /// Takes the smallest free ordinal; `NONE` if all are taken.
    #[inline]
    pub(super) fn take(&mut self) -> Ordinal {
        let full = self.full.get(self.first..).unwrap_or_default();
        let first = self.first + full.iter().position(|&word| word != u64::MAX).unwrap_or(full.len());
        let word = first * WORDS + self.full.get(first).map_or(0, |full| full.trailing_ones() as usize);
        let Ok(number) = u32::try_from(word * 64 + 63) else { return Ordinal::NONE };
        self.first = first;
        if word == self.taken.len() {
            self.taken.push(0);
            self.full.resize(self.taken.len().div_ceil(WORDS), 0);
        }
        let bit = self.taken[word].trailing_ones();
        self.taken[word] |= 1 << bit;
        if self.taken[word] == u64::MAX {
            self.full[first] |= 1 << (word % WORDS);
        }
        Ordinal(number - 63 + bit)
    }

    /// Gives one back.
    pub(super) fn free(&mut self, ordinal: Ordinal) {
        let (word, bit) = (ordinal.0 as usize / 64, ordinal.0 % 64);
        let Some(taken) = self.taken.get_mut(word) else { return };
        *taken &= !(1 << bit);
        let is_empty = *taken == 0;
        self.full[word / WORDS] &= !(1 << (word % WORDS));
        self.first = self.first.min(word / WORDS);
        if is_empty && word + 1 == self.taken.len() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        while self.taken.last() == Some(&0) {
            self.taken.pop();
        }
        self.full.truncate(self.taken.len().div_ceil(WORDS));
        self.first = self.first.min(self.full.len());
        if self.taken.capacity() > KEPT && self.taken.len() < self.taken.capacity() / 4 {
            self.taken.shrink_to(self.taken.len() * 2);
            self.full.shrink_to(self.full.len() * 2);
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        (self.taken.capacity() + self.full.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_ordinal_is_taken_and_memory_comes_back() {
        let mut ordinals = Ordinals::default();
        let all: Vec<_> = (0..10_000).map(|_| ordinals.take().0).collect();
        assert_eq!(all, (0..10_000).collect::<Vec<_>>());
        for free in [9_000, 63, 4097] {
            ordinals.free(Ordinal(free));
        }
        assert_eq!([(); 4].map(|()| ordinals.take().0), [63, 4097, 9_000, 10_000]);
        (0..=10_000).for_each(|ordinal| ordinals.free(Ordinal(ordinal)));
        assert_eq!(ordinals.take(), Ordinal(0));
        assert!(ordinals.bytes() < 1000);
    }
}
