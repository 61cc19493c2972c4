//! A run's state in one word, version and length, and how a reader finds out that something has changed under it.
//!
//! The writer raises the version before and after a change, with Release; nothing that follows from it is written before the
//! second time. (Blocks added for a worker that has them at one tier only need no version: a walk that misses them is one that came
//! earlier.) A reader looks at the version first, with Acquire, and again at its end:
//!
//! * It saw the change, or what was written after it: then it sees a version at its end that it did not see first, unless its
//!   first look came after the change, and so did all it saw.
//! * It did not: then all it saw was so before the change.

use super::run::{high, low, pair};
use crate::sync::{AtomicU64, Ordering};

/// A run's length, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) version: u32,
    pub(crate) length: u32,
}

/// The state now. What is loaded after it is at least as new.
#[inline]
pub(super) fn look(word: &AtomicU64) -> State {
    let word = word.load(Ordering::Acquire);
    State { version: high(word), length: low(word) }
}

/// Another length; only the writer calls it. Fewer blocks are a change that takes something away: the version rises with it.
#[inline]
pub(super) fn set_length(word: &AtomicU64, length: u32) {
    let state = own(word);
    let version = if length < state.length { state.version.wrapping_add(1) } else { state.version };
    word.store(pair(version, length), Ordering::Release);
}

/// Raises the version; only the writer calls it.
#[inline]
pub(super) fn raise(word: &AtomicU64) {
    let state = own(word);
    word.store(pair(state.version.wrapping_add(1), state.length), Ordering::Release);
}

/// Changes something; only the writer calls it. The change must store with Release.
#[inline]
pub(super) fn change(word: &AtomicU64, make: impl FnOnce()) {
    raise(word);
    make();
    raise(word);
}

fn own(word: &AtomicU64) -> State {
    let word = word.load(Ordering::Relaxed);
    State { version: high(word), length: low(word) }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::Arc;

    use super::*;
    use crate::epoch::Pins;
    use crate::sync::fence;

    /// Two runs, each with a state and two words that say what a worker holds.
    #[derive(Default)]
    struct Runs {
        states: [AtomicU64; 2],
        words: [AtomicU64; 2],
    }

    /// Words in some order, if no version changed meanwhile.
    fn walk(runs: &Runs, order: [usize; 2]) -> Option<[u64; 2]> {
        let mut seen = [0; 2];
        let mut versions = [0; 2];
        for at in order {
            versions[at] = look(&runs.states[at]).version;
            seen[at] = runs.words[at].load(Ordering::Acquire);
        }
        fence(Ordering::Acquire);
        let is_same = (0..2).all(|at| look(&runs.states[at]).version == versions[at]);
        is_same.then_some(seen)
    }

    #[test]
    fn a_hole_before_a_later_store_is_never_missed() {
        loom::model(|| {
            let runs = Arc::new(Runs::default());
            runs.words[0].store(1, Ordering::Relaxed);
            let writer = loom::thread::spawn({
                let runs = Arc::clone(&runs);
                move || {
                    change(&runs.states[0], || runs.words[0].store(0, Ordering::Release));
                    runs.words[1].store(1, Ordering::Release);
                }
            });
            // The worker never held both.
            assert_ne!(walk(&runs, [0, 1]), Some([1, 1]));
            writer.join().expect("no panic");
        });
    }

    #[test]
    fn a_store_at_another_tier_is_never_seen_without_the_one_before() {
        loom::model(|| {
            let runs = Arc::new(Runs::default());
            // The device's holder in a run, the host's in its child.
            let writer = loom::thread::spawn({
                let runs = Arc::clone(&runs);
                move || {
                    change(&runs.states[0], || runs.words[0].store(1, Ordering::Release));
                    change(&runs.states[1], || runs.words[1].store(1, Ordering::Release));
                }
            });
            assert_ne!(walk(&runs, [0, 1]), Some([0, 1]));
            writer.join().expect("no panic");
        });
    }

    #[test]
    fn a_block_that_moves_to_another_tier_is_never_missed() {
        loom::model(|| {
            let runs = Arc::new(Runs::default());
            // One run; its first word is the device's holder, its second the host's.
            runs.words[0].store(1, Ordering::Relaxed);
            let writer = loom::thread::spawn({
                let runs = Arc::clone(&runs);
                move || {
                    raise(&runs.states[0]);
                    runs.words[1].store(1, Ordering::Release);
                    change(&runs.states[0], || runs.words[0].store(0, Ordering::Release));
                }
            });
            let first = look(&runs.states[0]).version;
            let host = runs.words[1].load(Ordering::Acquire);
            let device = runs.words[0].load(Ordering::Acquire);
            fence(Ordering::Acquire);
            if look(&runs.states[0]).version == first {
                assert_ne!((device, host), (0, 0));
            }
            writer.join().expect("no panic");
        });
    }

    #[test]
    fn a_place_that_is_used_again_is_never_taken_for_what_was_there() {
        loom::model(|| {
            let runs = Arc::new(Runs::default());
            // A block (word 0) that somebody holds (word 1).
            runs.states[0].store(pair(0, 1), Ordering::Relaxed);
            runs.words[0].store(7, Ordering::Relaxed);
            runs.words[1].store(1, Ordering::Relaxed);
            let writer = loom::thread::spawn({
                let runs = Arc::clone(&runs);
                move || {
                    change(&runs.states[0], || runs.words[1].store(0, Ordering::Release));
                    set_length(&runs.states[0], 0);
                    runs.words[0].store(8, Ordering::Release);
                    set_length(&runs.states[0], 1);
                    runs.words[1].store(2, Ordering::Release);
                }
            });
            let state = look(&runs.states[0]);
            let block = runs.words[0].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let holder = runs.words[1].load(Ordering::Acquire);
            fence(Ordering::Acquire);
            if look(&runs.states[0]).version == state.version && state.length == 1 && holder > 0 {
                assert_eq!((block, holder), if holder == 1 { (7, 1) } else { (8, 2) });
            }
            writer.join().expect("no panic");
        });
    }

    #[test]
    fn what_a_pinned_reader_can_reach_is_not_used_again() {
        loom::model(|| {
            let (pins, runs) = (Arc::new(Pins::new()), Arc::new(Runs::default()));
            // Word 0 links to word 1, which holds 5, or to nothing.
            runs.words[0].store(1, Ordering::Relaxed);
            runs.words[1].store(5, Ordering::Relaxed);
            let pin = pins.enter();
            let writer = loom::thread::spawn({
                let (pins, runs) = (Arc::clone(&pins), Arc::clone(&runs));
                move || {
                    runs.words[0].store(0, Ordering::Release);
                    let epoch = pins.advance();
                    if pins.oldest() > epoch {
                        runs.words[1].store(6, Ordering::Relaxed);
                    }
                }
            });
            let guard = pins.pin(&pin);
            if runs.words[0].load(Ordering::Acquire) == 1 {
                assert_eq!(runs.words[1].load(Ordering::Relaxed), 5);
            }
            drop(guard);
            writer.join().expect("no panic");
        });
    }
}
