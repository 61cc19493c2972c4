//! What is measured of one system, phase by phase.

use super::systems::{Answer, Ask, System};
use super::workload::{Event, Random, Trace, count};
use crate::alloc;

/// Prompt lengths in blocks.
pub(super) const CLASSES: [(&str, usize); 4] =
    [("<128", 128), ("128-512", 512), ("512-1024", 1024), (">1024", usize::MAX)];

/// Nanoseconds by length class.
pub(super) type Times = [Vec<u32>; 4];

/// CPU nanoseconds per block, of all threads.
#[derive(Default)]
pub(super) struct Cpu {
    /// Almost only stored events, into an index that grows.
    pub(super) fill: Option<f64>,
    /// As many blocks stored as removed: ingest.
    pub(super) steady: Option<f64>,
    pub(super) removed: Option<f64>,
    pub(super) stored: Option<f64>,
    pub(super) cleared: Option<f64>,
}

/// One system's numbers.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) bytes_per_entry: Option<f64>,
    pub(super) cpu: Cpu,
    /// Of prompts whose first block nobody has.
    pub(super) miss: Vec<u32>,
    pub(super) quiet: Times,
    /// While another thread applies events as fast as it can.
    pub(super) loaded: Times,
    /// Queries per second of one and of two threads, the best run.
    pub(super) read: [Option<f64>; 2],
}

impl Row {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            bytes_per_entry: None,
            cpu: Cpu::default(),
            miss: Vec::new(),
            quiet: Times::default(),
            loaded: Times::default(),
            read: [None; 2],
        }
    }
}

/// A system under measurement, whatever its types.
pub(super) trait Subject {
    fn fill(&mut self, trace: &Trace, row: &mut Row);
    fn time(&mut self, prompt: &[u64], row: &mut Row);
    fn answer(&mut self, prompt: &[u64]) -> Answer;
    fn miss(&mut self, row: &mut Row);
    /// The first half by itself, for its CPU time, the second beside queries.
    fn steady(&mut self, trace: &Trace, row: &mut Row);
    fn read(&mut self, trace: &Trace, row: &mut Row);
    fn evict(&mut self, trace: &Trace, row: &mut Row);
    fn refill(&mut self, trace: &Trace, row: &mut Row);
    fn clear(&mut self, trace: &Trace, row: &mut Row);
}

pub(super) struct Subjected<'s, S: System> {
    system: &'s S,
    asker: S::Asker<'s>,
}

impl<'s, S: System> Subjected<'s, S> {
    pub(super) fn new(system: &'s S) -> Self {
        Self { system, asker: system.asker() }
    }

    fn cpu(&self, trace: &Trace, events: &[Event], blocks: usize) -> Option<f64> {
        let events = self.system.events(trace, events);
        let start = cpu_time::ProcessTime::now();
        self.system.apply(events);
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
        self.system.is_fed().then_some(nanoseconds / blocks as f64)
    }
}

fn class(prompt: &[u64]) -> usize {
    CLASSES.iter().position(|&(_, end)| prompt.len() < end).expect("the last has no end")
}

impl<S: System> Subject for Subjected<'_, S> {
    fn fill(&mut self, trace: &Trace, row: &mut Row) {
        alloc::track(true);
        let before = alloc::live();
        row.cpu.fill = self.cpu(trace, &trace.fill, count(&trace.fill));
        let bytes = (alloc::live() - before) as f64;
        alloc::track(false);
        row.bytes_per_entry = self.system.is_fed().then_some(bytes / trace.entries as f64);
    }

    fn time(&mut self, prompt: &[u64], row: &mut Row) {
        row.quiet[class(prompt)].push(self.asker.time(prompt));
    }

    fn answer(&mut self, prompt: &[u64]) -> Answer {
        self.asker.prepare(prompt);
        self.asker.ask();
        self.asker.answer()
    }

    fn miss(&mut self, row: &mut Row) {
        let asker = &mut self.asker;
        let time = |seed| {
            let mut random = Random(seed);
            let prompt: Vec<_> = (0..64).map(|_| random.next()).collect();
            asker.time(&prompt)
        };
        row.miss = (0..4000).map(time).collect();
    }

    fn steady(&mut self, trace: &Trace, row: &mut Row) {
        let (alone, beside) = trace.steady.split_at(trace.steady.len() / 2);
        row.cpu.steady = self.cpu(trace, alone, count(alone));
        let events = self.system.events(trace, beside);
        let mut prompts = trace.queries.iter().cycle();
        let asker = &mut self.asker;
        self.system.apply_beside(events, &mut || {
            let prompt = prompts.next().expect("queries");
            row.loaded[class(prompt)].push(asker.time(prompt));
        });
    }

    fn read(&mut self, trace: &Trace, row: &mut Row) {
        for (best, threads) in row.read.iter_mut().zip(1..) {
            let rate = self.system.read(&trace.queries, threads);
            *best = rate.map(|rate| rate.max(best.unwrap_or(0.0)));
        }
    }

    fn evict(&mut self, trace: &Trace, row: &mut Row) {
        row.cpu.removed = self.cpu(trace, &trace.evict, count(&trace.evict));
    }

    fn refill(&mut self, trace: &Trace, row: &mut Row) {
        row.cpu.stored = self.cpu(trace, &trace.refill, count(&trace.refill));
    }

    fn clear(&mut self, trace: &Trace, row: &mut Row) {
        row.cpu.cleared = self.cpu(trace, &trace.clear, count(&trace.refill));
    }
}
