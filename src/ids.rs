//! The field's terms as types: workers, tiers and the three kinds of block hash. No logic.

use std::fmt;

/// One KV cache: a worker and one of its data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a pair by definition")]
pub struct Worker {
    /// The router's own number for the worker.
    pub worker_id: u64,
    /// Data-parallel rank inside the worker.
    pub dp_rank: u32,
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker_id, self.dp_rank)
    }
}

/// Where a block lies, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the four tiers are the contract of every depth answer")]
pub enum Tier {
    /// Accelerator memory.
    Device,
    /// Host memory the device can read.
    HostPinned,
    /// Local disk.
    Disk,
    /// A store outside the worker.
    External,
}

impl Tier {
    /// All tiers, nearest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::HostPinned, Self::Disk, Self::External];

    /// Position in [`Tier::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Stable snake_case name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::HostPinned => "host_pinned",
            Self::Disk => "disk",
            Self::External => "external",
        }
    }
}

/// The engine's own name for a block: opaque, read from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
#[expect(clippy::exhaustive_structs, reason = "a newtype")]
pub struct EngineHash(pub u64);

/// Hash of one block's tokens and identity objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
#[expect(clippy::exhaustive_structs, reason = "a newtype")]
pub struct LocalHash(pub u64);

/// Chain of local hashes from the prompt's start: names a block together with all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
#[expect(clippy::exhaustive_structs, reason = "a newtype")]
pub struct PrefixHash(pub u64);
