//! A map of what few blocks have: small again whenever little is left in it, however much there was. What a bound on blocks allows
//! may come and go any number of times; without this the room for the most there ever was would stay.

use std::collections::HashMap;
use std::hash::Hash;

use ahash::RandomState;

/// Entries for which room may stay.
const FEW: usize = 64;

#[derive(Debug)]
pub(crate) struct Rare<K, V> {
    map: HashMap<K, V, RandomState>,
    /// The most entries since room was given back: a map's own capacity leaves out what was removed.
    most: usize,
}

impl<K: Eq + Hash, V> Rare<K, V> {
    pub(crate) fn new(hasher: &RandomState) -> Self {
        Self { map: HashMap::with_hasher(hasher.clone()), most: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.map.insert(key, value);
        self.most = self.most.max(self.map.len());
    }

    /// What is there, or else what it begins with.
    pub(crate) fn get_or_insert(&mut self, key: K, first: V) -> &mut V {
        self.most = self.most.max(self.map.len() + 1);
        self.map.entry(key).or_insert(first)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: &K) {
        if self.map.remove(key).is_some() && self.most > FEW && self.map.len() < self.most / 8 {
            // Costs no more than the removals before it.
            self.most = self.map.len();
            self.map.shrink_to(2 * self.most);
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.map.values()
    }

    /// Bytes taken: buckets, of which an eighth stays free, and a control byte each.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.most.max(self.map.capacity());
        (entries + entries / 7).next_power_of_two() * (size_of::<(K, V)>() + 1) * usize::from(entries > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_goes_with_what_is_removed() {
        let mut map = Rare::new(&RandomState::new());
        assert_eq!(map.bytes(), 0);
        for round in 0..3_u64 {
            (0..100_000).for_each(|key| map.insert(key + round, key));
            let full = map.bytes();
            assert!(full >= 100_000 * size_of::<(u64, u64)>());
            (1..100_000).for_each(|key| map.remove(&(key + round)));
            assert_eq!(map.get(&round), Some(&0));
            assert!(map.bytes() * 200 < full && map.map.capacity() < 200, "{} of {full}", map.bytes());
            map.remove(&round);
            assert!(map.is_empty());
        }
    }
}
