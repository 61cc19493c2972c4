//! `kvtap serve`: follows running engines, and sums up at the end.

use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use comfy_table::CellAlignment;
use indicatif::HumanCount;
use kvtap::Engine;
use kvtap::source::{Listeners, Report, Source, Status};

use super::args::ServeArgs;
use super::ending::Ending;
use super::logger;
use super::settings::Settings;
use crate::json::{self, Filtered, ServeSummary, SourceEntry, Totals};
use crate::note;
use crate::report::new_table;

const STATUS_EVERY: Duration = Duration::from_secs(2);
/// Sources a listener thread is given before there is another.
const SOURCES_PER_THREAD: usize = 100;

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let ending = Ending::after(args.duration)?;
    let settings = Settings::new(args)?;
    logger::start(settings.log);
    #[cfg(feature = "server")]
    if let Some(address) = settings.listen {
        return super::listen::run(args, &settings, address, ending);
    }
    let engine = Engine::new(settings.engine())?;
    let start = Instant::now();
    let mut options = Vec::new();
    for (position, spec) in (0..).zip(&settings.sources) {
        options.extend(spec.sources(position)?);
    }
    options.iter_mut().for_each(|options| options.limit(&settings.source_limits()));
    let listeners = Listeners::start((options.len() / SOURCES_PER_THREAD + 1).min(64))?;
    let sources =
        options.into_iter().map(|options| listeners.add(&engine, options)).collect::<Result<Vec<_>, _>>()?;
    wait(ending, || sources.iter().map(Source::status).collect());
    // Its shards still hold everything: the blocks of a stopped source leave, but its report tells of them.
    let index_bytes = engine.index_bytes();
    let reports: Vec<Report> = sources.iter().filter_map(Source::stop).collect();
    tell(args, &sum_up(&reports, index_bytes, start.elapsed()))
}

/// Tells how the sources stand until the end; after that a signal ends the program at once.
pub(super) fn wait(ending: Ending, statuses: impl Fn() -> Vec<Status>) {
    let mut told = String::new();
    while !ending.wait(STATUS_EVERY) {
        let line = status_line(&statuses());
        if line != told {
            note(&line);
            told = line;
        }
    }
    drop(ending);
}

/// Prints the summary.
pub(super) fn tell(args: &ServeArgs, summary: &ServeSummary) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        json::write_line(&mut out, summary)?;
    } else {
        write(&mut out, summary)?;
    }
    out.flush()?;
    Ok(())
}

/// All sources in one line, without anything that moves by itself: a quiet engine makes no lines.
fn status_line(statuses: &[Status]) -> String {
    let count = |of: &str| statuses.iter().filter(|status| status.state.label() == of).count();
    let sum = |of: fn(&Status) -> u64| HumanCount(statuses.iter().map(of).sum()).to_string();
    format!(
        "{} sources: {} live, {} replaying, {} degraded; {} batches, {} blocks placed; {} gaps, {} replayed, {} lost, {} \
         restarts",
        statuses.len(),
        count("live"),
        count("replaying"),
        statuses.iter().filter(|status| status.degraded).count(),
        sum(|status| status.counters.batches),
        sum(|status| status.counters.placed_blocks),
        sum(|status| status.sequence.gaps),
        sum(|status| status.sequence.replayed_batches),
        sum(|status| status.sequence.lost_batches),
        sum(|status| status.sequence.restarts),
    )
}

pub(super) fn sum_up(reports: &[Report], index_bytes: usize, elapsed: Duration) -> ServeSummary {
    let totals = Totals {
        counters: kvtap::Counters::default(),
        elapsed,
        workers: reports.iter().map(|report| report.workers.len()).sum(),
        entries: reports.iter().map(|report| report.entries).sum(),
        bytes: index_bytes + reports.iter().map(|report| report.bytes).sum::<usize>(),
        digest: reports.iter().fold(0, |sum, report| report.digest.wrapping_add(sum)),
    };
    let totals = reports.iter().fold(totals, |mut totals, report| {
        totals.counters.add(&report.status.counters);
        totals
    });
    ServeSummary { summary: totals.into(), sources: reports.iter().map(SourceEntry::from).collect() }
}

fn write(out: &mut impl Write, summary: &ServeSummary) -> io::Result<()> {
    let mut table = new_table(&[
        "source",
        "worker",
        "rank",
        "state",
        "cursor",
        "batches",
        "gaps",
        "replayed",
        "lost",
        "restarts",
        "duplicates",
    ]);
    for source in &summary.sources {
        let numbers = [
            source.batches,
            source.gaps,
            source.replayed_batches,
            source.lost_batches,
            source.restarts,
            source.duplicates,
        ];
        let mut row = vec![
            source.endpoint.clone(),
            source.worker.to_string(),
            source.dp_rank.to_string(),
            if source.degraded { "degraded" } else { source.state }.to_owned(),
            source.cursor.map_or_else(|| "-".to_owned(), |cursor| cursor.to_string()),
        ];
        row.extend(numbers.map(|number| HumanCount(number).to_string()));
        table.add_row(row);
    }
    for column in [1, 2, 4, 5, 6, 7, 8, 9, 10] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "{}", table.trim_fmt())?;
    let sum = &summary.summary;
    writeln!(
        out,
        "\n{} events, {} blocks placed, {} removed; {} entries, digest {}",
        HumanCount(sum.events.total()),
        HumanCount(sum.blocks.placed),
        HumanCount(sum.blocks.removed),
        HumanCount(sum.index.entries as u64),
        sum.digest,
    )?;
    let Filtered(reasons) = &sum.filtered;
    for (reason, count) in reasons {
        writeln!(out, "not placed: {} {}", HumanCount(*count), reason.label())?;
    }
    Ok(())
}
