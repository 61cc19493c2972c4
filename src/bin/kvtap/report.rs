//! The summary of `replay` for people: tables of what was read, what was left out and why, and who sent it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use indicatif::{HumanBytes, HumanCount};
use kvtap::{Reason, Scope};

use crate::json::{Events, Filtered, Summary};
use crate::producers;
use crate::sources::Sources;

/// Kinds of schema drift listed; a publisher can make up as many as it likes.
const DRIFT_ROWS_MAX: usize = 12;

pub(crate) fn write(out: &mut impl Write, sources: &Sources, summary: &Summary) -> io::Result<()> {
    writeln!(out, "{}", headline(sources, summary))?;
    write_table(out, "Read", &totals(summary), &[1, 2])?;
    write_table(out, "Events", &events(&summary.events), &[1])?;
    if !summary.filtered.0.is_empty() {
        write_table(out, "Not placed, and why", &filtered(&summary.filtered), &[1])?;
    }
    let encodings = encodings(sources);
    if !encodings.is_empty() {
        write_table(out, "Encodings seen", &encodings, &[1])?;
        writeln!(out, "{}", fits(sources))?;
    }
    write_drift(out, sources)?;
    write_refused(out, sources, summary)?;
    write_table(out, "Index", &index(summary), &[1])
}

/// On narrower terminals wrapped cells are harder to read than wrapped lines.
const WRAP_FROM_COLUMNS: u16 = 60;
/// A rule under the headings, nothing else: rows can be read and copied.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table in the style of all our tables.
pub(crate) fn new_table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(headings);
    // Some terminals claim to have no width at all.
    if table.width().is_some_and(|columns| columns >= WRAP_FROM_COLUMNS) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}

pub(crate) fn write_table(
    out: &mut impl Write,
    title: &str,
    table: &Table,
    numbers: &[usize],
) -> io::Result<()> {
    let mut table = table.clone();
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(out, "\n{title}\n{}", table.trim_fmt())
}

fn headline(sources: &Sources, summary: &Summary) -> String {
    let captures = match sources.sources.as_slice() {
        [source] => source.path.display().to_string(),
        sources => format!("{} captures", sources.len()),
    };
    format!("{captures}: {} batches in {:.3} s", HumanCount(summary.batches), summary.elapsed_s)
}

fn totals(summary: &Summary) -> Table {
    // A capture can be read faster than a clock ticks.
    let seconds = summary.elapsed_s.max(1e-9);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people to read")]
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    let rate = |count: u64| (count as f64 / seconds) as u64;
    let mut table = new_table(&["what", "total", "per second"]);
    let rows = [
        ("batches", summary.batches),
        ("events", summary.events.total()),
        ("blocks placed", summary.blocks.placed),
        ("blocks removed", summary.blocks.removed),
        ("tokens placed", summary.tokens),
    ];
    for (name, count) in rows {
        table.add_row([name.to_owned(), HumanCount(count).to_string(), HumanCount(rate(count)).to_string()]);
    }
    let megabytes =
        |bytes: u64| format!("{}.{:02} MB", HumanCount(bytes / 1_000_000), bytes % 1_000_000 / 10_000);
    let bytes = summary.payload_bytes;
    table.add_row(["payload".to_owned(), megabytes(bytes), megabytes(rate(bytes))]);
    table
}

fn events(events: &Events) -> Table {
    let mut table = new_table(&["kind", "events"]);
    let rows = [
        ("stored", events.stored),
        ("removed", events.removed),
        ("cleared", events.cleared),
        ("unknown", events.unknown),
        ("malformed", events.malformed),
    ];
    for (kind, count) in rows {
        table.add_row([kind.to_owned(), HumanCount(count).to_string()]);
    }
    table
}

fn filtered(filtered: &Filtered) -> Table {
    let mut table = new_table(&["reason", "count", "of", "why"]);
    for &(reason, count) in &filtered.0 {
        let unit = match reason.scope() {
            Scope::Event => "events",
            Scope::Block => "blocks",
        };
        table.add_row([reason.label(), &HumanCount(count).to_string(), unit, explain(reason)]);
    }
    table
}

