//! The real stack for a while. Simulated engines, each a process, evict, restart, lose and burn batches and clear their
//! caches; sources come and go; threads query all the time. Every few seconds the engines pause, and what is held and answered
//! is compared with their own models. Fails on any difference, and if memory has grown since the first minute.

mod model;
mod publisher;
#[path = "../../src/machine.rs"]
mod machine;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command as Process, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use kvtap::source::{Listeners, Report, Source, SourceOptions, State};
use kvtap::{Config, Engine, Match, Prompt, Reader};

use model::Sample;
use publisher::{Answer, BLOCK_SIZE, Command};

/// How long the stack may take to be where the engines are.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long an engine may take to answer, and a gap to be filled: on a busy machine that is not what is tested.
const REPLAY_PATIENCE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(120)];
const QUERY_THREADS: usize = 2;
/// Between two queries of a thread, which is to disturb writers and not to use up a core.
const QUERY_PAUSE: Duration = Duration::from_micros(500);
/// A source goes and another takes its place at every so many checks.
const CHECKS_PER_SOURCE: u64 = 3;
/// What may be added to the growth allowed in percent, for small processes.
const GROWTH_BYTES: u64 = 16 << 20;
const MIB: f64 = (1 << 20) as f64;

/// Soaks the real stack, and compares it with its engines' own models.
#[derive(Parser)]
struct Options {
    /// Minutes it takes.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Simulated engines.
    #[arg(long, default_value_t = 6)]
    engines: u64,
    /// Batches per second and engine.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Milliseconds between checks.
    #[arg(long, default_value_t = 4000)]
    every: u64,
    /// Of the engines' traffic and of their faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Percent by which memory may grow after the first minute, besides 16 MiB.
    #[arg(long, default_value_t = 10)]
    growth: u64,
    /// Be one of the engines: what the runs start for themselves.
    #[arg(long, hide = true, num_args = 3)]
    publish: Option<Vec<String>>,
}

/// An engine's process and the source that follows it.
struct Peer {
    number: u64,
    process: Child,
    answers: BufReader<ChildStdout>,
    endpoints: [String; 2],
    source: Option<Source>,
    last: Answer,
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    checks: u64,
    sampled_queries: u64,
    registrations: u64,
    differences: Vec<String>,
    /// Bytes of memory: at the end of the first minute, the most, the last.
    rss: [u64; 3],
    /// At the end of each minute.
    minutes: Vec<u64>,
    /// Of sources that are gone.
    gone: Sums,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    gaps: u64,
    replayed: u64,
    skipped: u64,
    restarts: u64,
    lost: u64,
}

