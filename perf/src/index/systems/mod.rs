//! The indexes behind the calls the measurement needs.
//!
//! Events are made in a system's own form before the clock starts; freeing them is inside it.

pub(crate) mod dynamo;
#[expect(clippy::disallowed_types, reason = "only the thread that applies takes the lock")]
pub(crate) mod kv_index;
#[expect(clippy::disallowed_types, reason = "only the thread that applies takes the lock")]
pub(crate) mod kvtap;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::workload::{Event, Trace};

/// Worker and depth, by worker.
pub(crate) type Answer = Vec<(u32, u32)>;

/// An index.
pub(crate) trait System {
    /// Events in its own form.
    type Events: Send;
    /// The side that asks.
    type Asker<'a>: Ask
    where
        Self: 'a;
    fn events(&self, trace: &Trace, events: &[Event]) -> Self::Events;
    /// Applies them, and waits until they can be seen.
    fn apply(&self, events: Self::Events);
    /// Applies them on another thread, and asks meanwhile, if the system allows that.
    fn apply_beside(&self, events: Self::Events, ask: &mut dyn FnMut());
    /// Queries per second of so many threads together, if the system allows more than one.
    fn read(&self, prompts: &[Vec<u64>], threads: usize) -> Option<f64>;
    fn asker(&self) -> Self::Asker<'_>;
    /// Whether it takes events; a second way to ask an index does not.
    fn is_fed(&self) -> bool {
        true
    }
}

/// Asks for one prompt at a time.
pub(crate) trait Ask {
    /// Copies the local hashes into the form that is asked with, which brings them into the cache, as if they had just been
    /// computed.
    fn prepare(&mut self, prompt: &[u64]);
    /// What is timed.
    fn ask(&mut self);
    /// The last answer.
    fn answer(&self) -> Answer;

    /// Nanoseconds that one answer takes; four seconds at most.
    fn time(&mut self, prompt: &[u64]) -> u32 {
        self.prepare(prompt);
        let start = Instant::now();
        self.ask();
        u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX)
    }
}

fn beside<S: System + Sync>(system: &S, events: S::Events, ask: &mut dyn FnMut()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            system.apply(events);
            done.store(true, Ordering::Release);
        });
        // Acquire: pairs with the Release above.
        while !done.load(Ordering::Acquire) {
            ask();
        }
    });
}

/// Each thread asks everything once, beginning elsewhere. Only asking is counted.
fn read<S: System + Sync>(system: &S, prompts: &[Vec<u64>], threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let each = |number: usize| {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut asker = system.asker();
                let (first, second) = prompts.split_at(prompts.len() * number / threads);
                barrier.wait();
                let times = second.iter().chain(first).map(|prompt| u64::from(asker.time(prompt)));
                prompts.len() as f64 * 1e9 / times.sum::<u64>() as f64
            })
        };
        let threads: Vec<_> = (0..threads).map(each).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn sorted(matches: impl Iterator<Item = (u32, u32)>) -> Answer {
    let mut answer: Answer = matches.filter(|&(_, depth)| depth > 0).collect();
    answer.sort_unstable();
    answer
}
