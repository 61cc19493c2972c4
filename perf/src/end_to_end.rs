//! `end-to-end`: payload bytes to blocks that a query finds, one event thread each.
//!
//! kvtap: `Ingest::apply` for every payload, then `flush`. dynamo: what its listener does: `decode_event_batch`,
//! `ZmqEventNormalizer::normalize` and hand-over of every event, then `flush_and_wait`. A *filling* pass stores everything into
//! a fresh index; making it and taking it down are not timed. A *steady* pass goes on with the index of the last one: after each
//! payload that stores, one that evicts as much, a block per event, leaves first. CPU is that of all threads.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Instant;

use clap::Args;
use dynamo_kv_router::protocols::WorkerWithDpRank;
use dynamo_kv_router::zmq_wire::{ZmqEventNormalizer, decode_event_batch};
use kvtap::{Config, Engine, Ingest, LocalHash, Reader, SourceConfig};
use serde_json::json;

use crate::index::systems::dynamo::Crtc;
use crate::index::systems::{Answer, Ask as _, System as _};
use crate::machine;
use crate::support::cases::{self, Case, Encoding};
use crate::support::pack::Pack;
use crate::support::payload::{Payload, payloads};

/// What to measure, and how to show it.
#[derive(Args)]
pub(crate) struct Options {
    /// Fewer and shorter passes, within 20 seconds.
    #[arg(long)]
    quick: bool,
    /// Print a JSON line per case and system; the table goes to standard error.
    #[arg(long)]
    json: bool,
}

const CASES: [&str; 8] = [
    "tuple-bs16-b1",
    "tuple-bs16-b8",
    "tuple-bs16-b64",
    "tuple-bs16-b512",
    "map-bs16-b1",
    "map-bs16-b8",
    "map-bs16-b64",
    "map-bs16-b512",
];
const SYSTEMS: [&str; 2] = ["kvtap", "dynamo"];
/// Prompts that both are asked for after each pass.
const PROMPTS: usize = 100;
const WORKER: u64 = 7;

/// What passes do.
#[derive(Clone, Copy)]
enum Mode {
    Filling,
    Steady,
}

const MODES: [(&str, Mode); 2] = [("filling", Mode::Filling), ("steady", Mode::Steady)];

/// Nanoseconds per block.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
}

/// What the passes of one system over one case took.
struct Row {
    case: &'static str,
    mode: &'static str,
    system: &'static str,
    passes: Vec<Cost>,
}

impl Row {
    /// Median over passes of each.
    fn median(&self) -> Cost {
        let middle = |of: fn(&Cost) -> f64| {
            let mut all: Vec<_> = self.passes.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Cost { cpu: middle(|cost| cost.cpu), wall: middle(|cost| cost.wall) }
    }
}

pub(crate) fn run(options: &Options) {
    let show = |text: &str| if options.json { eprint!("{text}") } else { print!("{text}") };
    show(&machine::line(&["kvtap", "dynamo-kv-router"]));
    show(
        "\n| case | passes | kvtap CPU | dynamo CPU | times | kvtap wall | dynamo wall | times |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let (passes, tokens) = if options.quick { (5, 800_000) } else { (11, 3_000_000) };
    for name in CASES {
        let case = cases::named(name);
        let payloads = payloads(&case, tokens);
        for (mode_name, mode) in MODES {
            let mut rows =
                SYSTEMS.map(|system| Row { case: name, mode: mode_name, system, passes: Vec::new() });
            measure(&mut rows, passes, &Work::new(mode, &case, &payloads));
            show(&line(&rows));
            if options.json {
                print!("{}", json_lines(&rows));
            }
        }
    }
}

/// What two passes in a row do, by turns.
struct Work<'p> {
    block_size: u32,
    turns: [Turn<'p>; 2],
    /// Whether a pass begins with what the other turn left behind.
    goes_on: bool,
}

/// What a pass does.
struct Turn<'p> {
    payloads: Vec<Cow<'p, [u8]>>,
    /// Stored or removed.
    blocks: usize,
    stays: &'p [Payload],
}

impl<'p> Work<'p> {
    fn new(mode: Mode, case: &Case, payloads: &'p [Payload]) -> Self {
        let block_size = case.block_size as u32;
        match mode {
            Mode::Filling => {
                Self { block_size, turns: [(); 2].map(|()| Turn::filling(payloads)), goes_on: false }
            }
            Mode::Steady => {
                let (one, other) = payloads.split_at(payloads.len() / 2);
                let other = &other[..one.len()];
                let turns = [Turn::steady(case, one, other), Turn::steady(case, other, one)];
                Self { block_size, turns, goes_on: true }
            }
        }
    }
}

impl<'p> Turn<'p> {
    fn filling(stays: &'p [Payload]) -> Self {
        let payloads = stays.iter().map(|payload| Cow::Borrowed(&payload.bytes[..])).collect();
        Self { payloads, blocks: stays.iter().map(|payload| payload.blocks).sum(), stays }
    }

