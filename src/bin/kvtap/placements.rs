//! `kvtap placements`: every block placed or removed by a capture, as JSON lines.

use std::io::{self, BufWriter, Write};

use kvtap::{Observer, Placement, PrefixHashes, Worker};

use crate::args::PlacementsArgs;
use crate::capture::{Capture, progress};
use crate::json::{self, PlacementLine};
use crate::sources::{start_engine, warn_of_losses};

pub(crate) fn run(args: &PlacementsArgs) -> anyhow::Result<()> {
    let engine = start_engine(1)?;
    let mut ingest = engine.ingest(args.source.config(0))?;
    let bar = progress([args.file.as_path()].into_iter());
    let mut capture = Capture::open(&args.file, &bar)?;
    let out = BufWriter::new(io::stdout().lock());
    let mut printer = Printer { out, sequence: 0, prefixes: PrefixHashes::new(), written: Ok(()) };
    while let Some(record) = capture.next_record()? {
        printer.sequence = record.sequence;
        // A refused payload places nothing; `inspect` tells what is wrong with it.
        let _ = ingest.apply_observed(record.payload, &mut printer);
        std::mem::replace(&mut printer.written, Ok(()))?;
    }
    printer.out.flush()?;
    bar.finish_and_clear();
    warn_of_losses(&args.file, &ingest, args.source.block_size);
    Ok(())
}

struct Printer<W> {
    out: W,
    /// Of the batch that is being applied.
    sequence: u64,
    prefixes: PrefixHashes,
    /// How the lines of this batch fared: an observer cannot fail.
    written: io::Result<()>,
}

impl<W: Write> Observer for Printer<W> {
    fn placement(&mut self, worker: Worker, placement: Placement) {
        let prefix_hash = self.prefixes.of(worker, &placement);
        if self.written.is_err() {
            return;
        }
        if let Some(line) = PlacementLine::new(self.sequence, worker, placement, prefix_hash) {
            self.written = json::write_line(&mut self.out, &line);
        }
    }
}
