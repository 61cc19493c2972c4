//! `receive`: what one listener takes from an ipc socket, beside a bare receive loop with the same library.
//!
//! Publishers are processes of their own: CPU time of this one is the receiver's alone, and is told per thread, because
//! on a machine of few cores the wall clock mostly tells who shares them.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use clap::Args;
use kvtap::source::{Listeners, SourceOptions};
use kvtap::{Config, Engine};

use crate::machine;
use crate::support::cases::{self, Case};
use crate::support::payload::{TOKENS, payloads};

const BLOCK_SIZE: usize = 64;
/// Of 64 tokens: 10 kB together.
const BLOCKS: usize = 48;
/// libzmq's threads are named after the one that made them.
const LIBZMQ: &str = "kvtap-perf";
const PATIENCE: Duration = Duration::from_secs(120);

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Messages per run.
    #[arg(long, default_value_t = 60_000)]
    messages: u64,
    /// Runs of each receiver, interleaved; the median is shown.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Publish to this endpoint instead, once: what the runs start for themselves.
    #[arg(long, hide = true)]
    publish: Option<String>,
}

/// What one run took.
struct Run {
    wall: Duration,
    /// CPU time by name of thread.
    threads: BTreeMap<String, Duration>,
}

pub(crate) fn run(options: &Options) {
    if let Some(endpoint) = &options.publish {
        publish(endpoint, options.messages);
        return;
    }
    let sizes: Vec<usize> = batches().iter().map(Vec::len).collect();
    let bytes = sizes.iter().sum::<usize>() / sizes.len();
    println!("{}", machine::line(&["kvtap", "zmq"]));
    println!("{} messages of {bytes} bytes over ipc, median of {} runs.\n", options.messages, options.runs);
    println!(
        "| receiver | GB/s by the clock | receiving thread, µs per message | libzmq's I/O thread | shards | GB/s of one receiving core |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let (mut bare_runs, mut kvtap_runs) = (Vec::new(), Vec::new());
    for number in 0..options.runs {
        bare_runs.push(bare(&endpoint(number * 2), options.messages));
        kvtap_runs.push(kvtap(&endpoint(number * 2 + 1), options.messages));
    }
    show("bare loop", "receive-bare", bare_runs, (options.messages, bytes));
    show("kvtap listener", "kvtap-listen", kvtap_runs, (options.messages, bytes));
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn show(name: &str, receiving: &str, mut runs: Vec<Run>, (messages, bytes): (u64, usize)) {
    let of = |run: &Run, thread: &str| -> Duration {
        run.threads.iter().filter(|(name, _)| name.starts_with(thread)).map(|(_, time)| *time).sum()
    };
    runs.sort_by_key(|run| of(run, receiving));
    let run = &runs[runs.len() / 2];
    let each = |thread: &str| of(run, thread).as_secs_f64() * 1e6 / messages as f64;
    let gigabytes = messages as f64 * bytes as f64 / 1e9;
    println!(
        "| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
        gigabytes / run.wall.as_secs_f64(),
        each(receiving),
        each(LIBZMQ),
        each("kvtap-shard"),
        gigabytes / of(run, receiving).as_secs_f64(),
    );
}

fn endpoint(number: usize) -> String {
    format!("ipc://{}/kvtap-receive-{}-{number}", std::env::temp_dir().display(), std::process::id())
}

/// Payloads that make an index full and, by the clear that begins them, empty again: every block stored is a new one.
fn batches() -> Vec<Vec<u8>> {
    let case = cases::all().find(|case| case.name == "map-bs64-b64").expect("a known case");
    let case = Case { blocks: BLOCKS, events: 1, block_size: BLOCK_SIZE, ..case };
    let mut batches = vec![b"\x93\x01\x91\x91\xb0AllBlocksCleared\x00".to_vec()];
    batches.extend(payloads(&case, TOKENS).into_iter().map(|payload| payload.bytes));
    batches
}

/// Sends as fast as it goes, dropping nothing, once somebody listens; then waits to be killed.
fn publish(endpoint: &str, messages: u64) {
    let batches = batches();
    let socket = zmq::Context::new().socket(zmq::XPUB).expect("a socket");
    socket.set_sndhwm(0).expect("an option");
    socket.bind(endpoint).expect("a free endpoint");
    socket.recv_bytes(0).expect("a subscription");
    for (number, batch) in (0..messages).zip(batches.iter().cycle()) {
        socket.send_multipart([&b"kv"[..], &number.to_be_bytes(), batch], 0).expect("room");
    }
    let _ = socket.recv_bytes(0);
}

fn publisher(endpoint: &str, messages: u64) -> Child {
    let me = std::env::current_exe().expect("a path");
    let mut command = Command::new(me);
    command.args(["receive", "--publish", endpoint, "--messages", &messages.to_string()]);
    command.spawn().expect("a process")
}

fn end(mut publisher: Child) {
    publisher.kill().expect("a running process");
    publisher.wait().expect("its end");
}

/// Receives and counts, nothing else: three message objects, filled again and again.
fn bare(endpoint: &str, messages: u64) -> Run {
    let publisher = publisher(endpoint, messages);
    // Here, so that libzmq's threads have the name of this one.
    let socket = zmq::Context::new().socket(zmq::SUB).expect("a socket");
    socket.set_subscribe(b"").expect("an option");
    socket.connect(endpoint).expect("an endpoint");
    let thread = std::thread::Builder::new().name("receive-bare".to_owned());
    let receiving = thread.spawn(move || {
        let mut frames = [zmq::Message::new(), zmq::Message::new(), zmq::Message::new()];
        let mut receive = || {
            for frame in &mut frames {
                socket.recv(frame, 0).expect("a frame");
            }
        };
        receive();
        let (before, start) = (threads(), Instant::now());
        for _ in 1..messages {
            receive();
        }
        Run { wall: start.elapsed(), threads: since(&before) }
    });
    let run = receiving.expect("a thread").join().expect("no panic");
    end(publisher);
    run
}

/// The same through a listener, into an index of two shards.
fn kvtap(endpoint: &str, messages: u64) -> Run {
    let publisher = publisher(endpoint, messages);
    let engine = Engine::new(Config::default()).expect("an engine");
    let listeners = Listeners::start(1).expect("a listener");
    let mut options = SourceOptions::new(endpoint, 0);
    options.ingest.block_size = u32::try_from(BLOCK_SIZE).expect("a small block");
    let source = listeners.add(&engine, options).expect("a source");
    assert!(source.wait(PATIENCE, |status| status.cursor.is_some()), "nothing came");
    let (before, start) = (threads(), Instant::now());
    assert!(source.wait(PATIENCE, |status| status.cursor == Some(messages - 1)), "{:?}", source.status());
    let run = Run { wall: start.elapsed(), threads: since(&before) };
    let report = source.report().expect("a report");
    assert_eq!((report.status.sequence.gaps, report.status.counters.batches), (0, messages));
    end(publisher);
    run
}

/// CPU time of every thread so far, by number and name.
fn threads() -> BTreeMap<(String, String), Duration> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").filter_map(Result::ok);
    let time = |task: fs::DirEntry| {
        let is_main = task.file_name().to_str() == Some(std::process::id().to_string().as_str());
        let name = fs::read_to_string(task.path().join("comm")).ok().filter(|_| !is_main)?;
        let spent = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let spent = Duration::from_nanos(spent.split_whitespace().next()?.parse().ok()?);
        Some(((task.file_name().to_string_lossy().into_owned(), name.trim().to_owned()), spent))
    };
    tasks.filter_map(time).collect()
}

fn since(before: &BTreeMap<(String, String), Duration>) -> BTreeMap<String, Duration> {
    let mut spent = BTreeMap::new();
    for (thread, time) in threads() {
        let earlier = before.get(&thread).copied().unwrap_or_default();
        *spent.entry(thread.1).or_default() += time.saturating_sub(earlier);
    }
    spent
}
