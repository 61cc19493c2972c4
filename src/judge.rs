//! One event: counted, judged, handed on. The seam between policy and whatever keeps the blocks. Data plane.

use crate::counters::Counters;
use crate::ids::{EngineHash, Tier};
use crate::observe::Verdict;
use crate::policy::{Admitted, KnownBlocks, Policy, Reason};
use crate::seen::Seen;
use crate::wire::{Cleared, Event, EventError, Gate, Removed, Stored};

/// Takes what policy admits: the index's write side, or a visitor that keeps an index of its own.
pub(crate) trait Place: KnownBlocks {
    /// Steps 7–10 of a stored event.
    fn store(&mut self, admitted: &Admitted<'_>) -> Result<(), Reason>;
    fn remove(&mut self, hashes: &[EngineHash], tier: Tier);
    fn clear(&mut self);
    fn counters(&mut self) -> &mut Counters;
}

/// Judges the events of one rank.
pub(crate) struct Judge<'a, P> {
    pub(crate) policy: &'a mut Policy,
    pub(crate) seen: &'a mut Seen,
    pub(crate) place: P,
}

/// An event that stops here: broken, or filtered with so many counts.
enum Stop {
    Malformed(EventError),
    Filtered(Reason, u64),
}

impl From<EventError> for Stop {
    fn from(error: EventError) -> Self {
        Self::Malformed(error)
    }
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Filtered(reason, 1)
    }
}

impl<P: Place> Judge<'_, P> {
    /// Judges one event and applies it if it may be.
    pub(crate) fn event(&mut self, event: &mut Event<'_>) -> Verdict {
        let (judged, count): (_, fn(&mut Counters) -> &mut u64) = match event {
            Event::Stored(stored) => (self.stored(stored), |counters| &mut counters.stored_events),
            Event::Removed(removed) => (self.removed(removed), |counters| &mut counters.removed_events),
            Event::Cleared(cleared) => (self.cleared(cleared), |counters| &mut counters.cleared_events),
            Event::Unknown(tag) => {
                self.place.counters().unknown_events += 1;
                self.seen.unknown_tag(tag);
                return Verdict::Unknown;
            }
            Event::Malformed(error) => {
                (Err(Stop::Malformed(*error)), |counters| &mut counters.malformed_events)
            }
        };
        let counters = self.place.counters();
        match judged {
            Ok(()) => {
                *count(counters) += 1;
                Verdict::Place
            }
            Err(Stop::Filtered(reason, times)) => {
                *count(counters) += 1;
                counters.filter(reason, times);
                Verdict::Filter(reason)
            }
            Err(Stop::Malformed(error)) => {
                counters.malformed_events += 1;
                Verdict::Malformed(error)
            }
        }
    }

    fn stored(&mut self, stored: &mut Stored<'_>) -> Result<(), Stop> {
        self.seen.shape(stored.shape());
        stored.drift().for_each(|drift| self.seen.drift(drift));
        let gate: Gate<'_> = stored.gate()?;
        let tier = self.policy.admit_stored(&gate)?;
        let body = stored.body()?;
        let admitted = self.policy.admit_body(tier, &body, &self.place)?;
        self.place.store(&admitted).map_err(|reason| match reason {
            // Nothing of the event can be placed, but what is lost are its blocks.
            Reason::UnknownParent => Stop::Filtered(reason, body.block_hashes.len() as u64),
            reason => reason.into(),
        })
    }

    fn removed(&mut self, removed: &mut Removed<'_>) -> Result<(), Stop> {
        self.seen.shape(removed.shape());
        removed.drift().for_each(|drift| self.seen.drift(drift));
        let tier = self.policy.admit_removed(&removed.gate()?)?;
        self.place.remove(removed.block_hashes()?, tier);
        Ok(())
    }

    fn cleared(&mut self, cleared: &Cleared<'_>) -> Result<(), Stop> {
        self.seen.shape(cleared.shape());
        cleared.drift().for_each(|drift| self.seen.drift(drift));
        Policy::admit_cleared(cleared.ownership()?)?;
        self.place.clear();
        self.policy.clear();
        Ok(())
    }
}
