//! Captures replayed into one engine: each file is a source of its own, applied in the order given.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kvtap::wire::WireError;
use kvtap::{Config, Counters, Engine, Ingest, Reader, Reason};

use crate::args::SourceArgs;
use crate::capture::{Capture, progress};
use crate::note;

/// An engine that has read all its captures.
pub(crate) struct Sources {
    pub(crate) engine: Engine,
    pub(crate) sources: Vec<Source>,
    /// From opening the first capture until everything was visible to queries.
    pub(crate) elapsed: Duration,
    /// Why the last of them could not be read to its end. What was read stands.
    pub(crate) failure: Option<anyhow::Error>,
}

/// One replayed capture.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) ingest: Ingest,
    /// The first payload that was refused.
    pub(crate) refused: Option<Refused>,
}

/// A payload that was refused whole.
pub(crate) struct Refused {
    /// Its position in the capture, from 0.
    pub(crate) batch: u64,
    pub(crate) sequence: u64,
    pub(crate) error: WireError,
}

impl Sources {
    /// Replays the files and waits until all is visible.
    pub(crate) fn replay(files: &[PathBuf], args: &SourceArgs, shards: usize) -> anyhow::Result<Self> {
        let engine = start_engine(shards)?;
        let bar = progress(files.iter().map(PathBuf::as_path));
        let start = Instant::now();
        let mut sources = Vec::with_capacity(files.len());
        let mut failure = None;
        for (worker_id, path) in (0..).zip(files) {
            let mut source =
                Source { path: path.clone(), ingest: engine.ingest(args.config(worker_id))?, refused: None };
            let mut capture = Capture::open(path, &bar)?;
            let applied = source.apply(&mut capture);
            sources.push(source);
            if let Err(error) = applied {
                failure = Some(error);
                break;
            }
        }
        for source in &mut sources {
            source.ingest.flush();
        }
        let elapsed = start.elapsed();
        bar.finish_and_clear();
        for source in &sources {
            warn_of_losses(&source.path, &source.ingest, args.block_size);
        }
        Ok(Self { engine, sources, elapsed, failure })
    }

    pub(crate) fn reader(&self) -> Reader {
        self.engine.reader()
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for source in &self.sources {
            sum.add(source.ingest.counters());
        }
        sum
    }

    pub(crate) fn workers(&self) -> usize {
        self.sources.iter().map(|source| source.ingest.workers().len()).sum()
    }

    pub(crate) fn entries(&self) -> usize {
        self.sources.iter().map(|source| source.ingest.entries()).sum()
    }

    /// What the index takes: shards and the sources' maps.
    pub(crate) fn bytes(&self) -> usize {
        self.engine.index_bytes() + self.sources.iter().map(|source| source.ingest.bytes()).sum::<usize>()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.sources.iter().fold(0, |sum, source| sum.wrapping_add(source.ingest.digest()))
    }
}

impl Source {
    fn apply(&mut self, capture: &mut Capture<'_>) -> anyhow::Result<()> {
        let mut batch = 0;
        while let Some(record) = capture.next_record()? {
            if let Err(error) = self.ingest.apply(record.payload) {
                self.refused.get_or_insert(Refused { batch, sequence: record.sequence, error });
            }
            batch += 1;
        }
        Ok(())
    }
}

pub(crate) fn start_engine(shards: usize) -> Result<Engine, kvtap::ConfigError> {
    let mut config = Config::default();
    config.shards = shards;
    Engine::new(config)
}

/// Whole sources can be filtered by another block size or for want of room; the user must hear of it, whatever else is
/// printed.
pub(crate) fn warn_of_losses(path: &Path, ingest: &Ingest, configured: u32) {
    let events = ingest.counters().filtered(Reason::TooManyRanks);
    if events > 0 {
        note(&format!(
            "warning: {}: {events} events not placed: it brought more ranks than one source may, or the index is full",
            path.display(),
        ));
    }
    let blocks = ingest.counters().filtered(Reason::TooManyBlocks);
    if blocks > 0 {
        note(&format!(
            "warning: {}: {blocks} blocks not placed: it held as many as one source may",
            path.display(),
        ));
    }
    for (worker, seen, events) in ingest.mismatched_block_sizes() {
        let advice = if (1..=65_536).contains(&seen) {
            format!("; if {seen} is what the engine uses, run again with --block-size {seen}")
        } else {
            String::new()
        };
        let plural = if events == 1 { "" } else { "s" };
        note(&format!(
            "warning: {}: worker {worker} published blocks of {seen} tokens, but the block size is set to \
             {configured}: {events} stored event{plural} not placed{advice}",
            path.display(),
        ));
    }
}
