//! The verdict on an event: place it, or filter it with a reason. Data plane.
//!
//! One line per step, in the order in which they are judged; each step is a file. Steps 1–4 need only an event's gate, so
//! that an event filtered by them is not looked into further. Knows nothing of hashing blocks or of the index.
//! What looks at the gate is inlined: then it is never made.

mod reason;
mod ownership;
mod locality;
mod medium;
mod groups;
mod verdicts;
mod namespaces;
mod block_size;

pub use groups::GroupKind;
pub(crate) use namespaces::{KnownBlocks, Namespace, for_each_key};
pub use reason::{Reason, Scope};

use crate::hash::SaltHash;
use crate::ids::{EngineHash, Tier};
use crate::wire::{Body, Gate, GateId};
use block_size::BlockSize;
use groups::Groups;
use verdicts::Verdicts;

/// Python's hash of the empty tuple, which SGLang ≤ 0.4.9 sends as the parent of a prompt's first block
/// (`engine-sglang-0.4.9-radix64`). It is never announced as a block.
const NO_PARENT: EngineHash = EngineHash(5_740_354_900_026_072_187);

/// What policy remembers between the events of one worker and rank.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    groups: Groups,
    verdicts: Verdicts,
    block_size: BlockSize,
}

/// A stored event that may be placed. Only policy makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted<'e> {
    body: &'e Body<'e>,
    tier: Tier,
    parent: Option<EngineHash>,
    salt: Option<SaltHash>,
}

impl<'e> Admitted<'e> {
    pub(crate) const fn body(&self) -> &'e Body<'e> {
        self.body
    }

    pub(crate) const fn tier(&self) -> Tier {
        self.tier
    }

    /// The block before the first; none at the start of a prompt.
    pub(crate) const fn parent(&self) -> Option<EngineHash> {
        self.parent
    }

    /// Own or inherited.
    pub(crate) const fn salt(&self) -> Option<SaltHash> {
        self.salt
    }

    /// Whether the blocks are named by hash alone, as offload connectors do.
    pub(crate) const fn is_by_hash_alone(&self) -> bool {
        self.body.token_ids.is_empty() && !matches!(self.tier, Tier::Device)
    }
}

impl Policy {
    pub(crate) fn new(block_size: u32) -> Self {
        let block_size = BlockSize::new(block_size);
        Self { groups: Groups::default(), verdicts: Verdicts::default(), block_size }
    }

    /// Knows what another one has learned. False if these are more groups than a rank may have.
    pub(crate) fn load(&mut self, groups: &[(u32, GroupKind)], has_full_block: bool) -> bool {
        if has_full_block {
            self.block_size.prove();
        }
        self.verdicts.forget();
        self.groups.load(groups)
    }

    /// The learned kinds of its groups, and whether it has published a full block.
    pub(crate) fn learned(&self) -> (&[(u32, GroupKind)], bool) {
        (self.groups.kinds(), self.block_size.is_proven())
    }

    /// Steps 1–4 of a stored event.
    pub(crate) fn admit_stored(&mut self, gate: &Gate<'_>, id: Option<GateId>) -> Result<Tier, Reason> {
        let verdict = place(gate).and_then(|tier| {
            if !has_groups(tier) {
                return Ok(tier);
            }
            if self.groups.learn(gate) {
                self.verdicts.forget();
            }
            self.groups.admit(gate).map(|()| tier)
        });
        if let Some(id) = id {
            self.verdicts.remember(id, verdict);
        }
        verdict
    }

    /// The verdict on an equal gate, if it was given and still holds; then nothing is to be learned either.
    #[inline]
    pub(crate) fn remembered(&self, id: GateId) -> Option<Result<Tier, Reason>> {
        self.verdicts.find(id)
    }

    /// Steps 1–4 of a removed event, which teaches nothing.
    #[inline(always)]
    pub(crate) fn admit_removed(&self, gate: &Gate<'_>) -> Result<Tier, Reason> {
        let tier = place(gate)?;
        if has_groups(tier) {
            self.groups.admit(gate)?;
        }
        Ok(tier)
    }

    /// Step 1 of a cleared event; the others do not apply.
    pub(crate) fn admit_cleared(ownership: Option<&str>) -> Result<(), Reason> {
        ownership::admit(ownership)
    }

    /// Steps 5 and 6 of a stored event that passed 1–4.
    #[inline]
    pub(crate) fn admit_body<'e>(
        &mut self,
        tier: Tier,
        body: &'e Body<'e>,
        known: &impl KnownBlocks,
    ) -> Result<Admitted<'e>, Reason> {
        let parent = body.parent_block_hash.filter(|&parent| parent != NO_PARENT);
        let mut admitted = Admitted { body, tier, parent, salt: None };
        if !body.token_ids.is_empty() {
            admitted.salt = namespaces::admit(body, parent, known)?;
        }
        if !admitted.is_by_hash_alone() {
            self.block_size.admit(body.block_size)?;
        }
        Ok(admitted)
    }

    /// A clear takes back the proof of the block size; groups keep their kinds.
    pub(crate) const fn clear(&mut self) {
        self.block_size.forget();
    }

    /// The most frequent block size other than configured, and how many events had it.
    pub(crate) fn mismatched_block_size(&self) -> Option<(u32, u64)> {
        self.block_size.mismatch()
    }
}

/// Steps 1–3.
#[inline(always)]
fn place(gate: &Gate<'_>) -> Result<Tier, Reason> {
    ownership::admit(gate.ownership)?;
    locality::admit(gate.locality)?;
    medium::tier(gate.medium)
}

/// Connectors below host memory do not publish per group.
const fn has_groups(tier: Tier) -> bool {
    matches!(tier, Tier::Device | Tier::HostPinned)
}
