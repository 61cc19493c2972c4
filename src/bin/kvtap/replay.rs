//! `kvtap replay`: captures into an index, and a summary of what happened.

use std::io::{self, BufWriter, Write};

use crate::args::ReplayArgs;
use crate::json::{self, Summary, Totals};
use crate::report;
use crate::sources::Sources;

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let sources = Sources::replay(&args.files, &args.source, args.shards.into())?;
    let summary = sum_up(&sources);
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        json::write_line(&mut out, &summary)?;
    } else {
        report::write(&mut out, &sources, &summary)?;
    }
    out.flush()?;
    // A recorder that was killed leaves such a file: tell what it held, then that it is damaged.
    sources.failure.map_or(Ok(()), Err)
}

fn sum_up(sources: &Sources) -> Summary {
    let totals = Totals {
        counters: sources.counters(),
        elapsed: sources.elapsed,
        workers: sources.workers(),
        entries: sources.entries(),
        bytes: sources.bytes(),
        digest: sources.digest(),
    };
    totals.into()
}
