//! Indexes side by side on one trace: multi-turn prompts with shared beginnings, workers that evict leaves first.
//!
//! * Every query of a pass is a first touch: each query is answered by one system per pass, in rotation. Several systems
//!   answering one query in a row would warm the cache for those that come later.
//! * All answers of all systems to a query are compared.
//! * CPU is the whole process's: hand-over to a writer thread and that thread are in it.

mod systems;
mod workload;

use std::time::Instant;

use systems::{Answer, Ask, Chains, Kvtap, Question, Radix, System};
use workload::{Cfg, Event, Trace, generate};

use crate::alloc;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A small trace, one pass: does it run, do the answers agree.
    #[arg(long)]
    quick: bool,
    /// A JSON line per workers and system.
    #[arg(long)]
    json: bool,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',')]
    workers: Vec<usize>,
    /// Rotations over all systems.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
}

/// Prompt lengths in blocks.
const CLASSES: [(&str, usize); 4] =
    [("<128", 128), ("128-512", 512), ("512-1024", 1024), (">1024", usize::MAX)];

fn class(blocks: usize) -> usize {
    CLASSES.iter().position(|&(_, end)| blocks < end).expect("a class")
}

fn trace(workers: usize, quick: bool) -> Trace {
    let (capacity, steady_blocks) = match (quick, workers) {
        // Not fewer: a worker must have room for more than one prompt.
        (true, _) => (10_000, 100_000),
        (false, 0..=8) => (125_000, 1_000_000),
        (false, 9..=64) => (40_000, 2_000_000),
        (false, _) => (20_000, 3_000_000),
    };
    generate(Cfg {
        workers,
        capacity,
        sys_prompts: 64,
        steady_blocks,
        migrate_pct: 10,
        max_depth: 2000,
        rm_batch: 1,
        seed: 42,
    })
}

/// CPU nanoseconds per block, of all threads.
fn cpu(blocks: usize, work: impl FnOnce()) -> f64 {
    let start = cpu_time::ProcessTime::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / blocks as f64
}

/// Nanoseconds by length class.
type Times = [Vec<u32>; 4];

/// p50, p99, p99.9 in microseconds: the sample at that rank.
fn quantiles(times: &mut [u32]) -> [f64; 3] {
    times.sort_unstable();
    [0.5, 0.99, 0.999].map(|quantile| {
        let rank = (times.len().saturating_sub(1) as f64 * quantile) as usize;
        times.get(rank).map_or(f64::NAN, |&time| f64::from(time) / 1000.0)
    })
}

/// One system's numbers.
struct Row {
    name: &'static str,
    bytes_per_entry: f64,
    fill_cpu: f64,
    steady_cpu: f64,
    miss_ns: f64,
    quiet: Times,
    loaded: Times,
    answers: Vec<Option<Answer>>,
}

/// A system under measurement, whatever its types.
trait Subject {
    fn fill(&mut self, trace: &Trace, row: &mut Row);
    fn ask(&mut self, number: usize, question: &Question, row: &mut Row);
    fn miss(&mut self, row: &mut Row);
    fn steady(&mut self, trace: &Trace, row: &mut Row, questions: &[Question]);
}

struct Subjected<'s, S: System> {
    system: &'s S,
    asker: S::Asker<'s>,
}

fn blocks(events: &[Event]) -> usize {
    events.iter().map(|event| event.len as usize).sum()
}

impl<'s, S: System> Subject for Subjected<'s, S> {
    fn fill(&mut self, trace: &Trace, row: &mut Row) {
        let events = self.system.events(trace, &trace.fill);
        row.fill_cpu = cpu(blocks(&trace.fill), || self.system.apply(events));
    }

    fn ask(&mut self, number: usize, question: &Question, row: &mut Row) {
        question.warm();
        let start = Instant::now();
        self.asker.ask(question);
        row.quiet[class(question.raw.len())].push(start.elapsed().as_nanos() as u32);
        row.answers[number] = Some(self.asker.answer());
    }

    fn miss(&mut self, row: &mut Row) {
        let mut times: Vec<u32> = (0..4000_u64)
            .map(|number| {
                let mut rng = workload::Rng(number);
                let question = Question::new(&(0..64).map(|_| rng.next()).collect::<Vec<_>>());
                let start = Instant::now();
                self.asker.ask(&question);
                start.elapsed().as_nanos() as u32
            })
            .collect();
        row.miss_ns = quantiles(&mut times)[0] * 1000.0;
    }

    fn steady(&mut self, trace: &Trace, row: &mut Row, questions: &[Question]) {
        let (quiet, loaded) = trace.steady.split_at(trace.steady.len() / 2);
        let events = self.system.events(trace, quiet);
        row.steady_cpu = cpu(blocks(quiet), || self.system.apply(events));
        let events = self.system.events(trace, loaded);
        let mut questions = questions.iter().cycle();
        let (system, asker) = (self.system, &mut self.asker);
        system.apply_beside(events, &mut || {
            let Some(question) = questions.next() else { return };
            question.warm();
            let start = Instant::now();
            asker.ask(question);
            row.loaded[class(question.raw.len())].push(start.elapsed().as_nanos() as u32);
        });
    }
}