    fn steady(case: &Case, stays: &'p [Payload], goes: &[Payload]) -> Self {
        let pairs = stays
            .iter()
            .zip(goes)
            .flat_map(|(stored, gone)| [Cow::Borrowed(&stored.bytes[..]), Cow::Owned(removing(case, gone))]);
        let payloads = pairs.collect();
        let blocks = |payloads: &[Payload]| payloads.iter().map(|payload| payload.blocks).sum::<usize>();
        Self { payloads, blocks: blocks(stays) + blocks(goes), stays }
    }
}

/// A payload that evicts what another stored.
fn removing(case: &Case, stored: &Payload) -> Vec<u8> {
    let mut out = Pack::default();
    out.array(3);
    out.float(1_764_000_000.25);
    out.array(stored.records.len());
    for record in stored.records.iter().rev() {
        let key = |out: &mut Pack, key: &str| {
            if case.encoding == Encoding::Map {
                out.text(key);
            }
        };
        match case.encoding {
            Encoding::Map => out.map(3),
            Encoding::Tuple => out.array(3),
        }
        key(&mut out, "type");
        out.text("BlockRemoved");
        key(&mut out, "block_hashes");
        out.array(1);
        out.uint(record.engine_hash);
        key(&mut out, "medium");
        out.text("GPU");
    }
    out.uint(0);
    out.0
}

/// The systems take turns in who is first.
fn measure(rows: &mut [Row; 2], passes: usize, work: &Work<'_>) {
    let fresh: [fn(u32) -> Box<dyn System>; 2] = [Kvtap::fresh, Dynamo::fresh];
    let mut systems = fresh.map(|fresh| fresh(work.block_size));
    if work.goes_on {
        let before = Turn::filling(work.turns[1].stays);
        systems.iter_mut().for_each(|system| system.apply(&before.payloads));
    }
    for pass in 0..passes {
        let turn = &work.turns[pass % 2];
        for at in [pass % 2, 1 - pass % 2] {
            if !work.goes_on {
                systems[at] = fresh[at](work.block_size);
            }
            let cost = cost(turn.blocks, || systems[at].apply(&turn.payloads));
            rows[at].passes.push(cost);
        }
        check(&mut systems, turn.stays, true);
        if work.goes_on {
            check(&mut systems, work.turns[1 - pass % 2].stays, false);
        }
    }
}

/// Asks for what was stored; the blocks of each payload are one chain.
///
/// # Panics
/// If an answer is not all of it, or, when it is evicted, not nothing.
fn check(systems: &mut [Box<dyn System>; 2], payloads: &[Payload], stays: bool) {
    for payload in payloads.iter().take(PROMPTS) {
        let prompt: Vec<_> = payload.records.iter().map(|record| record.local_hash).collect();
        let expected = if stays { vec![(WORKER as u32, prompt.len() as u32)] } else { Vec::new() };
        for (system, name) in systems.iter_mut().zip(SYSTEMS) {
            let answer = system.ask(&prompt);
            assert!(answer == expected, "{name} says {answer:?}, not {expected:?}");
        }
    }
}

fn cost(blocks: usize, work: impl FnOnce()) -> Cost {
    let (wall, cpu) = (Instant::now(), cpu_time::ProcessTime::now());
    work();
    let per_block = |seconds: f64| seconds * 1e9 / blocks as f64;
    Cost { cpu: per_block(cpu.elapsed().as_secs_f64()), wall: per_block(wall.elapsed().as_secs_f64()) }
}

/// Payloads to answers.
trait System {
    fn fresh(block_size: u32) -> Box<dyn System>
    where
        Self: Sized;
    /// Applies payloads, and waits until what they say can be seen.
    fn apply(&mut self, payloads: &[Cow<'_, [u8]>]);
    fn ask(&mut self, prompt: &[u64]) -> Answer;
}

struct Kvtap {
    ingest: Ingest,
    reader: Reader,
}

impl System for Kvtap {
    fn fresh(block_size: u32) -> Box<dyn System> {
        let mut config = Config::default();
        config.shards = 1;
        let engine = Engine::new(config).expect("an engine");
        let mut source = SourceConfig::new(WORKER);
        source.block_size = block_size;
        Box::new(Self { ingest: engine.ingest(source).expect("a source"), reader: engine.reader() })
    }

    fn apply(&mut self, payloads: &[Cow<'_, [u8]>]) {
        for payload in payloads {
            self.ingest.apply(payload).expect("a sound payload");
        }
        self.ingest.flush();
    }

    fn ask(&mut self, prompt: &[u64]) -> Answer {
        let prompt: Vec<_> = prompt.iter().map(|&local_hash| LocalHash(local_hash)).collect();
        let mut matches = Vec::new();
        self.reader.find_local_matches(&prompt, &mut matches);
        matches.iter().map(|found| (found.worker.worker_id as u32, found.depths[0])).collect()
    }
}

struct Dynamo {
    normalizer: ZmqEventNormalizer,
    event_id: u64,
    index: Crtc,
}

impl System for Dynamo {
    fn fresh(block_size: u32) -> Box<dyn System> {
        let normalizer = ZmqEventNormalizer::new(block_size);
        Box::new(Self { normalizer, event_id: 0, index: Crtc::crtc() })
    }

    fn apply(&mut self, payloads: &[Cow<'_, [u8]>]) {
        let Self { normalizer, event_id, index } = self;
        let events = payloads.iter().flat_map(|payload| {
            let batch = decode_event_batch(payload).expect("a sound payload");
            let dp_rank = batch.data_parallel_rank.unwrap_or(0).cast_unsigned();
            batch.events.into_iter().map(move |raw| (raw, WorkerWithDpRank::new(WORKER, dp_rank)))
        });
        index.apply_all(events.filter_map(|(raw, worker)| {
            *event_id += 1;
            normalizer.normalize(raw, *event_id, worker)?.into_router_event()
        }));
    }

    fn ask(&mut self, prompt: &[u64]) -> Answer {
        let mut asker = self.index.asker();
        asker.prepare(prompt);
        asker.ask();
        asker.answer()
    }
}

fn line([kvtap, dynamo]: &[Row; 2]) -> String {
    let (ours, theirs) = (kvtap.median(), dynamo.median());
    format!(
        "| {} | {} | {:.1} | {:.0} | {:.1}× | {:.1} | {:.0} | {:.1}× |\n",
        kvtap.case,
        kvtap.mode,
        ours.cpu,
        theirs.cpu,
        theirs.cpu / ours.cpu,
        ours.wall,
        theirs.wall,
        theirs.wall / ours.wall
    )
}

fn json_lines(rows: &[Row; 2]) -> String {
    let mut lines = String::new();
    let theirs = rows[1].median();
    for row in rows {
        let Cost { cpu, wall } = row.median();
        let line = json!({
            "case": row.case, "passes": row.mode, "system": row.system, "cpu_ns_per_block": cpu, "wall_ns_per_block": wall,
            "faster_than_dynamo": { "cpu": theirs.cpu / cpu, "wall": theirs.wall / wall },
        });
        let _ = writeln!(lines, "{line}");
    }
    lines
}