fn main() -> ExitCode {
    let options = &Options::parse();
    if let Some(words) = &options.publish {
        let [number, bind, replay] = &words[..] else { return ExitCode::FAILURE };
        let number = number.parse().expect("a number");
        publisher::obey(number, options.seed, options.rate, [bind.clone(), replay.clone()]);
        return ExitCode::SUCCESS;
    }
    let engine = Engine::new(Config::default()).expect("a good configuration");
    let listeners = Listeners::start(2).expect("threads");
    let mut peers: Vec<Peer> = (0..options.engines).map(|number| Peer::start(number, options)).collect();
    for peer in &mut peers {
        peer.follow(&listeners, &engine);
    }
    let askers = Askers::start(&engine);
    let mut seen = Seen::default();
    let mut reader = engine.reader();
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    let first = Duration::from_secs(60).min(time / 4);
    let start = Instant::now();
    while start.elapsed() < time && seen.differences.is_empty() {
        Peer::run_all(&mut peers, options.every);
        for peer in &mut peers {
            peer.check(&mut reader, &mut seen);
        }
        askers.ask(&peers);
        seen.checks += 1;
        if seen.checks.is_multiple_of(CHECKS_PER_SOURCE) {
            let turn = usize::try_from(seen.checks / CHECKS_PER_SOURCE).unwrap_or(0) % peers.len();
            peers[turn].replace_source(&listeners, &engine, &mut seen);
        }
        seen.sample_memory(start.elapsed() <= first, start.elapsed().as_secs() / 60);
    }
    let queries = askers.stop(&mut seen);
    seen.tell(options, &peers, start.elapsed(), (queries, &engine));
    let allowed = seen.rss[0] + seen.rss[0] * options.growth / 100 + GROWTH_BYTES;
    for difference in &seen.differences {
        eprintln!("difference: {difference}");
    }
    if seen.rss[2] > allowed {
        eprintln!("memory has grown beyond {:.1} MiB", mebibytes(allowed));
    }
    if seen.differences.is_empty() && seen.rss[2] <= allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Peer {
    fn start(number: u64, options: &Options) -> Self {
        let endpoint = |kind: &str| {
            let directory = std::env::temp_dir();
            format!("ipc://{}/kvtap-soak-{}-{number}-{kind}", directory.display(), std::process::id())
        };
        let endpoints = ["events", "replay"].map(endpoint);
        let mut command = Process::new(std::env::current_exe().expect("a path"));
        command.args(["--seed", &options.seed.to_string(), "--rate", &options.rate.to_string()]);
        command.args(["--publish", &number.to_string(), &endpoints[0], &endpoints[1]]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { number, process, answers, endpoints, source: None, last: Answer::default() }
    }

    fn follow(&mut self, listeners: &Listeners, engine: &Engine) {
        let mut options = SourceOptions::new(self.endpoints[0].clone(), self.number);
        options.replay = Some(self.endpoints[1].clone());
        [options.replay_timeout, options.replay_time_max] = REPLAY_PATIENCE;
        options.ingest.block_size = BLOCK_SIZE;
        self.source = Some(listeners.add(engine, options).expect("a good source"));
    }

    fn command(&mut self, command: &Command) {
        let stdin = self.process.stdin.as_mut().expect("a pipe");
        serde_json::to_writer(&mut *stdin, command).expect("a pipe");
        stdin.write_all(b"\n").expect("a pipe");
        stdin.flush().expect("a pipe");
    }

    fn answer(&mut self) {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a pipe");
        self.last = serde_json::from_str(&line).expect("an answer");
    }

    fn run_all(peers: &mut [Self], millis: u64) {
        peers.iter_mut().for_each(|peer| peer.command(&Command::Run(millis)));
        peers.iter_mut().for_each(Self::answer);
    }

    /// Waits until the stack is where the engine is, and compares.
    fn check(&mut self, reader: &mut Reader, seen: &mut Seen) {
        let Some(source) = &self.source else { return };
        let wanted = self.last.sequence;
        let is_there = source.wait(PATIENCE, |status| {
            status.cursor == Some(wanted) && status.state == State::Live && !status.degraded
        });
        let Some(report) = source.report() else { return };
        if !is_there {
            let status = &report.status;
            seen.differences.push(format!(
                "engine {} is at {wanted}, its source at {:?}, {}, degraded: {}, {:?}, last error: {:?}",
                self.number,
                status.cursor,
                status.state.label(),
                status.degraded,
                status.sequence,
                status.last_error,
            ));
            return;
        }
        if (report.digest, report.entries) != (self.last.digest, self.last.entries) {
            seen.differences.push(format!(
                "engine {} holds {} blocks, digest {:016x}; the index {}, digest {:016x}",
                self.number, self.last.entries, self.last.digest, report.entries, report.digest,
            ));
        }
        let mut matches = Vec::new();
        for sample in &self.last.samples {
            let depths = ask(reader, sample, self.number, &mut matches);
            seen.sampled_queries += 1;
            if depths != sample.depths {
                seen.differences.push(format!(
                    "engine {} answers {:?} to a prompt of {} tokens; the index {depths:?}",
                    self.number,
                    sample.depths,
                    sample.tokens.len(),
                ));
            }
        }
    }

    /// Its source goes, and with it its blocks; a new one follows the engine's next life.
    fn replace_source(&mut self, listeners: &Listeners, engine: &Engine, seen: &mut Seen) {
        let Some(report) = self.source.take().and_then(|source| source.stop()) else { return };
        seen.gone.add(&report);
        let (mut reader, mut matches) = (engine.reader(), Vec::new());
        let is_found = |sample| ask(&mut reader, sample, self.number, &mut matches) != [0; 4];
        if self.last.samples.iter().any(is_found) {
            seen.differences.push(format!("engine {} is found without a source", self.number));
        }
        self.command(&Command::Restart);
        self.answer();
        self.follow(listeners, engine);
        seen.registrations += 1;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself if this fails: its stdin does.
        let _ = self.process.kill();
        let _ = self.process.wait();
        for endpoint in &self.endpoints {
            let _ = fs::remove_file(endpoint.trim_start_matches("ipc://"));
        }
    }
}

fn prompt(sample: &Sample) -> Prompt<'_> {
    Prompt {
        token_ids: &sample.tokens,
        block_size: BLOCK_SIZE,
        lora_name: sample.lora.as_deref(),
        cache_salt: sample.salt.as_deref(),
        bigram: false,
    }
}

/// What one worker has of a prompt.
fn ask(reader: &mut Reader, sample: &Sample, worker: u64, matches: &mut Vec<Match>) -> [u32; 4] {
    reader.find_matches(&prompt(sample), matches);
    let found = matches.iter().find(|found| found.worker.worker_id == worker);
    found.map_or([0; 4], |found| found.depths)
}

/// Threads that query all the while.
struct Askers {
    prompts: Vec<Sender<Arc<Vec<Sample>>>>,
    threads: Vec<JoinHandle<Asked>>,
}

/// What one of them has asked, and answers that cannot be.
#[derive(Default)]
struct Asked {
    queries: u64,
    wrong: u64,
}

impl Askers {
    fn start(engine: &Engine) -> Self {
        let mut askers = Self { prompts: Vec::new(), threads: Vec::new() };
        for _ in 0..QUERY_THREADS {
            let (prompts, inbox) = channel();
            let reader = engine.reader();
            askers.prompts.push(prompts);
            askers.threads.push(std::thread::spawn(move || Asked::until_the_end(reader, &inbox)));
        }
        askers
    }

    /// What to ask from now on.
    fn ask(&self, peers: &[Peer]) {
        let samples: Vec<_> = peers.iter().flat_map(|peer| peer.last.samples.iter().cloned()).collect();
        let samples = Arc::new(samples);
        // A thread that has panicked is told of at the end.
        self.prompts.iter().for_each(|prompts| drop(prompts.send(Arc::clone(&samples))));
    }

    /// Gives how many were asked.
    fn stop(self, seen: &mut Seen) -> u64 {
        drop(self.prompts);
        let mut sum = Asked::default();
        for thread in self.threads {
            match thread.join() {
                Ok(asked) => {
                    sum.queries += asked.queries;
                    sum.wrong += asked.wrong;
                }
                Err(_) => seen.differences.push("a query panicked".to_owned()),
            }
        }
        if sum.wrong > 0 {
            seen.differences.push(format!("{} answers cannot be", sum.wrong));
        }
        sum.queries
    }
}

impl Asked {
    fn until_the_end(mut reader: Reader, inbox: &Receiver<Arc<Vec<Sample>>>) -> Self {
        let (mut asked, mut matches) = (Self::default(), Vec::new());
        let mut samples: Arc<Vec<Sample>> = Arc::default();
        loop {
            match inbox.try_recv() {
                Ok(newer) => samples = newer,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return asked,
            }
            for sample in samples.iter() {
                let blocks = reader.find_matches(&prompt(sample), &mut matches);
                // While engines run nobody knows the answer, but not any will do.
                let can_be = |found: &Match| found.depths.is_sorted() && found.depths[3] as usize <= blocks;
                asked.wrong += matches.iter().filter(|found| !can_be(found)).count() as u64;
                asked.queries += 1;
                std::thread::park_timeout(QUERY_PAUSE);
            }
            std::thread::park_timeout(QUERY_PAUSE);
        }
    }
}

impl Sums {
    fn add(&mut self, report: &Report) {
        let counts = &report.status.sequence;
        self.gaps += counts.gaps;
        self.replayed += counts.replayed_batches;
        self.skipped += counts.skipped_sequences;
        self.restarts += counts.restarts;
        self.lost += counts.lost_batches;
    }
}

impl Seen {
    fn sample_memory(&mut self, is_first_minute: bool, minute: u64) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let bytes = kib.unwrap_or(0) << 10;
        if is_first_minute {
            self.rss[0] = bytes;
        }
        if minute > self.minutes.len() as u64 {
            self.minutes.push(bytes);
        }
        self.rss[1] = self.rss[1].max(bytes);
        self.rss[2] = bytes;
    }

    fn tell(&self, options: &Options, peers: &[Peer], elapsed: Duration, (queries, engine): (u64, &Engine)) {
        let (refused, index_bytes) = (engine.refused_blocks(), engine.index_bytes());
        let mut sums = self.gone;
        let mut bytes = [index_bytes as u64, 0];
        for report in peers.iter().filter_map(|peer| peer.source.as_ref()?.report()) {
            sums.add(&report);
            bytes[1] += report.bytes as u64;
        }
        let of = |count: fn(&Answer) -> u64| peers.iter().map(|peer| count(&peer.last)).sum::<u64>();
        let rows = [
            ("minutes", format!("{:.1}", elapsed.as_secs_f64() / 60.0)),
            ("engines, batches per second of each", format!("{}, {}", options.engines, options.rate)),
            ("batches", of(|it| it.batches).to_string()),
            ("of these lost on the way and replayed / never sent", {
                format!("{} / {}", of(|it| it.dropped), of(|it| it.burnt))
            }),
            ("restarts of engines, clears", format!("{}, {}", of(|it| it.restarts), of(|it| it.cleared))),
            ("sources unregistered and registered again", self.registrations.to_string()),
            ("gaps, batches replayed", format!("{}, {}", sums.gaps, sums.replayed)),
            ("restarts seen, batches lost, blocks without room", {
                format!("{}, {}, {refused}", sums.restarts, sums.lost)
            }),
            ("queries meanwhile", queries.to_string()),
            ("checks of every engine's digest", self.checks.to_string()),
            ("answers compared with the engines' models", self.sampled_queries.to_string()),
            ("**differences**", format!("**{}**", self.differences.len())),
            ("memory after the first minute, MiB", format!("{:.1}", mebibytes(self.rss[0]))),
            ("memory at most, MiB", format!("{:.1}", mebibytes(self.rss[1]))),
            ("**memory at the end, MiB**", format!("**{:.1}**", mebibytes(self.rss[2]))),
            ("memory after each minute, MiB", {
                let minutes = self.minutes.iter().map(|&bytes| format!("{:.0}", mebibytes(bytes)));
                minutes.collect::<Vec<_>>().join(" ")
            }),
            ("of the end, index / sources' maps, MiB", {
                format!("{:.1} / {:.1}", mebibytes(bytes[0]), mebibytes(bytes[1]))
            }),
        ];
        println!("{}", machine::line(&["kvtap", "zmq"]));
        println!("| what | |\n| --- | ---: |");
        for (what, value) in rows {
            println!("| {what} | {value} |");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
