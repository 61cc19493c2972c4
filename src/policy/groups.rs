//! Step 4: which KV cache group an event is about, and whether its blocks decide reuse.
//!
//! vLLM ≥ 0.20.2 publishes every group of a hybrid model; only stored events name their kind (≥ 0.22.1).

use super::Reason;
use crate::wire::Gate;

/// Groups remembered per rank; a model has a handful. Beyond it nothing more is learned, so that a publisher cannot
/// grow the table: events of such groups stay `unlearned_group_idx`.
const GROUPS_MAX: usize = 1024;

/// What the attention kind of a KV cache group means for reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a kind decides reuse, or does not, or nobody knows")]
pub enum GroupKind {
    /// Its blocks decide reuse.
    Main,
    /// They do not.
    Other,
    /// A kind nobody documents.
    Unknown,
}

impl GroupKind {
    #[inline(always)]
    fn of(name: &str) -> Self {
        // By length first: a comparison with a constant of known length is a load or two.
        match name.len() {
            14 if name == "full_attention" => Self::Main,
            13 if name == "mla_attention" => Self::Main,
            19 if name == "sink_full_attention" => Self::Main,
            14 if name == "sliding_window" => Self::Other,
            18 if name == "sliding_window_mla" => Self::Other,
            5 if name == "mamba" => Self::Other,
            23 if name == "chunked_local_attention" => Self::Other,
            22 if name == "encoder_only_attention" => Self::Other,
            15 if name == "cross_attention" => Self::Other,
            _ => Self::Unknown,
        }
    }
}

/// The learned kind of each group of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// Few; searched from the front.
    kinds: Vec<(u32, GroupKind)>,
}

impl Groups {
    /// As another has learned them. False, and nothing learned, if they are too many.
    pub(super) fn load(&mut self, kinds: &[(u32, GroupKind)]) -> bool {
        let fits = kinds.len() <= GROUPS_MAX;
        if fits {
            self.kinds = kinds.to_vec();
        }
        fits
    }

    /// What is learned.
    pub(super) fn kinds(&self) -> &[(u32, GroupKind)] {
        &self.kinds
    }

    /// A stored event that names both its group and its kind teaches. Says whether anything changed.
    #[inline]
    pub(super) fn learn(&mut self, gate: &Gate<'_>) -> bool {
        let (Some(group_idx), Some(kind)) = (gate.group_idx, gate.spec_kind) else { return false };
        let kind = GroupKind::of(kind);
        if let Some((_, known)) = self.kinds.iter_mut().find(|(group, _)| *group == group_idx) {
            std::mem::replace(known, kind) != kind
        } else if self.kinds.len() < GROUPS_MAX {
            self.kinds.push((group_idx, kind));
            true
        } else {
            false
        }
    }

    /// The kind on the event decides; without one, the learned kind of its group.
    #[inline(always)]
    pub(super) fn admit(&self, gate: &Gate<'_>) -> Result<(), Reason> {
        match gate.spec_kind.map(GroupKind::of) {
            Some(GroupKind::Main) => return Ok(()),
            Some(GroupKind::Other) => return Err(Reason::NonMainAttentionKind),
            Some(GroupKind::Unknown) => return Err(Reason::UnknownKind),
            None => {}
        }
        let Some(group_idx) = gate.group_idx else { return Ok(()) };
        let learned = self.kinds.iter().find(|(group, _)| *group == group_idx);
        match learned {
            Some((_, GroupKind::Main)) => Ok(()),
            Some((_, GroupKind::Other)) => Err(Reason::NonMainAttentionGroup),
            Some((_, GroupKind::Unknown)) => Err(Reason::UnknownKind),
            None if group_idx == 0 => Ok(()),
            None => Err(Reason::UnlearnedGroupIdx),
        }
    }
}
