//! The 16-byte record: all that a shard learns of a change.

use crate::ids::{LocalHash, Tier};

/// A worker (one rank) inside the index. After a clear a worker goes on in another slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(u16);

/// One slot at one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane(u32);

/// A block of one slot in one shard, as the source numbers it. Numbers of removed blocks are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ordinal(pub(crate) u32);

/// Where a block lies in its shard; places are numbers that mean something there alone. Without an ordinal it is not held, but
/// leads to one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) ordinal: Ordinal,
    pub(crate) at: u32,
    /// The place of the block before it; `None` at the start of a prompt.
    pub(crate) before: Option<u32>,
    pub(crate) local_hash: LocalHash,
}

impl Ordinal {
    /// No number was left. The block is known to its source alone.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

impl Slot {
    /// Slots of an index: 4,096 workers, and as many cleared ones whose blocks are still being swept.
    pub(crate) const COUNT: usize = 8192;

    /// The slot of this number, if there is one.
    pub(crate) fn new(index: usize) -> Option<Self> {
        u16::try_from(index).ok().filter(|_| index < Self::COUNT).map(Self)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// A slot that was a lane's.
    #[inline]
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) const fn lane(self, tier: Tier) -> Lane {
        Lane((self.0 as u32) << 2 | tier as u32)
    }
}

impl Lane {
    /// Bits of the number of a lane.
    pub(crate) const BITS: u32 = 18;

    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        Slot((self.0 >> 2) as u16)
    }

    /// Number of the tier.
    #[inline]
    pub(crate) const fn tier_index(self) -> usize {
        (self.0 & 3) as usize
    }
}

/// What happens to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// The next stored block follows the block of this ordinal; the value is 1 at the start of a prompt, where none does.
    After,
    /// A block follows the one before; the value is its local hash. Its ordinal is new.
    Store,
    /// A known block is held on one more lane, and the next stored block follows it.
    Hold,
    /// A block is no longer held on a lane.
    Drop,
    /// The same, and it was held on no other: its ordinal is free.
    Forget,
    /// Every block of the lane's slot is gone, and so is the slot.
    Sweep,
}

/// One change. Records of one source reach a shard in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) value: u64,
    pub(crate) ordinal: Ordinal,
    lane_and_op: u32,
}

impl Record {
    #[inline]
    pub(crate) const fn new(op: Op, lane: Lane, ordinal: Ordinal, value: u64) -> Self {
        Self { value, ordinal, lane_and_op: lane.0 << 8 | op as u32 }
    }

    #[inline]
    pub(crate) const fn lane(self) -> Lane {
        Lane(self.lane_and_op >> 8)
    }

    #[inline]
    pub(crate) const fn op(self) -> Op {
        match self.lane_and_op as u8 {
            0 => Op::After,
            1 => Op::Store,
            2 => Op::Hold,
            3 => Op::Drop,
            4 => Op::Forget,
            _ => Op::Sweep,
        }
    }
}

/// Which of `shards` keeps the prompts that begin with a block. Local hashes are uniform, so their upper half is too.
#[inline]
pub(crate) const fn shard_of(first: LocalHash, shards: usize) -> usize {
    (((first.0 >> 32) * shards as u64) >> 32) as usize
}

const _: () = assert!(size_of::<Record>() == 16);
const _: () = assert!(Slot::COUNT * 4 <= 1 << Lane::BITS);
