//! Which worker each slot of the index stands for. Control plane: changes only when ranks come and go.

#[expect(
    clippy::disallowed_types,
    reason = "control plane; queries hold it for the length of one answer"
)]
use std::sync::{RwLock, RwLockReadGuard};

use crate::ids::Worker;
use crate::placement::Slot;

/// The slots of one index. Two sources may bring the same worker; each has a slot of its own.
#[derive(Debug)]
pub(crate) struct Slots {
    #[expect(clippy::disallowed_types, reason = "see the import")]
    workers: RwLock<Vec<Option<Worker>>>,
}

impl Slots {
    #[expect(clippy::disallowed_types, reason = "see the import")]
    pub(crate) const fn new() -> Self {
        Self { workers: RwLock::new(Vec::new()) }
    }

    /// Takes a free slot; `None` if all are taken.
    pub(crate) fn take(&self, worker: Worker) -> Option<Slot> {
        let mut workers = self.workers.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let index = workers.iter().position(Option::is_none).unwrap_or(workers.len());
        let slot = Slot::new(index)?;
        if index == workers.len() {
            workers.push(None);
        }
        workers[index] = Some(worker);
        Some(slot)
    }

    /// Frees a slot whose blocks have all left the index.
    pub(crate) fn free(&self, slot: Slot) {
        let mut workers = self.workers.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        workers[slot.index()] = None;
    }

    /// The worker of each slot.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Vec<Option<Worker>>> {
        self.workers.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
