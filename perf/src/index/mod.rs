//! `index`: indexes side by side on one trace.
//!
//! * Every query of a pass is a first touch: each query is answered by one system per pass, in rotation. Several systems
//!   answering one query in a row would warm the cache for those that come later.
//! * All answers of all systems to a query are compared.
//! * CPU is the whole process's: hand-over to a writer thread and that thread are in it.

mod memory;
mod report;
mod subject;
pub(crate) mod systems;
mod workload;

use subject::{Row, Subject, Subjected};
use systems::dynamo::{Pool, Radix};
use systems::kv_index::Chains;
use systems::kvtap::{Kvtap, KvtapVec};
use workload::{Size, Trace, generate};

use crate::machine;

/// What to measure.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Options {
    /// Small traces, no memory check: within 40 seconds.
    #[arg(long)]
    quick: bool,
    /// Print a JSON line per workers and system; the rest goes to standard error.
    #[arg(long)]
    json: bool,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',')]
    workers: Vec<usize>,
    /// Rotations over all systems; every query is timed once per system in each.
    #[arg(long, default_value_t = 2)]
    rotations: usize,
    /// Ask kvtap for a vector of whole matches too.
    #[arg(long)]
    vec: bool,
}

/// Runs of reader threads, of which the best counts.
const READ_RUNS: usize = 7;

pub(crate) fn run(options: &Options) {
    let show = |text: &str| if options.json { eprint!("{text}") } else { print!("{text}") };
    show(&machine::line(&["kvtap", "kv-index", "dynamo-kv-router"]));
    let workers = match (&options.workers[..], options.quick) {
        ([], true) => vec![8, 64],
        ([], false) => vec![8, 64, 256],
        (some, _) => some.to_vec(),
    };
    for workers in workers {
        let trace = generate(size(workers, options.quick));
        let (mut rows, own) = measure(&trace, options);
        show(&report::section(&trace, own, &mut rows));
        if options.json {
            print!("{}", report::json_lines(workers, &mut rows));
        }
    }
    if !options.quick {
        show(&memory::check());
    }
}

/// A worker must have room for more than one prompt.
fn size(workers: usize, quick: bool) -> Size {
    let queries = if quick { 4_000 } else { 16_000 };
    let (capacity, steady_blocks) = match (quick, workers) {
        (true, 0..=8) => (40_000, 300_000),
        (true, _) => (10_000, 300_000),
        (false, 0..=8) => (125_000, 1_000_000),
        (false, 9..=64) => (40_000, 2_000_000),
        (false, _) => (20_000, 3_000_000),
    };
    Size { workers, capacity, steady_blocks, queries }
}

/// Gives what kvtap says of its own size beside the rows.
fn measure(trace: &Trace, options: &Options) -> (Vec<Row>, [usize; 2]) {
    let kvtap = Kvtap::new();
    let vec = KvtapVec(&kvtap);
    let chains = Chains::new(trace.workers);
    let (crtc, positional, radix) = (Pool::crtc(), Pool::positional(), Radix::new());
    let mut subjects: Vec<(&'static str, Box<dyn Subject + '_>)> = vec![
        ("kvtap", Box::new(Subjected::new(&kvtap))),
        ("kv-index", Box::new(Subjected::new(&chains))),
        ("crtc", Box::new(Subjected::new(&crtc))),
        ("positional", Box::new(Subjected::new(&positional))),
        ("radix", Box::new(Subjected::new(&radix))),
    ];
    if options.vec {
        subjects.push(("kvtap-vec", Box::new(Subjected::new(&vec))));
    }
    let mut all: Vec<_> = subjects.into_iter().map(|(name, subject)| (subject, Row::new(name))).collect();
    for (subject, row) in &mut all {
        subject.fill(trace, row);
    }
    let own = kvtap.bytes();
    for _ in 0..options.rotations {
        rotate(trace, &mut all, &[0, 1, 2, 3, 4]);
        if options.vec {
            // In the place of kvtap, for which it would warm the cache.
            rotate(trace, &mut all, &[5, 1, 2, 3, 4]);
        }
    }
    compare(trace, &mut all, |matched| matched > 0);
    for (subject, row) in &mut all {
        subject.miss(row);
        subject.steady(trace, row);
    }
    compare(trace, &mut all, |matched| matched > 0);
    for _ in 0..READ_RUNS {
        for (subject, row) in &mut all {
            subject.read(trace, row);
        }
    }
    for (subject, row) in &mut all {
        subject.evict(trace, row);
    }
    compare(trace, &mut all, |matched| matched == 0);
    for (subject, row) in &mut all {
        subject.refill(trace, row);
    }
    compare(trace, &mut all, |matched| matched > 0);
    for (subject, row) in &mut all {
        subject.clear(trace, row);
    }
    compare(trace, &mut all, |matched| matched == 0);
    (all.into_iter().map(|(_, row)| row).collect(), own)
}

/// In each pass every query is one system's, in the next another's.
fn rotate(trace: &Trace, all: &mut [(Box<dyn Subject + '_>, Row)], members: &[usize]) {
    for pass in 0..members.len() {
        for (number, prompt) in trace.queries.iter().enumerate() {
            let (subject, row) = &mut all[members[(number + pass) % members.len()]];
            subject.time(prompt, row);
        }
    }
}

/// Asks every system everything.
///
/// # Panics
/// If they do not say the same, or their matches together are not as expected.
fn compare(trace: &Trace, all: &mut [(Box<dyn Subject + '_>, Row)], expected: impl FnOnce(usize) -> bool) {
    let mut matched = 0;
    for (number, prompt) in trace.queries.iter().enumerate() {
        let (first, others) = all.split_first_mut().expect("a system");
        let answer = first.0.answer(prompt);
        for (subject, row) in others {
            let other = subject.answer(prompt);
            assert!(answer == other, "query {number}: kvtap says {answer:?}, {} {other:?}", row.name);
        }
        matched += answer.len();
    }
    assert!(expected(matched), "{matched} matches");
}
