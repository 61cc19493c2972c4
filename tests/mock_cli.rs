//! `kvtap mock` as scripts see it: exit status and sentences, captures that replay to the digest it prints, and a live run
//! followed by a plain subscriber.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use kvtap::{Config, Engine, Ingest, Message, ReplayReply, SourceConfig};
use serde_json::Value;

const PATIENCE_MS: i32 = 20_000;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvtap"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// The JSON line of a call that must succeed and say nothing else.
fn summary(args: &[&str]) -> Value {
    let output = run(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The sentence of a call that must fail with this status.
fn failure(args: &[&str], status: i32) -> String {
    let output = run(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty() && stderr.lines().count() == 1, "{args:?}: {stderr}");
    stderr
}

fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    directory.join(format!("mock-{}-{name}", std::process::id()))
}

/// A mock on free ports, and where they are.
struct Live {
    child: Child,
    events: String,
    replay: String,
    /// Held open, or its last words would be its death.
    _stderr: BufReader<ChildStderr>,
}

impl Live {
    fn start(args: &[&str]) -> Self {
        let fixed = ["mock", "--bind", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0"];
        let mut command = command(&[&fixed[..], &["--wait-subscriber"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let places = line.trim_end().strip_prefix("publishing on ").unwrap();
        let (events, replay) = places.split_once(", replay on ").unwrap();
        Self { child, events: events.to_owned(), replay: replay.to_owned(), _stderr: stderr }
    }

    fn subscribe(&self) -> zmq::Socket {
        let socket = self.connect(zmq::SUB, &self.events);
        socket.set_subscribe(b"").unwrap();
        socket
    }

    fn connect(&self, kind: zmq::SocketType, endpoint: &str) -> zmq::Socket {
        let socket = zmq::Context::new().socket(kind).unwrap();
        socket.set_rcvtimeo(PATIENCE_MS).unwrap();
        socket.set_linger(0).unwrap();
        socket.set_rcvhwm(0).unwrap();
        socket.connect(endpoint).unwrap();
        socket
    }

    fn signal(&self, name: &str) {
        let done =
            Command::new("sh").args(["-c", &format!("kill {name} {}", self.child.id())]).status().unwrap();
        assert!(done.success());
    }

    /// The line it prints when the last batch was sent; it goes on running.
    fn summary(&mut self) -> Value {
        let mut stdout = BufReader::new(self.child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn terminate(mut self) {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

fn ingest(engine: &Engine) -> Ingest {
    engine.ingest(SourceConfig::new(5)).unwrap()
}

/// Receives and applies batches up to a sequence number; gives those that came.
fn follow(socket: &zmq::Socket, ingest: &mut Ingest, last: u64) -> Vec<u64> {
    let mut sequences = Vec::new();
    while sequences.last() != Some(&last) {
        let frames = socket.recv_multipart(0).unwrap();
        let message = Message::read(&frames).unwrap();
        ingest.apply(message.payload).unwrap();
        sequences.push(message.sequence);
    }
    sequences
}

fn digest(ingest: &Ingest) -> String {
    format!("{:016x}", ingest.digest())
}

#[test]
fn bad_usage_is_one_sentence_and_status_2() {
    let starts = [
        (&["mock"][..], "error: the following required arguments were not provided: "),
        (&["mock", "--bind", "tcp://*:0", "--write", "f"], "error: the argument '--bind <ENDPOINT>' cannot"),
        (&["mock", "--write", "f", "--replay", "tcp://*:0"], "error: the argument "),
        (&["mock", "--write", "f", "--scenario", "poker"], "error: invalid value 'poker' for "),
        (&["mock", "--write", "f", "--encoding", "json"], "error: invalid value 'json' for "),
        (&["mock", "--write", "f", "--rate", "-1"], "error: "),
        (&["mock", "--write", "f", "--rate", "often"], "error: invalid value 'often' for "),
        (&["mock", "--write", "f", "--drop-every", "0"], "error: invalid value '0' for "),
        (&["mock", "--write", "f", "--block-size", "0"], "error: invalid value '0' for "),
        (&["mock", "--write", "f", "--pool-blocks", "7"], "error: invalid value '7' for "),
        (
            &["mock", "--write", "f", "--pool-blocks", "63"],
            "error: the pool must have 8 blocks per request to ",
        ),
        (&["mock", "--write", "f", "--requests", "0"], "error: invalid value '0' for "),
        (&["mock", "--bind", "tcp://*:0", "--replay-frames", "5"], "error: invalid value '5' for "),
        (&["mock", "--bind", "5557"], "error: the endpoint '5557' is neither tcp:// nor ipc://"),
        (
            &["mock", "--bind", "ipc:///tmp/x", "--dp-rank", "1"],
            "error: the endpoint 'ipc:///tmp/x' has no port",
        ),
        (
            &["mock", "--write", "f", "--scenario", "hybrid", "--encoding", "sglang"],
            "error: the encoding sglang cannot express the scenario hybrid: its events name no cache group",
        ),
        (
            &["mock", "--write", "f", "--scenario", "partial", "--block-size", "6"],
            "error: partial tails need blocks of a multiple of 4 tokens, not 6",
        ),
    ];
    for (args, start) in starts {
        let sentence = failure(args, 2);
        assert!(sentence.starts_with(start), "{args:?}: {sentence}");
    }
}

#[test]
fn what_cannot_be_done_is_status_1() {
    let sentence = failure(&["mock", "--write", "/no such directory/f.kvcap"], 1);
    assert!(sentence.starts_with("error: /no such directory/f.kvcap: "), "{sentence}");
    let live = Live::start(&[]);
    let sentence = failure(&["mock", "--bind", &live.events], 1);
    assert!(sentence.starts_with(&format!("error: cannot bind {}: ", live.events)), "{sentence}");
    live.terminate();
}

#[test]
fn a_written_capture_replays_to_the_digest() {
    let path = scratch("written.kvcap");
    let file = path.to_str().unwrap();
    for (encoding, scenario) in
        [("vllm-map", "mixed"), ("vllm-tuple", "hybrid"), ("sglang", "offload"), ("trtllm", "lora")]
    {
        let write = ["mock", "--write", file, "--encoding", encoding, "--scenario", scenario, "--seed", "9"];
        let told = summary(
            &[&write[..], &["--batches", "500", "--drop", "3,480,490,499", "--burn-every", "90"]].concat(),
        );
        let bytes = std::fs::read(&path).unwrap();
        let read = summary(&["replay", file, "--json"]);
        assert_eq!(told["batches"], 500);
        assert_eq!((&told["dropped"], &told["burnt"]), (&4.into(), &5.into()));
        assert_eq!(told["last_sequence"], 499);
        assert_eq!(read["batches"], 491);
        assert_eq!(read["digest"], told["digest_without_replay"], "{encoding}");
        assert_ne!(read["digest"], told["digest"], "{encoding}");
        summary(
            &[&write[..], &["--batches", "500", "--drop", "3,480,490,499", "--burn-every", "90"]].concat(),
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{encoding}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_subscriber_ends_with_the_digest_and_replay_fills_what_was_dropped() {
    let faults = ["--rate", "0", "--batches", "300", "--worker-id", "5", "--drop-every", "7", "--drop", "1"];
    let mut live = Live::start(&faults);
    let (subscriber, engine) = (live.subscribe(), Engine::new(Config::default()).unwrap());
    let mut partly = ingest(&engine);
    let sequences = follow(&subscriber, &mut partly, 299);
    let told = live.summary();
    assert!(sequences.iter().copied().eq((0..300).filter(|batch| batch % 7 != 6 && *batch != 1)));
    assert_eq!(told["digest_without_replay"], digest(&partly));

    let requester = live.connect(zmq::DEALER, &live.replay);
    requester.send_multipart([&b""[..], &0_u64.to_be_bytes()], 0).unwrap();
    let mut wholly = ingest(&engine);
    let mut batches = 0;
    loop {
        let frames = requester.recv_multipart(0).unwrap();
        assert_eq!(frames.len(), 4);
        let ReplayReply::Batch(message) = ReplayReply::read(&frames).unwrap() else { break };
        assert_eq!(message.sequence, batches);
        wholly.apply(message.payload).unwrap();
        batches += 1;
    }
    assert_eq!((batches, told["digest"].as_str()), (300, Some(digest(&wholly).as_str())));
    live.terminate();
}

#[test]
fn a_signal_restarts_the_engine_and_another_ends_the_run_in_order() {
    let mut live = Live::start(&["--rate", "500", "--batches", "0", "--worker-id", "5"]);
    let (subscriber, engine) = (live.subscribe(), Engine::new(Config::default()).unwrap());
    follow(&subscriber, &mut ingest(&engine), 20);
    live.signal("-USR1");
    let before = follow(&subscriber, &mut ingest(&engine), 0);
    assert!(before.windows(2).rev().skip(1).all(|pair| pair[0] + 1 == pair[1]), "{before:?}");
    live.signal("-TERM");
    let told = live.summary();
    assert_eq!(told["restarts"], 1);
    live.child.wait().unwrap();
    let last = told["last_sequence"].as_u64().unwrap();
    if last > 0 {
        assert_eq!(follow(&subscriber, &mut ingest(&engine), last), (1..=last).collect::<Vec<_>>());
    }
}

#[test]
fn a_restart_after_so_many_batches_leaves_what_came_since() {
    let args =
        ["--rate", "0", "--batches", "100", "--worker-id", "5", "--restart-after", "60", "--linger", "0"];
    let mut live = Live::start(&args);
    let (subscriber, engine) = (live.subscribe(), Engine::new(Config::default()).unwrap());
    assert_eq!(follow(&subscriber, &mut ingest(&engine), 59), (0..60).collect::<Vec<_>>());
    let mut after = ingest(&engine);
    assert_eq!(follow(&subscriber, &mut after, 39), (0..40).collect::<Vec<_>>());
    let told = live.summary();
    assert_eq!((told["restarts"].as_u64(), told["last_sequence"].as_u64()), (Some(1), Some(39)));
    assert_eq!(told["digest"], digest(&after));
    assert_eq!(live.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_readme_shows_what_it_prints() {
    let readme = include_str!("../README.md");
    let path = scratch("readme.kvcap");
    let file = path.to_str().unwrap();
    let written = summary(&["mock", "--write", file, "--scenario", "hybrid", "--batches", "200"]);
    let read = summary(&["replay", file, "--json"]);
    for told in [written, read] {
        assert!(readme.contains(&format!("\n\"digest\":{}\n", told["digest"])), "{told}");
    }
    let output = run(&["mock", "--write", file, "--drop-every", "10", "--batches", "200"]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(readme.contains(&format!("\n{line}```")), "{line}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn it_lingers_and_paces_itself() {
    let args = ["mock", "--bind", "tcp://127.0.0.1:0", "--batches", "20", "--rate", "100", "--linger", "1"];
    let start = std::time::Instant::now();
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    // The first batch is due at once, the 20th after 190 ms.
    assert!(start.elapsed().as_millis() >= 190);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(start.elapsed().as_millis() >= 1190);
    assert_eq!(stdout.read_to_string(&mut line).unwrap(), 0);
}
