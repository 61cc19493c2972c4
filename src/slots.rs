//! Which worker each slot of the index stands for. Changes only when ranks come, go or are cleared; queries read it without a
//! lock.
//!
//! A worker that is cleared goes on in another slot: the old one is hidden at once, which hides all its blocks, and freed when
//! every shard has swept it and no query can know what it stood for.

use std::collections::HashMap;
#[expect(clippy::disallowed_types, reason = "control plane; queries do not take it")]
use std::sync::{Mutex, MutexGuard};

use crate::ids::Worker;
use crate::placement::Slot;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Workers of one index at a time.
const WORKERS_MAX: usize = Slot::COUNT / 2;

/// The slots of one index. Two sources may bring the same worker; each has a slot of its own.
#[derive(Debug)]
pub(crate) struct Slots {
    cells: Box<[Cell; Slot::COUNT]>,
    /// By slot: shards that have not swept it yet.
    unswept: Box<[AtomicU32]>,
    /// Workers that more than one slot stands for.
    doubles: AtomicU32,
    shards: u32,
    #[expect(clippy::disallowed_types, reason = "see the import")]
    control: Mutex<Control>,
}

#[derive(Debug)]
struct Cell {
    worker_id: AtomicU64,
    /// With `VISIBLE` above it.
    dp_rank: AtomicU64,
}

const VISIBLE: u64 = 1 << 32;

#[derive(Debug, Default)]
struct Control {
    free: Vec<Slot>,
    /// Slots ever taken.
    used: usize,
    /// Slots each worker has.
    workers: HashMap<Worker, usize>,
    visible: usize,
}

impl Slots {
    pub(crate) fn new(shards: usize) -> Self {
        let cell = |_: usize| Cell { worker_id: AtomicU64::new(0), dp_rank: AtomicU64::new(0) };
        #[expect(clippy::disallowed_types, reason = "see the import")]
        let control = Mutex::new(Control::default());
        let shards = u32::try_from(shards).unwrap_or(u32::MAX);
        Self {
            cells: Box::new(std::array::from_fn(cell)),
            unswept: (0..Slot::COUNT).map(|_| AtomicU32::new(0)).collect(),
            doubles: AtomicU32::new(0),
            shards,
            control,
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes a free slot; `None` if there are as many workers as can be, or all other slots are still being swept.
    pub(crate) fn take(&self, worker: Worker) -> Option<Slot> {
        let mut control = self.control();
        if control.visible >= WORKERS_MAX {
            return None;
        }
        self.show(&mut control, worker)
    }

    /// Whether one more worker finds a place only after others were swept.
    pub(crate) fn must_wait(&self) -> bool {
        let control = self.control();
        control.visible < WORKERS_MAX && control.free.is_empty() && control.used == Slot::COUNT
    }

    /// Hides a slot, of which a sweep must follow, and gives its worker another at once: nobody can take its place. `None`, and
    /// nothing done, if all other slots are still being swept.
    pub(crate) fn exchange(&self, slot: Slot, worker: Worker) -> Option<Slot> {
        let mut control = self.control();
        let other = self.show(&mut control, worker)?;
        self.hide_in(&mut control, slot);
        Some(other)
    }

    fn show(&self, control: &mut Control, worker: Worker) -> Option<Slot> {
        let slot = match control.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = Slot::new(control.used)?;
                control.used += 1;
                slot
            }
        };
        control.visible += 1;
        let names = control.workers.entry(worker).or_insert(0);
        *names += 1;
        if *names == 2 {
            self.doubles.fetch_add(1, Ordering::Release);
        }
        let cell = &self.cells[slot.index()];
        cell.worker_id.store(worker.worker_id, Ordering::Relaxed);
        self.unswept[slot.index()].store(self.shards, Ordering::Relaxed);
        // Release: who sees the rank sees the id.
        cell.dp_rank.store(VISIBLE | u64::from(worker.dp_rank), Ordering::Release);
        Some(slot)
    }

    /// Hides a slot from queries, as if every block of it were gone. A sweep must follow.
    pub(crate) fn hide(&self, slot: Slot) {
        self.hide_in(&mut self.control(), slot);
    }

    fn hide_in(&self, control: &mut Control, slot: Slot) {
        let Some(worker) = self.worker(slot) else { return };
        self.cells[slot.index()].dp_rank.store(0, Ordering::Release);
        control.visible -= 1;
        if let Some(names) = control.workers.get_mut(&worker) {
            *names -= 1;
            match *names {
                0 => _ = control.workers.remove(&worker),
                1 => _ = self.doubles.fetch_sub(1, Ordering::Release),
                _ => {}
            }
        }
    }

    /// A shard holds nothing of a hidden slot any more, and no reader knows what it stood for there.
    pub(crate) fn swept(&self, slot: Slot) {
        if self.unswept[slot.index()].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.control().free.push(slot);
        }
    }

    /// Whether two slots stand for one worker.
    #[inline]
    pub(crate) fn has_doubles(&self) -> bool {
        self.doubles.load(Ordering::Acquire) > 0
    }

    /// The worker of a slot; `None` if it is hidden.
    #[inline]
    pub(crate) fn worker(&self, slot: Slot) -> Option<Worker> {
        let (worker, is_visible) = self.look(slot);
        is_visible.then_some(worker)
    }

    /// Who a slot stands for, and whether it does.
    #[inline]
    pub(crate) fn look(&self, slot: Slot) -> (Worker, bool) {
        let cell = &self.cells[slot.index() % Slot::COUNT];
        let dp_rank = cell.dp_rank.load(Ordering::Acquire);
        let worker = Worker { worker_id: cell.worker_id.load(Ordering::Relaxed), dp_rank: dp_rank as u32 };
        (worker, dp_rank & VISIBLE > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_index_lets_its_workers_change_slots_and_nobody_in() {
        let slots = Slots::new(1);
        let worker = |number: usize| Worker { worker_id: number as u64, dp_rank: 0 };
        let taken: Vec<_> = (0..WORKERS_MAX).map_while(|number| slots.take(worker(number))).collect();
        assert_eq!((taken.len(), slots.take(worker(WORKERS_MAX))), (WORKERS_MAX, None));
        let mut slot = taken[7];
        for _ in 0..WORKERS_MAX {
            let other = slots.exchange(slot, worker(7)).expect("a slot that was never taken");
            assert_eq!((slots.worker(slot), slots.worker(other)), (None, Some(worker(7))));
            slot = other;
        }
        // All others wait to be swept.
        assert_eq!((slots.exchange(slot, worker(7)), slots.worker(slot)), (None, Some(worker(7))));
        slots.swept(taken[7]);
        assert_eq!(slots.exchange(slot, worker(7)), Some(taken[7]));
        slots.hide(taken[9]);
        assert!(slots.must_wait(), "there is a place, but no slot yet");
        slots.swept(taken[9]);
        assert_eq!(slots.take(worker(WORKERS_MAX)), Some(taken[9]));
        assert!(!slots.has_doubles());
    }
}
