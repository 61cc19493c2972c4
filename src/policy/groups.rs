//! Step 4: which KV cache group an event is about, and whether its blocks decide reuse.
//!
//! vLLM ≥ 0.20.2 publishes every group of a hybrid model; only stored events name their kind (≥ 0.22.1).

#![expect(clippy::inline_always, reason = "the gate is never made if everything that looks at it is inlined")]

use super::Reason;
use crate::wire::Gate;

/// Groups remembered per rank; a model has a handful. Beyond it nothing more is learned, so that a publisher cannot
/// grow the table: events of such groups stay `unlearned_group_idx`.
const GROUPS_MAX: usize = 1024;

/// What a spec kind means for reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Main,
    Other,
    Unknown,
}

impl Kind {
    #[inline(always)]
    fn of(name: &str) -> Self {
        match name {
            "full_attention" | "mla_attention" | "sink_full_attention" => Self::Main,
            "sliding_window"
            | "sliding_window_mla"
            | "mamba"
            | "chunked_local_attention"
            | "encoder_only_attention"
            | "cross_attention" => Self::Other,
            _ => Self::Unknown,
        }
    }
}

/// The learned kind of each group of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// Few; searched from the front.
    kinds: Vec<(u32, Kind)>,
}

impl Groups {
    /// A stored event that names both its group and its kind teaches.
    #[inline(always)]
    pub(super) fn learn(&mut self, gate: &Gate<'_>) {
        let (Some(group_idx), Some(kind)) = (gate.group_idx, gate.spec_kind) else { return };
        let kind = Kind::of(kind);
        if let Some((_, known)) = self.kinds.iter_mut().find(|(group, _)| *group == group_idx) {
            *known = kind;
        } else if self.kinds.len() < GROUPS_MAX {
            self.kinds.push((group_idx, kind));
        }
    }

    #[inline(always)]
    pub(super) fn admit(&self, gate: &Gate<'_>) -> Result<(), Reason> {
        if let Some(kind) = gate.spec_kind {
            return match Kind::of(kind) {
                Kind::Main => Ok(()),
                Kind::Other => Err(Reason::NonMainAttentionKind),
                Kind::Unknown => Err(Reason::UnknownKind),
            };
        }
        let Some(group_idx) = gate.group_idx else { return Ok(()) };
        let learned = self.kinds.iter().find(|(group, _)| *group == group_idx);
        match learned {
            Some((_, Kind::Main)) => Ok(()),
            Some((_, Kind::Other)) => Err(Reason::NonMainAttentionGroup),
            Some((_, Kind::Unknown)) => Err(Reason::UnknownKind),
            None if group_idx == 0 => Ok(()),
            None => Err(Reason::UnlearnedGroupIdx),
        }
    }
}
