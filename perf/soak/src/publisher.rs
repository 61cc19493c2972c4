//! One simulated engine with its sockets, in a process of its own: it does what it is told on stdin, line by line, and answers
//! each line on stdout. It answers replay requests all the time.

use std::io::{self, BufRead as _, Write as _};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvtap::Worker;
use kvtap::mock::{
    Batch, Encoding, Fate, Ledger, MockEngine, MockOptions, Publisher, PublisherOptions, Scenario,
};
use serde::{Deserialize, Serialize};

use super::model::{Model, Sample};

/// Tokens per block.
pub(super) const BLOCK_SIZE: u32 = 16;
/// Kinds of engines; the first ones come first.
const KINDS: [(Scenario, Encoding); 6] = [
    (Scenario::Mixed, Encoding::VllmMap),
    (Scenario::Mixed, Encoding::Sglang),
    (Scenario::Mixed, Encoding::VllmTuple),
    (Scenario::Mixed, Encoding::Trtllm),
    (Scenario::Offload, Encoding::VllmMap),
    (Scenario::Lora, Encoding::Sglang),
];
const SAMPLES: usize = 16;
/// No restart before: the next life's numbers must not go on where this one's end.
const RESTART_FROM: u64 = 100;

/// What it is told.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Command {
    /// Publish for so many milliseconds, then say how things stand.
    Run(u64),
    /// Begin a new life.
    Restart,
}

/// How it stands.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Answer {
    /// The number of the last batch, which was sent.
    pub(super) sequence: u64,
    pub(super) digest: u64,
    pub(super) entries: usize,
    pub(super) samples: Vec<Sample>,
    pub(super) batches: u64,
    pub(super) dropped: u64,
    pub(super) burnt: u64,
    pub(super) restarts: u64,
    pub(super) cleared: u64,
}

struct Simulated {
    number: u64,
    rate: u64,
    encoding: Encoding,
    engine: MockEngine,
    publisher: Publisher,
    ledger: Ledger,
    model: Model,
    rng: u64,
    told: Answer,
}

/// Obeys until stdin ends.
pub(super) fn obey(number: u64, seed: u64, rate: u64, [bind, replay]: [String; 2]) {
    let (commands, inbox) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let command: Command = serde_json::from_str(&line.expect("a line")).expect("a command");
            if commands.send(command).is_err() {
                break;
            }
        }
    });
    Simulated::new(number, seed, rate, [bind, replay]).serve(&inbox);
}

impl Simulated {
    fn new(number: u64, seed: u64, rate: u64, [bind, replay]: [String; 2]) -> Self {
        let kind = usize::try_from(number).map_or(0, |number| number % KINDS.len());
        let (scenario, encoding) = KINDS[kind];
        let mut options = MockOptions::new(scenario, encoding);
        options.seed = seed.wrapping_add(number);
        options.block_size = BLOCK_SIZE;
        options.pool_blocks = 4096;
        options.requests = 32;
        let mut sockets = PublisherOptions::new(bind);
        sockets.replay = Some(replay);
        sockets.replay_frames = encoding.replay_frames();
        Self {
            number,
            rate,
            encoding,
            engine: MockEngine::new(&options).expect("options that fit"),
            publisher: Publisher::bind(sockets).expect("free endpoints"),
            ledger: Ledger::new(BLOCK_SIZE),
            model: Model::new(BLOCK_SIZE),
            rng: options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            told: Answer::default(),
        }
    }

    fn serve(mut self, inbox: &Receiver<Command>) {
        loop {
            match inbox.try_recv() {
                Ok(Command::Run(millis)) => {
                    self.run(Duration::from_millis(millis));
                    self.answer();
                }
                Ok(Command::Restart) => {
                    self.restart();
                    self.answer();
                }
                Err(TryRecvError::Empty) => self.publisher.serve_replay(10).expect("a socket"),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    /// A number below `below`.
    fn draw(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.rng >> 33) % below
    }

    fn run(&mut self, time: Duration) {
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < time {
            let due = Duration::from_millis(sent * 1000 / self.rate);
            let wait = due.saturating_sub(start.elapsed()).as_millis();
            self.publisher.serve_replay(u32::try_from(wait).unwrap_or(0)).expect("a socket");
            if start.elapsed() < due {
                continue;
            }
            if self.publisher.next_sequence() > RESTART_FROM && self.draw(2000) == 0 {
                self.restart();
            }
            let fate = match self.draw(200) {
                // A burnt number 0 looks like a lost one: there is no batch before it that would tell.
                0 if self.publisher.next_sequence() > 0 => Fate::Burnt,
                1..8 => Fate::Dropped,
                _ => Fate::Sent,
            };
            self.publish(fate);
            sent += 1;
        }
        // So that whoever listens knows of all that came before.
        self.publish(Fate::Sent);
    }

    fn publish(&mut self, fate: Fate) {
        let events = self.engine.next_batch();
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let payload = self.encoding.encode(&Batch { timestamp, events: &events, dp_rank: 0 });
        self.told.batches += 1;
        self.told.burnt += u64::from(fate == Fate::Burnt);
        self.told.dropped += u64::from(fate == Fate::Dropped);
        if fate != Fate::Burnt {
            self.ledger.apply(&events);
            self.model.apply(&events);
            let is_clear = |event: &&kvtap::mock::Event| **event == kvtap::mock::Event::Cleared;
            self.told.cleared += events.iter().filter(is_clear).count() as u64;
        }
        self.told.sequence = self.publisher.next_sequence();
        self.publisher.publish(payload, fate).expect("a socket");
    }

    fn restart(&mut self) {
        self.engine.restart();
        self.publisher.restart();
        self.ledger.clear();
        self.model.clear();
        self.told.restarts += 1;
    }

    fn answer(&mut self) {
        self.told.digest = self.ledger.digest(Worker { worker_id: self.number, dp_rank: 0 });
        self.told.entries = self.ledger.entries();
        self.told.samples = self.model.samples(SAMPLES);
        let mut out = io::stdout().lock();
        serde_json::to_writer(&mut out, &self.told).expect("a pipe");
        out.write_all(b"\n").expect("a pipe");
        out.flush().expect("a pipe");
    }
}
