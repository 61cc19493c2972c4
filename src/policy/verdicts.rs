//! Verdicts of steps 1–4 already given: equal gates get equal verdicts as long as no group is learned anew.

use super::Reason;
use crate::ids::Tier;
use crate::wire::GateId;

/// As many as the decoder remembers ends of events.
const VERDICTS: usize = 4;

/// The last verdicts on stored events of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    given: [Option<(GateId, Result<Tier, Reason>)>; VERDICTS],
    /// The next to be replaced.
    oldest: usize,
}

impl Verdicts {
    #[inline]
    pub(super) fn find(&self, gate: GateId) -> Option<Result<Tier, Reason>> {
        self.given.iter().flatten().find(|(known, _)| *known == gate).map(|&(_, verdict)| verdict)
    }

    pub(super) fn remember(&mut self, gate: GateId, verdict: Result<Tier, Reason>) {
        self.given[self.oldest] = Some((gate, verdict));
        self.oldest = (self.oldest + 1) % VERDICTS;
    }

    pub(super) fn forget(&mut self) {
        self.given = Default::default();
    }
}
