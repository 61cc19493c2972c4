//! `kvtap doctor`: listens to one publisher for a while, and tells what it sends and what a router would make of it.

mod findings;
mod mix;
mod show;

use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use kvtap::source::{Frames, Requester, SourceOptions, Subscriber};
use kvtap::wire::Decoder;
use kvtap::{DigestHalf, Live, ReplayReply, Sequence, SourceConfig};

use super::args::DoctorArgs;
use super::ending::Ending;
use crate::json;
use crate::sources::start_engine;
use findings::{Findings, ReplayFinding};
use mix::Mix;

const STEP: Duration = Duration::from_millis(100);
/// Engines serve a replay between two batches, at most 0.1 s apart, but many may ask at once.
const REPLAY_PATIENCE: Duration = Duration::from_secs(3);
/// Topics told by name.
const TOPICS_MAX: usize = 8;

/// What came over the socket, whatever it means.
#[derive(Debug, Default)]
struct Heard {
    messages: u64,
    bad_messages: u64,
    topics: Vec<(Vec<u8>, u64)>,
    first_sequence: Option<u64>,
    /// Batches between others that came.
    missing: u64,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let ending = Ending::after(Some(args.seconds))?;
    let engine = start_engine(1)?;
    let mut config = SourceConfig::new(0);
    config.block_size = args.block_size;
    let payload_max = config.payload_max;
    let mut ingest = engine.ingest(config)?;
    let subscriber = Subscriber::open(&SourceOptions::new(args.endpoint.as_str(), 0))?;
    let start = Instant::now();
    let (mut frames, mut heard) = (Frames::new(), Heard::default());
    let (mut sequence, mut mix, mut missing) = (Sequence::new(), Mix::default(), 0);
    let mut peek = Decoder::new(DigestHalf::Low);
    while !ending.is_here() {
        if !subscriber.wait(ending.left(STEP))? || !subscriber.receive(&mut frames)? {
            continue;
        }
        let Some(message) = heard.message(&frames) else { continue };
        let stamp = || peek.read(message.payload).ok().map(|batch| batch.timestamp());
        if !admits(&mut sequence, message.sequence, stamp, &mut missing) {
            continue;
        }
        let applied = ingest.apply_observed(message.payload, &mut mix);
        sequence.applied(applied.ok().map(|applied| applied.timestamp));
    }
    let elapsed = start.elapsed();
    ingest.flush();
    let replay = match &args.replay {
        Some(endpoint) => ask(endpoint, payload_max, sequence.cursor().unwrap_or(0))?,
        None => ReplayFinding::NotAsked,
    };
    heard.missing = missing;
    let findings = Findings::new(args, elapsed, (&heard, &sequence, replay), (&ingest, mix));
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        json::write_line(&mut out, &findings)?;
    } else {
        show::write(&mut out, &findings)?;
    }
    out.flush()?;
    if heard.messages == 0 {
        anyhow::bail!("nothing came from {} within {:.1} s", args.endpoint, elapsed.as_secs_f64());
    }
    Ok(())
}

/// Lets everything be looked at that is not a duplicate, and counts what is missing in between. A doctor has no index to
/// protect: a restart is only counted.
fn admits(
    sequence: &mut Sequence,
    number: u64,
    mut stamp: impl FnMut() -> Option<f64>,
    missing: &mut u64,
) -> bool {
    loop {
        let cursor = sequence.cursor();
        match sequence.live(number, &mut stamp) {
            Live::Apply => return true,
            Live::Skip => return false,
            Live::Gap(range) => {
                // What was sent before we came, or before a restarted engine was heard, we have not missed.
                *missing += cursor.map_or(0, |_| range.end - range.start);
                sequence.accept_loss();
            }
            Live::Restart => {}
        }
    }
}

impl Heard {
    /// Counts a message; gives it if it may be a batch.
    fn message<'f>(&mut self, frames: &'f Frames) -> Option<kvtap::Message<'f>> {
        self.messages += 1;
        let Ok(message) = frames.message() else {
            self.bad_messages += 1;
            return None;
        };
        if let Some((_, count)) = self.topics.iter_mut().find(|(topic, _)| topic == message.topic) {
            *count += 1;
        } else if self.topics.len() < TOPICS_MAX {
            self.topics.push((message.topic.to_vec(), 1));
        }
        // Two streams have two numberings: the first is looked into.
        if self.topics.first().is_some_and(|(topic, _)| topic != message.topic) {
            return None;
        }
        self.first_sequence.get_or_insert(message.sequence);
        Some(message)
    }
}

/// Asks for one batch, which says whether there is a replay, of which shape, and how far back it may reach.
fn ask(endpoint: &str, payload_max: u32, number: u64) -> anyhow::Result<ReplayFinding> {
    let requester = Requester::ask(endpoint, payload_max, number)?;
    let mut frames = Frames::new();
    let end = Instant::now() + REPLAY_PATIENCE;
    while Instant::now() < end {
        if !requester.wait(end.saturating_duration_since(Instant::now()))?
            || !requester.receive(&mut frames)?
        {
            continue;
        }
        return Ok(match frames.reply() {
            Ok(ReplayReply::Batch(_) | ReplayReply::End) => ReplayFinding::Answers { frames: frames.count() },
            Err(error) => ReplayFinding::Strange { error: error.to_string() },
        });
    }
    Ok(ReplayFinding::Silent)
}
