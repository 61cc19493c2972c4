//! A look at what becomes of each event and block, for tools. The no-op observer compiles to nothing.

use crate::ids::{EngineHash, LocalHash, Tier, Worker};
use crate::policy::Reason;
use crate::wire::{Event, EventError};

/// Watches the events of a batch. Every method does nothing unless overridden.
pub trait Observer {
    /// Whether anything is looked at. If not, single steps need not be applied in the order of events.
    fn is_watching(&self) -> bool {
        true
    }

    /// Called before the events of a sound batch.
    fn batch(&mut self, batch: Applied) {
        let _ = batch;
    }

    /// Called for every event, after it was judged and applied.
    fn event(&mut self, worker: Worker, event: &mut Event<'_>, verdict: Verdict) {
        let _ = (worker, event, verdict);
    }

    /// Called for every block placed or removed, and once for every clear, before `event`.
    fn placement(&mut self, worker: Worker, placement: Placement) {
        let _ = (worker, placement);
    }
}

/// A sound batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Applied {
    /// Whose blocks it was about.
    pub worker: Worker,
    /// When it was made, in Unix seconds.
    pub timestamp: f64,
}

/// Observes nothing.
impl Observer for () {
    fn is_watching(&self) -> bool {
        false
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Applied, though single blocks may have been left out (see [`crate::Scope::Block`]).
    Place,
    /// Not applied: nothing of it counts.
    Filter(Reason),
    /// Unknown tag.
    Unknown,
    /// Broke a rule.
    Malformed(EventError),
}

/// One change to what a worker holds. Copies are shown, each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// A copy of a block was stored.
    Store {
        /// Where.
        tier: Tier,
        /// The engine's name for it.
        engine_hash: EngineHash,
        /// The engine's name for the block before it; `None` at the start of a prompt, or if the store came without tokens.
        parent: Option<EngineHash>,
        /// Hash of its tokens; `None` if the store came without tokens.
        local_hash: Option<LocalHash>,
    },
    /// A copy of a block was removed.
    Remove {
        /// Where.
        tier: Tier,
        /// The engine's name for it.
        engine_hash: EngineHash,
    },
    /// Every block of the worker and rank was dropped.
    Clear,
}
