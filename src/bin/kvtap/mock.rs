//! `kvtap mock`: a simulated engine on real sockets, or written to a capture; at its end a line about what it told.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, value_parser};
use kvtap::Worker;
use kvtap::kvcap::{Record, Writer};
use kvtap::mock::{
    Batch, Encoding, Event, Fate, Ledger, MockEngine, MockError, MockOptions, PublishError, Publisher,
    PublisherOptions, ReplayFrames, Scenario,
};

use crate::json;
use crate::note;

/// Written captures start at this time and go on in steps of this length, so that equal seeds give equal files.
const WRITTEN_FROM: Duration = Duration::from_secs(1_790_000_000);
const WRITTEN_STEP: Duration = Duration::from_millis(50);
/// Longest wait before looking for signals.
const LOOK_MS: u32 = 100;

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("outlet").required(true).multiple(false)))]
#[command(
    after_help = "Signals: SIGUSR1 restarts the engine as --restart-after does, while batches are still to come; \
    SIGTERM and SIGINT end the run in order. The JSON line on stdout comes when the last batch was sent: its `digest` is \
    that of a listener which lost nothing that replay can bring back, `digest_without_replay` that of one which cannot ask."
)]
pub(crate) struct MockArgs {
    /// Publish here: tcp or ipc, also with `*`, `0.0.0.0` or port 0
    #[arg(long, value_name = "ENDPOINT", group = "outlet")]
    bind: Option<String>,
    /// Write a capture instead; needs no socket
    #[arg(long, value_name = "FILE", group = "outlet")]
    write: Option<PathBuf>,
    /// Answer replay requests here
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "write")]
    replay: Option<String>,
    /// Kind of traffic
    #[arg(long, value_name = "NAME", default_value = "chat", value_parser = scenario())]
    scenario: Scenario,
    /// Producer whose events they are
    #[arg(long, value_name = "NAME", default_value = "vllm-map", value_parser = encoding())]
    encoding: Encoding,
    /// End after so many batches; 0: only when terminated
    #[arg(long, value_name = "N", default_value_t = 1000)]
    batches: u64,
    /// Batches per second; 0: as fast as possible
    #[arg(long, value_name = "R", default_value_t = 100.0, value_parser = read_rate)]
    rate: f64,
    /// Equal seeds give equal events
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Tokens per block
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=65536))]
    block_size: u32,
    /// Blocks in the device's pool, at least 8 per request
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(8..=1_048_576))]
    pool_blocks: u32,
    /// Requests that run at the same time; more make larger batches
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(1..=1024))]
    requests: u16,
    /// Data-parallel rank: named in the batches, and added to tcp ports
    #[arg(long, value_name = "N", default_value_t = 0)]
    dp_rank: u32,
    /// Worker id that the digests are for
    #[arg(long, value_name = "N", default_value_t = 0)]
    worker_id: u64,
    /// First frame of every message
    #[arg(long, value_name = "TEXT", default_value = "")]
    topic: String,
    /// Send nothing before somebody subscribes
    #[arg(long, conflicts_with = "write")]
    wait_subscriber: bool,
    /// Batches kept for replay
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "write")]
    buffer_steps: u32,
    /// Frames of replay replies; by default those of the encoding's producer
    #[arg(long, value_name = "3|4", value_parser = value_parser!(u8).range(3..=4), conflicts_with = "write")]
    replay_frames: Option<u8>,
    #[command(flatten)]
    faults: Faults,
    /// Answer replay requests for so long after the last batch; by default until terminated
    #[arg(long, value_name = "SECONDS", conflicts_with = "write")]
    linger: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct Faults {
    /// Do not send these batches, counted from 0; replay has them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    drop: Vec<u64>,
    /// Do not send every Kth batch; replay has them
    #[arg(long, value_name = "K", value_parser = value_parser!(u64).range(1..))]
    drop_every: Option<u64>,
    /// Lose every Kth batch for good, as engines do that cannot encode one
    #[arg(long, value_name = "K", value_parser = value_parser!(u64).range(1..))]
    burn_every: Option<u64>,
    /// After so many batches start again: empty cache, sequence 0
    #[arg(long, value_name = "N")]
    restart_after: Option<u64>,
}

impl Faults {
    fn fate(&self, batch: u64) -> Fate {
        let is_due = |every: Option<u64>| every.is_some_and(|every| (batch + 1).is_multiple_of(every));
        if is_due(self.burn_every) {
            Fate::Burnt
        } else if is_due(self.drop_every) || self.drop.contains(&batch) {
            Fate::Dropped
        } else {
            Fate::Sent
        }
    }
}

