//! The events of a simulated engine, with all that any producer says of them. No logic but names.

use std::sync::Arc;

use crate::ids::{EngineHash, Tier};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the wire has these three")]
pub enum Event {
    /// Blocks came.
    Stored(Stored),
    /// Copies of blocks went.
    Removed(Removed),
    /// All blocks went.
    Cleared,
}

/// Blocks that came, one after the other in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make their own")]
pub struct Stored {
    /// Those that are kept. A group may keep only some of the blocks that the tokens fill.
    pub block_hashes: Vec<EngineHash>,
    /// The block before; none at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// Tokens of the whole range; none where blocks are stored by hash alone.
    pub token_ids: Vec<u32>,
    /// Tokens per block; 0 where blocks are stored by hash alone.
    pub block_size: u32,
    /// Where they lie.
    pub medium: Medium,
    /// Whose cache they are.
    pub group: Group,
    /// Whose prompt they are from; none where blocks are stored by hash alone.
    pub identity: Arc<Identity>,
}

/// Copies of blocks that went, in no particular order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make their own")]
pub struct Removed {
    /// The blocks.
    pub block_hashes: Vec<EngineHash>,
    /// Where they lay.
    pub medium: Medium,
    /// `group_idx`.
    pub group_idx: u32,
}

/// A KV cache group: layers that keep the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make their own")]
pub struct Group {
    /// `group_idx`; 0 is the main group, which decides reuse.
    pub index: u32,
    /// `kv_cache_spec_kind`.
    pub spec_kind: &'static str,
    /// Tokens that a window keeps.
    pub sliding_window: Option<u32>,
}

impl Group {
    /// The group of full attention.
    pub const MAIN: Self = Self { index: 0, spec_kind: "full_attention", sliding_window: None };
}

/// What tells equal tokens of two prompts apart, and who sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make their own")]
pub struct Identity {
    /// The adapter.
    pub lora: Option<Lora>,
    /// The namespace.
    pub cache_salt: Option<String>,
    /// The conversation.
    pub session_id: Option<String>,
}

/// A LoRA adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make their own")]
pub struct Lora {
    /// The engine's number for it, from 1.
    pub id: u32,
    /// Its public name.
    pub name: String,
}

/// Where blocks lie; producers call it by different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Medium {
    /// Accelerator memory.
    Gpu,
    /// Host memory.
    Cpu,
    /// Local disk.
    Disk,
}

impl Medium {
    /// The tier it stands for.
    #[must_use]
    pub const fn tier(self) -> Tier {
        match self {
            Self::Gpu => Tier::Device,
            Self::Cpu => Tier::HostPinned,
            Self::Disk => Tier::Disk,
        }
    }
}
