//! How holders of a run come, change and go, and their places with them. What they are told of is the writer's business.

use super::arena::Arena;
use super::memory::Line;
use super::run::{HOLDER_COUNTS, HOLDERS, Holder, IS_UNEVEN, Run, high, low, pair};
use super::runs::Runs;
use crate::sync::Ordering;

/// Holders that lie in the header.
const INLINE_HOLDERS: usize = 2;

impl Runs {
    /// Adds a holder of a run; gives its place. The others keep theirs. `None` if there is no room.
    pub(super) fn add_holder(&mut self, line: Line, holder: Holder) -> Option<usize> {
        let place = match self.crowds.free_place(Run::at(self.arena.view(), line)?) {
            Some(place) => place,
            None => {
                let run = self.run(line)?;
                let link = run.load(HOLDERS);
                let count = run.holders().len();
                if high(link) == 0 || Arena::room(count) == count {
                    self.move_holders(line, count + 1)?;
                } else {
                    self.view().words(Line(high(link)), count + 1).last()?.store(0, Ordering::Relaxed);
                    run.store(HOLDERS, link + 1);
                }
                count
            }
        };
        let run = Run::at(self.arena.view(), line)?;
        run.holders().get(place)?.store(holder.word(), Ordering::Release);
        count(run, 1);
        self.crowds.add(run, place, holder);
        Some(place)
    }

    /// Tells of a holder that has begun elsewhere.
    #[inline]
    pub(super) fn move_start(&mut self, line: Line, place: usize, old: Holder, start: u32) {
        let Some(run) = Run::at(self.arena.view(), line) else { return };
        self.crowds.move_start(run, place, old, start);
    }

    /// Frees the place of a holder whose word is 0 already.
    pub(super) fn free_holder(&mut self, line: Line, place: usize, old: Holder) {
        let Some(run) = Run::at(self.arena.view(), line) else { return };
        count(run, -1);
        self.crowds.free(run, place, old);
        self.gather_holders(line);
    }

    /// Moves holders together if most places are free.
    fn gather_holders(&mut self, line: Line) {
        let Some(run) = self.run(line) else { return };
        let (places, live) = (run.holders().len(), high(run.load(HOLDER_COUNTS)) as usize);
        // Not into the header: readers may be looking at what lies there from before.
        if places > 16
            && live < places / 4
            && self.move_holders(line, live.max(INLINE_HOLDERS + 1)).is_some()
            && let Some(run) = Run::at(self.arena.view(), line)
        {
            self.crowds.build(run);
        }
    }

    /// Moves a run's holders, in order, to a place for so many.
    fn move_holders(&mut self, line: Line, count: usize) -> Option<()> {
        let link = if count <= INLINE_HOLDERS { 0 } else { self.arena.take(count)?.0 };
        let link = pair(link, count as u32);
        let run = self.run(line)?;
        let (old, old_link) = (run.holders(), run.load(HOLDERS));
        let new = run.holders_of(link);
        let mut live = old.iter().map(|word| word.load(Ordering::Relaxed)).filter(|&word| word > 0);
        for word in new {
            word.store(live.next().unwrap_or(0), Ordering::Relaxed);
        }
        run.store(HOLDERS, link);
        if high(old_link) > 0 {
            self.arena.unlink(Line(high(old_link)), low(old_link) as usize);
        }
        Some(())
    }
}

/// Counts holders that are not free places.
fn count(run: Run<'_>, change: i32) {
    let counts = run.load(HOLDER_COUNTS);
    let live = high(counts).wrapping_add_signed(change);
    // Without holders there is nothing uneven.
    let rest = if live == 0 { low(counts) & !IS_UNEVEN } else { low(counts) };
    run.store(HOLDER_COUNTS, pair(live, rest));
}