fn scenario() -> impl TypedValueParser<Value = Scenario> {
    let named = |name: String| Scenario::ALL.into_iter().find(|scenario| scenario.label() == name);
    PossibleValuesParser::new(Scenario::ALL.map(Scenario::label))
        .try_map(move |name| named(name).ok_or("unknown scenario"))
}

fn encoding() -> impl TypedValueParser<Value = Encoding> {
    let named = |name: String| Encoding::ALL.into_iter().find(|encoding| encoding.label() == name);
    PossibleValuesParser::new(Encoding::ALL.map(Encoding::label))
        .try_map(move |name| named(name).ok_or("unknown encoding"))
}

fn read_rate(rate: &str) -> Result<f64, String> {
    let sound = |rate: &f64| (0.0..=1e6).contains(rate);
    rate.parse().ok().filter(sound).ok_or_else(|| format!("'{rate}' is not a rate (0 to 1000000)"))
}

pub(crate) fn run(args: &MockArgs) -> anyhow::Result<()> {
    let mut options = MockOptions::new(args.scenario, args.encoding);
    (options.seed, options.block_size) = (args.seed, args.block_size);
    options.pool_blocks = args.pool_blocks as usize;
    options.requests = args.requests.into();
    let mut run = Run::new(args, MockEngine::new(&options)?);
    if let Some(path) = &args.write {
        run.write(path).with_context(|| path.display().to_string())?;
        return run.sum_up();
    }
    let signals = Signals::catch()?;
    let mut publisher = Publisher::bind(run.publisher_options())?;
    announce(&publisher);
    while args.wait_subscriber && !signals.stop() && !publisher.wait_for_subscriber(LOOK_MS)? {}
    run.publish(&mut publisher, &signals)?;
    run.sum_up()?;
    let end = args.linger.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    while !signals.stop() && end.is_none_or(|end| Instant::now() < end) {
        publisher.serve_replay(remaining_ms(end))?;
    }
    Ok(())
}

/// Whether the failure lies in what was asked for.
pub(crate) fn is_bad_usage(error: &anyhow::Error) -> bool {
    error.is::<MockError>() || matches!(error.downcast_ref(), Some(PublishError::Endpoint { .. }))
}

fn announce(publisher: &Publisher) {
    let endpoints = publisher.endpoints();
    let replay = endpoints.replay.as_ref().map(|endpoint| format!(", replay on {endpoint}"));
    note(&format!("publishing on {}{}", endpoints.events, replay.unwrap_or_default()));
}

/// Milliseconds until then, rounded up, but no longer than signals may wait.
fn remaining_ms(until: Option<Instant>) -> u32 {
    let Some(until) = until else { return LOOK_MS };
    let micros = until.saturating_duration_since(Instant::now()).as_micros();
    u32::try_from(micros.div_ceil(1000)).map_or(LOOK_MS, |millis| millis.min(LOOK_MS))
}

/// What signals asked for.
struct Signals {
    stop: Arc<AtomicBool>,
    restart: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let signals = Self { stop: Arc::default(), restart: Arc::default() };
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&signals.restart))?;
        Ok(signals)
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True once per request.
    fn restart(&self) -> bool {
        self.restart.swap(false, Ordering::Relaxed)
    }
}

/// One run of a simulated engine, and what listeners can know of it.
struct Run<'a> {
    args: &'a MockArgs,
    engine: MockEngine,
    batches: u64,
    next_sequence: u64,
    dropped: u64,
    burnt: u64,
    restarts: u64,
    payload_bytes: u64,
    events: EventCounts,
    /// Of a listener that misses only what was burnt.
    with_replay: Ledger,
    /// Of a listener that misses what was dropped, too.
    without_replay: Ledger,
}

impl<'a> Run<'a> {
    fn new(args: &'a MockArgs, engine: MockEngine) -> Self {
        Self {
            args,
            engine,
            batches: 0,
            next_sequence: 0,
            dropped: 0,
            burnt: 0,
            restarts: 0,
            payload_bytes: 0,
            events: EventCounts::default(),
            with_replay: Ledger::new(args.block_size),
            without_replay: Ledger::new(args.block_size),
        }
    }

    fn publisher_options(&self) -> PublisherOptions {
        let args = self.args;
        let mut options = PublisherOptions::new(args.bind.clone().unwrap_or_default());
        options.replay.clone_from(&args.replay);
        options.replay_frames = match args.replay_frames {
            Some(3) => ReplayFrames::Three,
            Some(_) => ReplayFrames::Four,
            None => args.encoding.replay_frames(),
        };
        options.buffer_steps = args.buffer_steps as usize;
        options.topic.clone_from(&args.topic);
        options.dp_rank = args.dp_rank;
        options
    }

