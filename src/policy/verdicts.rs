//! Verdicts of steps 1–4 already given: equal gates get equal verdicts as long as no group is learned anew.

use super::Reason;
use crate::ids::Tier;
use crate::wire::GateId;

/// The last verdicts on stored events of one rank, by the slot of their gate's id.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    given: [Option<(GateId, Result<Tier, Reason>)>; GateId::SLOTS],
}

impl Verdicts {
    #[inline]
    pub(super) fn find(&self, gate: GateId) -> Option<Result<Tier, Reason>> {
        self.given[gate.slot()].filter(|(known, _)| *known == gate).map(|(_, verdict)| verdict)
    }

    pub(super) const fn remember(&mut self, gate: GateId, verdict: Result<Tier, Reason>) {
        self.given[gate.slot()] = Some((gate, verdict));
    }

    pub(super) fn forget(&mut self) {
        self.given = Default::default();
    }
}
