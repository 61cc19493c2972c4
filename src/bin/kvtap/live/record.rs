//! `kvtap capture`: records a live stream, as it comes, into a capture.

use std::fs::File;
use std::io::BufWriter;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use indicatif::HumanCount;
use kvtap::kvcap::{Record, Writer};
use kvtap::source::{Frames, SourceOptions, Subscriber};

use super::args::CaptureArgs;
use super::ending::Ending;
use crate::note;

const STEP: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &CaptureArgs) -> anyhow::Result<()> {
    let ending = Ending::after(args.seconds)?;
    let mut options = SourceOptions::new(args.endpoint.as_str(), 0);
    options.topic = args.topic.as_bytes().to_vec();
    let subscriber = Subscriber::open(&options)?;
    let name = || args.output.display().to_string();
    let mut writer =
        Writer::new(BufWriter::new(File::create(&args.output).with_context(name)?)).with_context(name)?;
    let mut frames = Frames::new();
    let (mut batches, mut bytes, mut bad) = (0, 0, 0);
    let is_enough = |batches| args.batches.is_some_and(|wanted| batches >= wanted);
    while !is_enough(batches) && !ending.is_here() {
        if !subscriber.wait(ending.left(STEP))? {
            // Whoever looks at the file meanwhile sees whole records.
            writer.flush().with_context(name)?;
            continue;
        }
        while !is_enough(batches) && !ending.is_here() && subscriber.receive(&mut frames)? {
            let Ok(message) = frames.message() else {
                bad += 1;
                continue;
            };
            let record = Record {
                unix_ns: unix_ns(),
                sequence: message.sequence,
                topic: message.topic,
                payload: message.payload,
            };
            writer.write(&record).with_context(name)?;
            batches += 1;
            bytes += message.payload.len() as u64;
        }
    }
    writer.flush().with_context(name)?;
    note(&format!("{}: {} batches, {} bytes of payload", name(), HumanCount(batches), HumanCount(bytes)));
    if bad > 0 {
        note(&format!("warning: {bad} messages with frames of no known shape were left out"));
    }
    Ok(())
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