    /// Publishes batch after batch, each when it is due.
    fn publish(&mut self, publisher: &mut Publisher, signals: &Signals) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.is_unfinished() && !signals.stop() {
            let due = (self.args.rate > 0.0)
                .then(|| start + Duration::from_secs_f64(self.batches as f64 / self.args.rate));
            let wait = due.map_or(0, |due| remaining_ms(Some(due)));
            // One request per pass, as the engines do.
            publisher.serve_replay(wait)?;
            if self.is_restart_due() || signals.restart() {
                self.restart();
                publisher.restart();
            }
            if due.is_none_or(|due| Instant::now() >= due) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let (payload, fate) = self.next(now);
                publisher.publish(payload, fate)?;
            }
        }
        Ok(())
    }

    /// Writes what a recorder would have seen.
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let mut writer = Writer::new(BufWriter::new(File::create(path)?))?;
        let mut now = WRITTEN_FROM;
        while self.is_unfinished() {
            if self.is_restart_due() {
                self.restart();
            }
            let sequence = self.next_sequence;
            let (payload, fate) = self.next(now);
            if fate == Fate::Sent {
                let unix_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
                let topic = self.args.topic.as_bytes();
                writer.write(&Record { unix_ns, sequence, topic, payload: &payload })?;
            }
            now += WRITTEN_STEP;
        }
        writer.flush()
    }

    /// The next batch, and what is to become of it.
    fn next(&mut self, now: Duration) -> (Vec<u8>, Fate) {
        let events = self.engine.next_batch();
        let batch = Batch { timestamp: now.as_secs_f64(), events: &events, dp_rank: self.args.dp_rank };
        let payload = self.args.encoding.encode(&batch);
        let fate = self.args.faults.fate(self.batches);
        self.batches += 1;
        self.next_sequence += 1;
        self.dropped += u64::from(fate == Fate::Dropped);
        self.burnt += u64::from(fate == Fate::Burnt);
        self.payload_bytes += payload.len() as u64;
        events.iter().for_each(|event| self.events.count(event));
        if fate != Fate::Burnt {
            self.with_replay.apply(&events);
        }
        if fate == Fate::Sent {
            self.without_replay.apply(&events);
        }
        (payload, fate)
    }

    fn is_unfinished(&self) -> bool {
        self.args.batches == 0 || self.batches < self.args.batches
    }

    fn is_restart_due(&self) -> bool {
        self.restarts == 0 && self.args.faults.restart_after == Some(self.batches)
    }

    fn restart(&mut self) {
        self.engine.restart();
        self.next_sequence = 0;
        self.with_replay.clear();
        self.without_replay.clear();
        self.restarts += 1;
    }

    fn sum_up(&self) -> anyhow::Result<()> {
        let worker = Worker { worker_id: self.args.worker_id, dp_rank: self.args.dp_rank };
        let digest = |ledger: &Ledger| format!("{:016x}", ledger.digest(worker));
        let summary = Summary {
            scenario: self.args.scenario.label(),
            encoding: self.args.encoding.label(),
            seed: self.args.seed,
            batches: self.batches,
            dropped: self.dropped,
            burnt: self.burnt,
            restarts: self.restarts,
            last_sequence: self.next_sequence.checked_sub(1),
            events: &self.events,
            payload_bytes: self.payload_bytes,
            entries: self.with_replay.entries(),
            digest: digest(&self.with_replay),
            entries_without_replay: self.without_replay.entries(),
            digest_without_replay: digest(&self.without_replay),
        };
        let mut out = io::stdout().lock();
        json::write_line(&mut out, &summary)?;
        Ok(out.flush()?)
    }
}

#[derive(Debug, Default, serde::Serialize)]
struct EventCounts {
    stored: u64,
    removed: u64,
    cleared: u64,
}

impl EventCounts {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Stored(_) => self.stored += 1,
            Event::Removed(_) => self.removed += 1,
            Event::Cleared => self.cleared += 1,
        }
    }
}

/// The line at the end. Counts are of all batches, whatever became of them.
#[derive(Debug, serde::Serialize)]
struct Summary<'a> {
    scenario: &'static str,
    encoding: &'static str,
    seed: u64,
    batches: u64,
    dropped: u64,
    burnt: u64,
    restarts: u64,
    /// Since the last restart; null if nothing was sent.
    last_sequence: Option<u64>,
    events: &'a EventCounts,
    payload_bytes: u64,
    entries: usize,
    digest: String,
    entries_without_replay: usize,
    digest_without_replay: String,
}
