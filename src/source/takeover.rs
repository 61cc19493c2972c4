//! What one listener of a source hands to another, and when that is worth taking. Control plane.

use crate::{HeldRank, Position};

/// All that a listener knows of a source: what [`Source::state`](super::Source::state) tells and
/// [`Source::begin`](super::Source::begin) takes.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by those who read it from elsewhere")]
pub struct SourceState {
    /// What its ranks hold.
    pub ranks: Vec<HeldRank>,
    /// Where its stream stood at that moment; `None` if nobody knows.
    pub position: Option<Position>,
    /// Whether the ranks may hold other blocks than these.
    pub degraded: bool,
}

impl SourceState {
    /// Blocks that are held, each once however many tiers and copies.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.ranks.iter().map(|rank| rank.blocks.iter().filter(|block| block.is_held()).count()).sum()
    }

    /// Whether it says more than one who stands at `next` knows: nothing yet, or less than there is.
    pub(super) fn is_worth_taking(&self, next: u64, degraded: bool) -> bool {
        match self.position {
            None => next == 0 && !self.ranks.is_empty(),
            Some(position) if next == 0 => position.next > 0,
            Some(position) => degraded && !self.degraded && position.next >= next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Worker;

    #[test]
    fn only_who_knows_less_takes() {
        let state = |next: Option<u64>, degraded| SourceState {
            ranks: vec![HeldRank::new(Worker { worker_id: 1, dp_rank: 0 })],
            position: next.map(|next| Position { next, ..Position::default() }),
            degraded,
        };
        for (theirs, next, degraded, wanted) in [
            (state(Some(5), false), 0, false, true),
            (state(Some(5), true), 0, false, true),
            (state(Some(0), false), 0, false, false),
            (state(Some(5), false), 5, true, true),
            (state(Some(5), false), 6, true, false),
            (state(Some(5), true), 5, true, false),
            (state(Some(9), false), 5, false, false),
            (state(None, true), 0, false, true),
            (state(None, true), 1, true, false),
            (SourceState::default(), 0, false, false),
        ] {
            assert_eq!(theirs.is_worth_taking(next, degraded), wanted, "{theirs:?} at {next} {degraded}");
        }
    }
}
