//! Interleaved rounds. The machine is shared, so every system runs in every round, in one process; medians are kept. Compare
//! ratios, not absolute times.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::alloc;
use crate::peers::System;
use crate::support::payload::{Payload, Record};

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Of one system in one round, roughly.
    pub(crate) slice: Duration,
}

/// What was measured of one system over the payloads of one case.
pub(crate) struct Measured {
    pub(crate) name: String,
    /// Median over rounds.
    pub(crate) ns_per_payload: f64,
    pub(crate) allocs_per_payload: f64,
}

/// Payloads over which allocations are counted.
const COUNTED: usize = 200;

/// One system with its place in the rotation and the records it reuses.
struct Lane<'p> {
    system: Box<dyn System>,
    payloads: &'p [Payload],
    at: usize,
    records: Vec<Record>,
    payloads_per_slice: u32,
    allocs_per_payload: f64,
    rounds: Vec<f64>,
}

/// Checks the systems' records over all payloads, then measures.
///
/// # Panics
/// If a system's records are wrong: nothing it takes time for is worth knowing.
pub(crate) fn measure(systems: Vec<Box<dyn System>>, payloads: &[Payload], plan: Plan) -> Vec<Measured> {
    let mut lanes: Vec<Lane<'_>> = systems.into_iter().map(|system| Lane::new(system, payloads)).collect();
    for lane in &mut lanes {
        lane.check();
        lane.count();
        lane.fit(plan.slice);
    }
    for round in 0..plan.rounds {
        // Whoever runs first finds the caches as the last one of the round before left them: take turns.
        let systems = lanes.len();
        for turn in 0..systems {
            lanes[(round + turn) % systems].round();
        }
    }
    lanes.into_iter().map(Lane::finish).collect()
}

impl<'p> Lane<'p> {
    fn new(system: Box<dyn System>, payloads: &'p [Payload]) -> Self {
        Self {
            system,
            payloads,
            at: 0,
            records: Vec::new(),
            payloads_per_slice: 1,
            allocs_per_payload: 0.0,
            rounds: Vec::new(),
        }
    }

    /// Decodes all payloads, which also grows every buffer that is reused.
    fn check(&mut self) {
        for payload in self.payloads {
            self.records.clear();
            self.system.decode(payload, &mut self.records);
            if self.system.makes_records() {
                assert!(self.records == payload.records, "{} decodes to wrong records", self.system.name());
            }
        }
    }

    fn count(&mut self) {
        let before = alloc::calls();
        let counted = self.payloads.len().min(COUNTED);
        (0..counted).for_each(|_| self.step());
        self.allocs_per_payload = (alloc::calls() - before) as f64 / counted as f64;
    }

    /// Finds how many payloads a slice takes.
    fn fit(&mut self, slice: Duration) {
        let (start, mut steps) = (Instant::now(), 0_u32);
        while start.elapsed() < slice / 2 {
            self.step();
            steps += 1;
        }
        self.payloads_per_slice = steps.saturating_mul(2).max(1);
    }

    fn round(&mut self) {
        let start = Instant::now();
        (0..self.payloads_per_slice).for_each(|_| self.step());
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
        self.rounds.push(nanoseconds / f64::from(self.payloads_per_slice));
    }

    #[inline]
    fn step(&mut self) {
        self.records.clear();
        self.system.decode(&self.payloads[self.at], &mut self.records);
        black_box(&self.records);
        self.at += 1;
        if self.at == self.payloads.len() {
            self.at = 0;
        }
    }

    fn finish(mut self) -> Measured {
        self.rounds.sort_by(f64::total_cmp);
        Measured {
            name: self.system.name(),
            ns_per_payload: self.rounds[self.rounds.len() / 2],
            allocs_per_payload: self.allocs_per_payload,
        }
    }
}
