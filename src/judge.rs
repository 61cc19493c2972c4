//! One event: counted, judged, handed on. The seam between policy and whatever keeps the blocks. Data plane.

use crate::counters::Counters;
use crate::ids::{EngineHash, Tier};
use crate::observe::Verdict;
use crate::policy::{Admitted, KnownBlocks, Policy, Reason, Scope};
use crate::seen::Seen;
use crate::wire::{Cleared, Event, EventError, Removed, Stored};

/// Takes what policy admits: the index's write side, or a visitor that keeps an index of its own.
pub(crate) trait Place: KnownBlocks {
    /// Steps 7–10 of a stored event.
    fn store(&mut self, admitted: &Admitted<'_>) -> Result<(), Reason>;
    /// May wait until `finish`.
    fn remove(&mut self, hashes: &[EngineHash], tier: Tier);
    /// Applies what waits: before anything looks at blocks, and at the end of a batch.
    fn finish(&mut self);
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
    /// The end of a batch.
    pub(crate) fn finish(&mut self) {
        self.place.finish();
    }

    /// Judges one event and applies it if it may be.
    pub(crate) fn event(&mut self, event: &mut Event<'_>) -> Verdict {
        let judged = match event {
            Event::Stored(stored) => self.stored(stored),
            Event::Removed(removed) => self.removed(removed),
            Event::Cleared(cleared) => self.cleared(cleared),
            Event::Unknown(tag) => {
                self.place.counters().unknown_events += 1;
                self.seen.unknown_tag(tag);
                return Verdict::Unknown;
            }
            Event::Malformed(error) => Err(Stop::Malformed(*error)),
        };
        match judged {
            Ok(()) => Verdict::Place,
            Err(Stop::Filtered(reason, times)) => {
                self.place.counters().filter(reason, times);
                Verdict::Filter(reason)
            }
            Err(Stop::Malformed(error)) => {
                self.place.counters().malform(error);
                Verdict::Malformed(error)
            }
        }
    }

    #[inline]
    fn stored(&mut self, stored: &mut Stored<'_>) -> Result<(), Stop> {
        self.seen.shape(stored.shape());
        stored.drift().for_each(|drift| self.seen.drift(drift));
        let id = stored.gate_id();
        let verdict = match id.and_then(|id| self.policy.remembered(id)) {
            Some(verdict) => verdict,
            None => self.policy.admit_stored(&stored.gate()?, id),
        };
        let tier = match verdict {
            Ok(tier) => tier,
            Err(reason) => {
                self.place.counters().stored_events += 1;
                return Err(reason.into());
            }
        };
        let body = stored.body()?;
        self.place.counters().stored_events += 1;
        self.place.finish();
        let admitted = self.policy.admit_body(tier, &body, &self.place)?;
        self.place.store(&admitted).map_err(|reason| {
            // Nothing of the event can be placed, but what is lost are its blocks.
            let lost = if reason.scope() == Scope::Block { body.block_hashes.len() as u64 } else { 1 };
            Stop::Filtered(reason, lost)
        })
    }

    #[inline]
    fn removed(&mut self, removed: &mut Removed<'_>) -> Result<(), Stop> {
        self.seen.shape(removed.shape());
        removed.drift().for_each(|drift| self.seen.drift(drift));
        let admitted = self.policy.admit_removed(&removed.gate()?);
        if let Ok(tier) = admitted {
            self.place.remove(removed.block_hashes()?, tier);
        }
        self.place.counters().removed_events += 1;
        admitted.map(drop).map_err(Stop::from)
    }

    fn cleared(&mut self, cleared: &Cleared<'_>) -> Result<(), Stop> {
        self.seen.shape(cleared.shape());
        cleared.drift().for_each(|drift| self.seen.drift(drift));
        let admitted = Policy::admit_cleared(cleared.ownership()?);
        self.place.counters().cleared_events += 1;
        admitted?;
        self.place.clear();
        self.policy.clear();
        Ok(())
    }
}
