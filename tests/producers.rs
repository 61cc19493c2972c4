//! The engines' own publishers, taken from their published wheels, publish to kvtap: late join, replay in both shapes, a
//! number never sent, a gap, a restart. `KVTAP_PRODUCERS="vllm 0.33.0,sglang 0.5.23"` names others than SGLang's two.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use kvtap::source::{Listeners, Source, SourceOptions, Status};
use kvtap::{Config, Engine, SourceConfig};

use support::source::{BLOCK_SIZE, payload, store};

/// One with replies of three frames, one with four.
const PRODUCERS: &str = "sglang 0.5.9,sglang 0.5.23";
const RANK: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(60);

/// A running publisher.
struct Producer {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Producer {
    fn start(python: &Path, module: &Path, ports: [u16; 2]) -> Self {
        let [live, replay] = ports.map(|port| format!("tcp://*:{}", port - 1));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/producers/publish.py");
        let mut process = Command::new(python)
            .arg(script)
            .arg(module)
            .args([live, replay, RANK.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (commands, answers) =
            (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut producer = Self { process, commands, answers };
        producer.hear("ready");
        producer
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
        self.hear("done");
    }

    fn hear(&mut self, answer: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), answer, "the publisher ended; see its stderr");
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Python and the module, or `None` where there is no Python at all.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
fn prepare(producer: &str) -> Option<[PathBuf; 2]> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var("CI").is_err(), "python3 is missing, which must not be in CI");
        eprintln!("SKIPPED: no python3 on this machine, so no engine's publisher can be run");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/producers/prepare.sh");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("producers");
    let output = Command::new(script)
        .arg(directory)
        .args(producer.split_whitespace())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{producer} could not be fetched");
    let text = String::from_utf8(output.stdout).unwrap();
    let paths: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
    Some(paths.try_into().unwrap())
}

/// Two ports that are free now.
fn free_ports() -> [u16; 2] {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn config() -> SourceConfig {
    let mut config = SourceConfig::new(3);
    config.block_size = BLOCK_SIZE;
    config
}

/// Digest of an index with these blocks.
fn model(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let engine = Engine::new(Config::default()).unwrap();
    let mut ingest = engine.ingest(config()).unwrap();
    for number in numbers {
        let first = u32::try_from(number * 4).unwrap();
        ingest.apply(&payload([store(&[number + 1], None, first..=first + 3)], RANK)).unwrap();
    }
    ingest.digest()
}

#[track_caller]
fn until(source: &Source, is_so: impl Fn(&Status) -> bool) {
    assert!(source.wait(PATIENCE, is_so), "{:#?}", source.status());
}

#[test]
fn the_engines_own_publishers_are_followed() {
    let producers = std::env::var("KVTAP_PRODUCERS").unwrap_or_else(|_| PRODUCERS.to_owned());
    for producer in producers.split(',') {
        let Some([python, module]) = prepare(producer) else { return };
        follow(&python, &module);
        println!("{producer}: followed");
    }
}

fn follow(python: &Path, module: &Path) {
    let ports = free_ports();
    let mut producer = Producer::start(python, module, ports);
    // Before anybody listens: 0..10.
    producer.tell("publish 10");
    let engine = Engine::new(Config::default()).unwrap();
    let listeners = Listeners::start(1).unwrap();
    // As an operator names them: endpoints of rank 0, moved as the engine moves them.
    let [live, replay] = ports.map(|port| format!("tcp://127.0.0.1:{}", port - 1));
    let mut options = SourceOptions::new(live, 3);
    (options.replay, options.ingest, options.topic) = (Some(replay), config(), b"kv-events".to_vec());
    let source = listeners.add(&engine, options.for_rank(RANK).unwrap()).unwrap();
    until(&source, |status| status.connects == 1);

    // A subscription travels after the connection: whatever is missed meanwhile is replayed.
    let mut sent = 10;
    while source.status().cursor.is_none() {
        producer.tell("publish 1");
        sent += 1;
    }
    until(&source, |status| status.cursor == Some(sent - 1));
    let report = source.report().unwrap();
    assert_eq!(report.digest, model(0..sent));
    assert!(report.workers.iter().all(|worker| worker.dp_rank == RANK));
    let counts = report.status.sequence;
    assert!(counts.replayed_batches >= 10 && counts.lost_batches == 0, "{counts:?}");

    // A number that the engine drew and never sent.
    producer.tell("burn");
    producer.tell("publish 2");
    until(&source, |status| status.cursor == Some(sent + 2));
    let counts = source.status().sequence;
    assert_eq!((counts.skipped_sequences, counts.lost_batches), (1, 0));
    assert_eq!(source.report().unwrap().digest, model(0..sent + 2));
    assert!(!source.status().degraded);

    // The engine restarts, and is heard from its first or a later batch on.
    drop(producer);
    let mut producer = Producer::start(python, module, ports);
    until(&source, |status| status.connects == 2);
    let mut sent = 0;
    while source.status().sequence.restarts == 0 {
        producer.tell("publish 1");
        sent += 1;
    }
    until(&source, |status| status.cursor == Some(sent - 1));
    let report = source.report().unwrap();
    assert_eq!(report.digest, model(0..sent));
    assert_eq!((report.status.sequence.lost_batches, report.status.sequence.restarts), (0, 1));

    producer.tell("clear");
    until(&source, |status| status.cursor == Some(sent));
    assert_eq!(source.report().unwrap().entries, 0);
    assert_eq!(source.status().counters.malformed_events, 0);
}