pub(crate) fn run(options: &Options) {
    let workers = match (&options.workers[..], options.quick) {
        ([], true) => vec![8, 16],
        ([], false) => vec![8, 64, 256],
        (some, _) => some.to_vec(),
    };
    for workers in workers {
        measure(&trace(workers, options.quick), options);
    }
}

fn measure(trace: &Trace, options: &Options) {
    let workers = trace.cfg.workers;
    let kvtap = Kvtap::new();
    let chains = Chains::new(workers);
    let (crtc, positional, radix) = (systems::crtc(), systems::positional(), Radix::new());
    let mut subjects: Vec<(&'static str, Box<dyn Subject + '_>)> = vec![
        ("kvtap", Box::new(Subjected { system: &kvtap, asker: kvtap.asker() })),
        ("kv-index", Box::new(Subjected { system: &chains, asker: chains.asker() })),
        ("crtc", Box::new(Subjected { system: &crtc, asker: crtc.asker() })),
        ("positional", Box::new(Subjected { system: &positional, asker: positional.asker() })),
        ("radix", Box::new(Subjected { system: &radix, asker: radix.asker() })),
    ];
    let questions: Vec<_> = trace.queries.iter().map(|query| Question::new(&query.locals)).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (name, subject) in &mut subjects {
        let mut row = Row {
            name,
            bytes_per_entry: 0.0,
            fill_cpu: 0.0,
            steady_cpu: 0.0,
            miss_ns: 0.0,
            quiet: Times::default(),
            loaded: Times::default(),
            answers: vec![None; questions.len()],
        };
        alloc::track(true);
        let before = alloc::live();
        subject.fill(trace, &mut row);
        row.bytes_per_entry = (alloc::live() - before) as f64 / trace.entries as f64;
        alloc::track(false);
        rows.push(row);
    }
    if !options.json {
        let [table, maps] = kvtap.bytes().map(|bytes| bytes as f64 / trace.entries as f64);
        println!("\n{workers} workers, {} entries, {} distinct blocks", trace.entries, trace.distinct);
        println!("kvtap by its own count: shards {table:.1}, engine-hash maps {maps:.1} bytes per entry");
    }
    for pass in 0..options.rounds * subjects.len() {
        for (number, question) in questions.iter().enumerate() {
            let at = (number + pass) % subjects.len();
            subjects[at].1.ask(number, question, &mut rows[at]);
        }
    }
    compare(&rows);
    for ((_, subject), row) in subjects.iter_mut().zip(&mut rows) {
        subject.miss(row);
        subject.steady(trace, row, &questions);
    }
    // All have seen the same: once more, without the clock.
    let mut after: Vec<Times> = rows.iter_mut().map(|row| std::mem::take(&mut row.quiet)).collect();
    for (number, question) in questions.iter().enumerate() {
        for ((_, subject), row) in subjects.iter_mut().zip(&mut rows) {
            subject.ask(number, question, row);
        }
    }
    compare(&rows);
    for (row, times) in rows.iter_mut().zip(after.drain(..)) {
        row.quiet = times;
    }
    for row in &mut rows {
        print(workers, row, options.json);
    }
}

fn compare(rows: &[Row]) {
    let matched: usize = rows[0].answers.iter().flatten().map(Vec::len).sum();
    assert!(matched > 0, "queries match something");
    for row in &rows[1..] {
        for (number, (one, other)) in rows[0].answers.iter().zip(&row.answers).enumerate() {
            assert!(one == other, "query {number}: {} says {one:?}, {} {other:?}", rows[0].name, row.name);
        }
    }
}

fn print(workers: usize, row: &mut Row, json: bool) {
    let quiet = row.quiet.each_mut().map(|times| quantiles(times));
    let loaded = row.loaded.each_mut().map(|times| quantiles(times));
    if json {
        let by_class = |all: [[f64; 3]; 4]| {
            let named =
                |[p50, p99, p999]: [f64; 3]| serde_json::json!({ "p50": p50, "p99": p99, "p999": p999 });
            CLASSES
                .iter()
                .zip(all)
                .map(|(&(name, _), each)| (name.to_owned(), named(each)))
                .collect::<serde_json::Map<_, _>>()
        };
        println!(
            "{}",
            serde_json::json!({
                "workers": workers, "system": row.name, "bytes_per_entry": row.bytes_per_entry,
                "ingest_cpu_ns_per_block": row.steady_cpu, "fill_cpu_ns_per_block": row.fill_cpu, "miss_ns": row.miss_ns,
                "query_us": { "quiet": by_class(quiet), "loaded": by_class(loaded) },
            })
        );
        return;
    }
    println!(
        "{:<11} {:>6.1} B/entry  ingest CPU ns/block {:>5.0} (filling {:>5.0})  miss {:>5.0} ns",
        row.name, row.bytes_per_entry, row.steady_cpu, row.fill_cpu, row.miss_ns
    );
    for (at, (name, _)) in CLASSES.iter().enumerate() {
        let [quiet, loaded] = [quiet[at], loaded[at]];
        println!(
            "    {name:<9} quiet {:>6.2} {:>6.2} {:>7.2}   loaded {:>6.2} {:>7.2} {:>8.2}  ({} and {} samples)",
            quiet[0],
            quiet[1],
            quiet[2],
            loaded[0],
            loaded[1],
            loaded[2],
            row.quiet[at].len(),
            row.loaded[at].len()
        );
    }
}
