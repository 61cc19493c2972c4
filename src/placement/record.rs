//! The 16-byte record: all that a shard learns of a block.

use crate::ids::{PrefixHash, Tier};

/// A worker (one rank) inside the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(u16);

/// One slot at one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(u16);

impl Slot {
    /// Slots of an index; lanes must fit 16 bits.
    pub(crate) const COUNT: usize = 4096;

    /// The slot of this number, if there is one.
    pub(crate) fn new(index: usize) -> Option<Self> {
        u16::try_from(index).ok().filter(|_| index < Self::COUNT).map(Self)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn lane(self, tier: Tier) -> Lane {
        Lane(self.0 * 4 + tier as u16)
    }
}

impl Lane {
    pub(crate) const fn slot(self) -> Slot {
        Slot(self.0 / 4)
    }

    /// The tier's bit among the four of its slot.
    pub(crate) const fn tier_bit(self) -> u8 {
        1 << (self.0 % 4)
    }
}

/// What happened to a block on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// One more engine hash names it there.
    Store,
    /// One fewer does.
    Remove,
    /// Every block of the lane's slot is gone; the prefix hash means nothing.
    Clear,
}

/// One change, routed to a shard by its prefix hash (a clear goes to all).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) prefix_hash: PrefixHash,
    pub(crate) lane: Lane,
    pub(crate) op: Op,
}

const _: () = assert!(size_of::<Record>() == 16);
const _: () = assert!(Slot::COUNT * 4 <= 1 << 16);
