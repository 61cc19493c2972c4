//! What kinds of traffic there are, which producer's encoding can tell of them, and the refusal if it cannot.

use std::fmt;

use super::publish::ReplayFrames;

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// Conversations over several turns that share system prompts.
    Chat,
    /// The same on a model with four cache groups.
    Hybrid,
    /// The same with tails that do not fill their block.
    Partial,
    /// The same with LoRA adapters and cache salts.
    Lora,
    /// The same with copies in host memory and on disk.
    Offload,
    /// The same with the whole cache cleared now and then.
    Cleared,
    /// All that the encoding can tell of.
    Mixed,
}

/// What a scenario adds to conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Several cache groups.
    Groups,
    /// Partial tails.
    PartialTails,
    /// LoRA adapters and cache salts.
    Namespaces,
    /// Memory below the device.
    Offload,
    /// Clears.
    Clears,
}

/// How a producer writes its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// vLLM 0.33.0: tagged maps.
    VllmMap,
    /// vLLM 0.23.0: tagged tuples.
    VllmTuple,
    /// SGLang 0.5.23: tagged maps with its own fields.
    Sglang,
    /// TensorRT-LLM through Dynamo 1.6.1: tagged maps, one event per batch.
    Trtllm,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 7] =
        [Self::Chat, Self::Hybrid, Self::Partial, Self::Lora, Self::Offload, Self::Cleared, Self::Mixed];

    /// Its name on the command line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Hybrid => "hybrid",
            Self::Partial => "partial",
            Self::Lora => "lora",
            Self::Offload => "offload",
            Self::Cleared => "cleared",
            Self::Mixed => "mixed",
        }
    }

    /// What it consists of when told in this encoding.
    ///
    /// # Errors
    /// If the encoding has no way to tell of what the scenario is about.
    pub fn features(self, encoding: Encoding) -> Result<Vec<Feature>, MockError> {
        let wanted = match self {
            Self::Chat => None,
            Self::Hybrid => Some(Feature::Groups),
            Self::Partial => Some(Feature::PartialTails),
            Self::Lora => Some(Feature::Namespaces),
            Self::Offload => Some(Feature::Offload),
            Self::Cleared => Some(Feature::Clears),
            Self::Mixed => {
                let known = Feature::ALL.into_iter();
                return Ok(known.filter(|feature| encoding.obstacle(*feature).is_none()).collect());
            }
        };
        let obstacle = wanted.and_then(|feature| encoding.obstacle(feature));
        obstacle.map_or(Ok(Vec::from_iter(wanted)), |why| {
            Err(MockError::Inexpressible { scenario: self, encoding, why })
        })
    }
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 5] =
        [Self::Groups, Self::PartialTails, Self::Namespaces, Self::Offload, Self::Clears];
}

impl Encoding {
    /// All encodings.
    pub const ALL: [Self; 4] = [Self::VllmMap, Self::VllmTuple, Self::Sglang, Self::Trtllm];

    /// Its name on the command line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::VllmMap => "vllm-map",
            Self::VllmTuple => "vllm-tuple",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
        }
    }

    /// Shape of the producer's replay replies, in the version named above; TensorRT-LLM has no replay, so any will do.
    #[must_use]
    pub const fn replay_frames(self) -> ReplayFrames {
        match self {
            Self::VllmTuple => ReplayFrames::Three,
            Self::VllmMap | Self::Sglang | Self::Trtllm => ReplayFrames::Four,
        }
    }

    /// Why events of the producer never tell of a feature.
    const fn obstacle(self, feature: Feature) -> Option<&'static str> {
        match (self, feature) {
            (Self::VllmTuple, Feature::PartialTails) => Some("vLLM had no partial tails before it sent maps"),
            (Self::Sglang, Feature::PartialTails) => Some("SGLang caches whole pages only"),
            (Self::Trtllm, Feature::PartialTails) => Some("Dynamo's publisher leaves short blocks out"),
            (Self::Sglang | Self::Trtllm, Feature::Groups) => Some("its events name no cache group"),
            (Self::Trtllm, Feature::Offload) => Some("its events name no medium"),
            _ => None,
        }
    }

    /// Whether the engine keeps one copy of a block only, as a radix tree does.
    pub(super) const fn keeps_one_copy(self) -> bool {
        matches!(self, Self::Sglang)
    }

    /// Whether blocks that leave the device together share an event.
    pub(super) const fn merges_removals(self) -> bool {
        matches!(self, Self::Sglang)
    }

    /// Whether a new process says first that its cache is empty.
    pub(super) const fn clears_at_start(self) -> bool {
        matches!(self, Self::Sglang)
    }

    /// Whether blocks below the device are stored by hash alone.
    pub(super) const fn offloads_by_hash(self) -> bool {
        matches!(self, Self::VllmMap | Self::VllmTuple)
    }

    /// Whether every event is a batch of its own.
    pub(super) const fn sends_single_events(self) -> bool {
        matches!(self, Self::Trtllm)
    }
}

/// Options that cannot work together; displays as one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MockError {
    /// The producer never sends what the scenario is about.
    Inexpressible {
        /// The scenario.
        scenario: Scenario,
        /// The encoding.
        encoding: Encoding,
        /// The reason.
        why: &'static str,
    },
    /// Blocks too small or too large for the scenario.
    BlockSize(u32),
    /// Partial tails of blocks that cannot be cut.
    UncutBlocks(u32),
    /// Too few or too many blocks.
    PoolBlocks(usize),
    /// Too few or too many requests.
    Requests(usize),
}

impl fmt::Display for MockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inexpressible { scenario, encoding, why } => {
                let (scenario, encoding) = (scenario.label(), encoding.label());
                write!(f, "the encoding {encoding} cannot express the scenario {scenario}: {why}")
            }
            Self::BlockSize(size) => write!(f, "the block size must be 1 to 65536 tokens, not {size}"),
            Self::UncutBlocks(size) => {
                write!(f, "partial tails need blocks of a multiple of 4 tokens, not {size}")
            }
            Self::PoolBlocks(blocks) => {
                write!(f, "the pool must have 8 blocks per request to 1048576, not {blocks}")
            }
            Self::Requests(requests) => write!(f, "1 to 1024 requests can run at a time, not {requests}"),
        }
    }
}

impl std::error::Error for MockError {}
