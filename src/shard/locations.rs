//! Where the blocks of one slot lie: ordinal → page and place in it.

use super::memory::Line;
use crate::placement::Ordinal;

/// A block's page and its place there, in 4 bytes. Pages take pairs of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Location(u32);

impl Location {
    pub(super) const fn new(page: Line, within: u32) -> Self {
        Self(page.0 << 3 | within)
    }

    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    pub(super) const fn page(self) -> (Line, u32) {
        (Line(self.0 >> 4 << 1), self.0 & 15)
    }
}

/// Ordinals to a chunk.
const CHUNK: usize = 256;

/// The locations of one slot. Sources give the smallest ordinals first, so chunks are dense.
#[derive(Debug, Default)]
pub(super) struct Locations {
    chunks: Vec<Option<Box<Chunk>>>,
    /// Chunks that are there.
    used: usize,
    /// The slot has held something below the device: its four depths are not one any more.
    pub(super) is_tiered: bool,
}

#[derive(Debug)]
struct Chunk {
    /// 0 where there is none: page 0 holds a header.
    locations: [u32; CHUNK],
    live: u32,
}

impl Locations {
    pub(super) fn get(&self, ordinal: Ordinal) -> Option<Location> {
        let chunk = self.chunks.get(ordinal.0 as usize / CHUNK)?.as_ref()?;
        Some(chunk.locations[ordinal.0 as usize % CHUNK]).filter(|&location| location > 0).map(Location)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ordinal, Location)> {
        let chunks =
            self.chunks.iter().enumerate().filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        chunks.flat_map(|(number, chunk)| {
            let used = chunk.locations.iter().enumerate().filter(|&(_, &location)| location > 0);
            used.map(move |(at, &location)| (Ordinal((number * CHUNK + at) as u32), Location(location)))
        })
    }

    pub(super) fn set(&mut self, ordinal: Ordinal, location: Location) {
        let number = ordinal.0 as usize / CHUNK;
        if self.chunks.len() <= number {
            self.chunks.resize_with(number + 1, || None);
        }
        let used = &mut self.used;
        let chunk = self.chunks[number].get_or_insert_with(|| {
            *used += 1;
            Box::new(Chunk { locations: [0; CHUNK], live: 0 })
        });
        let place = &mut chunk.locations[ordinal.0 as usize % CHUNK];
        chunk.live += u32::from(*place == 0);
        *place = location.0;
    }

    pub(super) fn remove(&mut self, ordinal: Ordinal) {
        let number = ordinal.0 as usize / CHUNK;
        let Some(Some(chunk)) = self.chunks.get_mut(number) else { return };
        let place = &mut chunk.locations[ordinal.0 as usize % CHUNK];
        chunk.live -= u32::from(*place > 0);
        *place = 0;
        if chunk.live == 0 {
            self.drop_chunk(number);
        }
    }

    /// Takes some location out, the last first; `None` when there is none left.
    pub(super) fn pop(&mut self) -> Option<Location> {
        let number = self.chunks.len().checked_sub(1)?;
        let chunk = self.chunks[number].as_mut()?;
        let at = chunk.locations.iter().rposition(|&location| location > 0)?;
        let location = std::mem::take(&mut chunk.locations[at]);
        chunk.live -= 1;
        if chunk.live == 0 {
            self.drop_chunk(number);
        }
        Some(Location(location))
    }

    /// Drops an empty chunk, and the list's end if it is bare.
    fn drop_chunk(&mut self, number: usize) {
        self.chunks[number] = None;
        self.used -= 1;
        while matches!(self.chunks.last(), Some(None)) {
            self.chunks.pop();
        }
        if self.chunks.len() <= self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Option<Box<Chunk>>>() + self.used * size_of::<Chunk>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_come_and_go_and_leave_nothing() {
        let mut locations = Locations::default();
        let (one, other) = (Location::new(Line(2), 14), Location::new(Line(u32::MAX >> 4 & !1), 3));
        locations.set(Ordinal(7), one);
        locations.set(Ordinal(100_000), other);
        assert_eq!(locations.get(Ordinal(7)), Some(one));
        assert_eq!(one.page(), (Line(2), 14));
        assert_eq!(other.page(), (Line(u32::MAX >> 4 & !1), 3));
        assert_eq!(locations.pop(), Some(other));
        assert_eq!(locations.get(Ordinal(100_000)), None);
        locations.remove(Ordinal(7));
        assert_eq!(locations.pop(), None);
        assert_eq!(locations.bytes(), 0);
    }
}
