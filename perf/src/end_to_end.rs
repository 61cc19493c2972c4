//! `end-to-end`: payload bytes to blocks that a query finds, one event thread each.
//!
//! kvtap: `Ingest::apply` for every payload, then `flush`. dynamo: what its listener does: `decode_event_batch`,
//! `ZmqEventNormalizer::normalize` and hand-over of every event, then `flush_and_wait`. Each pass fills a fresh index; making
//! it and taking it down are not timed. CPU is that of all threads.

use std::fmt::Write;
use std::time::Instant;

use clap::Args;
use dynamo_kv_router::protocols::{RouterEvent, WorkerWithDpRank};
use dynamo_kv_router::zmq_wire::{ZmqEventNormalizer, decode_event_batch};
use kvtap::{Config, Engine, Ingest, SourceConfig};
use serde_json::json;

use crate::index::systems::dynamo::Crtc;
use crate::index::systems::{Answer, Ask as _, System as _};
use crate::machine;
use crate::support::cases::{self, Case};
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

/// Nanoseconds per block.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
}

/// What the passes of one system over one case took.
struct Row {
    case: &'static str,
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
        "\n| case | kvtap CPU | dynamo CPU | times | kvtap wall | dynamo wall | times |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let (passes, tokens) = if options.quick { (5, 400_000) } else { (21, 1_500_000) };
    for name in CASES {
        let rows = measure(name, passes, tokens);
        show(&line(&rows));
        if options.json {
            print!("{}", json_lines(&rows));
        }
    }
}

/// The systems take turns in who is first.
fn measure(name: &'static str, passes: usize, tokens: usize) -> [Row; 2] {
    let case = cases::named(name);
    let payloads = payloads(&case, tokens);
    let blocks: usize = payloads.iter().map(|payload| payload.blocks).sum();
    let mut rows = SYSTEMS.map(|system| Row { case: name, system, passes: Vec::new() });
    for pass in 0..passes {
        let mut answers = [Vec::new(), Vec::new()];
        for turn in 0..SYSTEMS.len() {
            let at = (pass + turn) % SYSTEMS.len();
            let run = if SYSTEMS[at] == "kvtap" { kvtap } else { dynamo };
            let (cost, answer) = run(&case, &payloads, blocks);
            rows[at].passes.push(cost);
            answers[at] = answer;
        }
        let expected =
            payloads.iter().take(PROMPTS).map(|payload| vec![(WORKER as u32, payload.records.len() as u32)]);
        assert!(answers[0].iter().cloned().eq(expected), "{name}: kvtap holds every block");
        assert!(answers[0] == answers[1], "{name}: both answer the same");
    }
    rows
}

fn cost(blocks: usize, work: impl FnOnce()) -> Cost {
    let (wall, cpu) = (Instant::now(), cpu_time::ProcessTime::now());
    work();
    let per_block = |seconds: f64| seconds * 1e9 / blocks as f64;
    Cost { cpu: per_block(cpu.elapsed().as_secs_f64()), wall: per_block(wall.elapsed().as_secs_f64()) }
}

/// The blocks of each payload are one chain.
fn prompts(payloads: &[Payload]) -> impl Iterator<Item = Vec<u64>> {
    let local_hashes = |payload: &Payload| payload.records.iter().map(|record| record.local_hash).collect();
    payloads.iter().take(PROMPTS).map(local_hashes)
}

fn kvtap(case: &Case, payloads: &[Payload], blocks: usize) -> (Cost, Vec<Answer>) {
    let mut config = Config::default();
    config.shards = 1;
    let engine = Engine::new(config).expect("an engine");
    let mut source = SourceConfig::new(WORKER);
    source.block_size = case.block_size as u32;
    let mut ingest: Ingest = engine.ingest(source).expect("a source");
    let cost = cost(blocks, || {
        for payload in payloads {
            ingest.apply(&payload.bytes).expect("a sound payload");
        }
        ingest.flush();
    });
    let mut reader = engine.reader();
    let mut matches = Vec::new();
    let ask = |prompt: Vec<u64>| {
        let prompt: Vec<_> = prompt.into_iter().map(kvtap::LocalHash).collect();
        reader.find_local_matches(&prompt, &mut matches);
        matches.iter().map(|found| (found.worker.worker_id as u32, found.depths[0])).collect()
    };
    (cost, prompts(payloads).map(ask).collect())
}

fn dynamo(case: &Case, payloads: &[Payload], blocks: usize) -> (Cost, Vec<Answer>) {
    let index = Crtc::crtc();
    let mut normalizer = ZmqEventNormalizer::new(case.block_size as u32);
    let mut event_id = 0;
    let cost = cost(blocks, || {
        let events =
            payloads.iter().flat_map(|payload| decode(&payload.bytes, &mut normalizer, &mut event_id));
        index.apply_all(events);
    });
    let mut asker = index.asker();
    let ask = |prompt: Vec<u64>| {
        asker.prepare(&prompt);
        asker.ask();
        asker.answer()
    };
    (cost, prompts(payloads).map(ask).collect())
}

/// The events of one payload, for the index.
fn decode(bytes: &[u8], normalizer: &mut ZmqEventNormalizer, event_id: &mut u64) -> Vec<RouterEvent> {
    let batch = decode_event_batch(bytes).expect("a sound payload");
    let dp_rank = batch.data_parallel_rank.unwrap_or(0).cast_unsigned();
    let worker = WorkerWithDpRank::new(WORKER, dp_rank);
    let placed = batch.events.into_iter().filter_map(|raw| {
        *event_id += 1;
        normalizer.normalize(raw, *event_id, worker)?.into_router_event()
    });
    placed.collect()
}

fn line([kvtap, dynamo]: &[Row; 2]) -> String {
    let (ours, theirs) = (kvtap.median(), dynamo.median());
    format!(
        "| {} | {:.1} | {:.0} | {:.1}× | {:.1} | {:.0} | {:.1}× |\n",
        kvtap.case,
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
            "case": row.case, "system": row.system, "cpu_ns_per_block": cpu, "wall_ns_per_block": wall,
            "faster_than_dynamo": { "cpu": theirs.cpu / cpu, "wall": theirs.wall / wall },
        });
        let _ = writeln!(lines, "{line}");
    }
    lines
}