/// One line on why something is not placed.
pub(crate) fn explain(reason: Reason) -> &'static str {
    match reason {
        Reason::TooManyRanks => "the source had used up its ranks",
        Reason::UnsupportedOwnership => "managed by a cache layer kvtap does not follow (kvcr)",
        Reason::UnknownOwnership => "the owner of the block is none we know",
        Reason::NonLocalLocality => "the block is not on this worker",
        Reason::UnknownMedium => "the medium belongs to no known tier",
        Reason::NonMainAttentionKind => "the event's attention kind does not decide prefix reuse",
        Reason::NonMainAttentionGroup => "its group was announced with such an attention kind",
        Reason::UnknownKind => "an attention kind nobody documents",
        Reason::UnlearnedGroupIdx => "a group other than 0 whose kind was never announced",
        Reason::AmbiguousCacheNamespace => "the parent is known under two cache salts",
        Reason::PartialBlock => "a block not full yet (vLLM partial tail)",
        Reason::BlockSizeMismatch => "the engine's block size is not --block-size",
        Reason::NoHashes => "a store that names no block",
        Reason::SelfReferencing => "a store that repeats a hash or is its own parent",
        Reason::ExcessTokens => "more tokens than blocks: the engine skipped blocks in between",
        Reason::UnknownParent => "the parent was never placed, or is gone",
        Reason::TooManyBlocks => "a new block of a source that holds as many as it may",
        Reason::ShortTokens => "too few tokens to fill the block",
        Reason::UnresolvedHash => "stored by hash alone, and the hash is not known",
        Reason::UnknownBlock => "removed, but not held at that tier",
        Reason::Rehashed => "placed, and replaced another prefix under the same hash",
        _ => "",
    }
}

fn encodings(sources: &Sources) -> Table {
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (shape, count) in sources.sources.iter().flat_map(|source| source.ingest.shapes()) {
        let row = (shape.form(), producers::names(&producers::releases(shape)));
        *counts.entry(row).or_default() += count;
    }
    let mut table = new_table(&["encoding", "events", "sent by"]);
    for ((form, names), count) in counts {
        table.add_row([form, HumanCount(count).to_string(), names]);
    }
    table
}

/// The producers that send every shape of a capture, with the number of captures they fit.
fn fits(sources: &Sources) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in &sources.sources {
        let names = producers::of_shapes(source.ingest.shapes().map(|(shape, _)| shape));
        if !names.is_empty() {
            *counts.entry(names).or_default() += 1;
        }
    }
    let fits: Vec<String> = counts
        .into_iter()
        .map(|(names, captures)| match sources.sources.len() {
            1 => format!("All of it fits {names}"),
            all => format!("{captures} of {all} captures: all of it fits {names}"),
        })
        .collect();
    fits.join("\n")
}

fn write_drift(out: &mut impl Write, sources: &Sources) -> io::Result<()> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in sources.sources.iter().flat_map(|source| source.ingest.drift()) {
        *counts.entry(name).or_default() += count;
    }
    if counts.is_empty() {
        return Ok(());
    }
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let mut table = new_table(&["what", "count"]);
    for &(name, count) in rows.iter().take(DRIFT_ROWS_MAX) {
        table.add_row([name.escape_debug().to_string(), HumanCount(count).to_string()]);
    }
    if let Some(left) = rows.len().checked_sub(DRIFT_ROWS_MAX).filter(|&left| left > 0) {
        table.add_row([format!("and {left} more")]);
    }
    write_table(out, "Schema drift: what no known release sends", &table, &[1])
}

fn write_refused(out: &mut impl Write, sources: &Sources, summary: &Summary) -> io::Result<()> {
    if summary.malformed_batches == 0 {
        return Ok(());
    }
    let mut table = new_table(&["capture", "first", "sequence", "error"]);
    for source in &sources.sources {
        if let Some(refused) = &source.refused {
            table.add_row([
                source.path.display().to_string(),
                format!("batch {}", refused.batch),
                refused.sequence.to_string(),
                refused.error.to_string(),
            ]);
        }
    }
    let title = format!("Batches refused whole: {}", HumanCount(summary.malformed_batches));
    write_table(out, &title, &table, &[2])
}

fn index(summary: &Summary) -> Table {
    let mut table = new_table(&["what", "at the end"]);
    table.add_row(["workers (ranks)".to_owned(), HumanCount(summary.index.workers as u64).to_string()]);
    table.add_row(["entries".to_owned(), HumanCount(summary.index.entries as u64).to_string()]);
    table.add_row(["memory".to_owned(), HumanBytes(summary.index.bytes as u64).to_string()]);
    table.add_row(["digest", &summary.digest]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_explained() {
        for reason in Reason::ALL {
            assert!(!explain(reason).is_empty(), "{}", reason.label());
        }
    }
}
