//! The doctor's findings for people.

use std::io::{self, Write};

use comfy_table::Table;
use indicatif::HumanCount;

use super::findings::{Findings, ReplayFinding};
use crate::report::{new_table, write_table};

pub(crate) fn write(out: &mut impl Write, found: &Findings) -> io::Result<()> {
    writeln!(
        out,
        "{}: {} messages, {} events, {} bytes in {:.1} s",
        found.endpoint,
        HumanCount(found.messages),
        HumanCount(found.events.total()),
        HumanCount(found.payload_bytes),
        found.seconds,
    )?;
    if !found.sent_by.is_empty() {
        writeln!(out, "All of it fits {}", found.sent_by)?;
    }
    write_table(out, "Stream", &stream(found), &[])?;
    if !found.encodings.is_empty() {
        let mut table = new_table(&["encoding", "events", "sent by"]);
        for encoding in &found.encodings {
            table.add_row([&encoding.form, &HumanCount(encoding.events).to_string(), &encoding.sent_by]);
        }
        write_table(out, "Encodings", &table, &[1])?;
    }
    if !found.mix.is_empty() {
        write_table(
            out,
            &format!("Events, and the verdict at block size {}", found.block_size),
            &mix(found),
            &[2, 4, 6],
        )?;
    }
    if !found.drift.is_empty() {
        let mut table = new_table(&["what", "count"]);
        for (name, count) in &found.drift {
            table.add_row([name.escape_debug().to_string(), HumanCount(*count).to_string()]);
        }
        write_table(out, "Schema drift: what no known release sends", &table, &[1])?;
    }
    if found.advice.is_empty() {
        return writeln!(out, "\nNothing to change.");
    }
    writeln!(out, "\nAdvice")?;
    found.advice.iter().try_for_each(|line| writeln!(out, " * {line}"))
}

fn stream(found: &Findings) -> Table {
    let mut table = new_table(&["what", "found"]);
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let topics: Vec<String> =
        found.topics.iter().map(|(topic, count)| format!("'{topic}' ({count})")).collect();
    let ranks: Vec<String> = found.ranks.iter().map(u32::to_string).collect();
    let replay = match &found.replay {
        ReplayFinding::NotAsked => "not asked (--replay ENDPOINT)".to_owned(),
        ReplayFinding::Answers { frames } => format!("answers, in replies of {frames} frames"),
        ReplayFinding::Strange { error } => error.clone(),
        ReplayFinding::Silent => "does not answer".to_owned(),
    };
    let rows = [
        ("topics", list(&topics)),
        ("sequence numbers", format!("{} to {}", number(found.first_sequence), number(found.cursor))),
        (
            "missing, twice, restarts",
            format!("{}, {}, {}", found.missing_batches, found.duplicates, found.restarts),
        ),
        ("bad messages, bad payloads", format!("{}, {}", found.bad_messages, found.malformed_batches)),
        ("ranks", list(&ranks)),
        ("cache salts", list(&found.cache_salts)),
        ("adapters", list(&found.lora_names)),
        ("EAGLE pairs", if found.bigram_events > 0 { "yes (ask with bigram)" } else { "no" }.to_owned()),
        ("replay", replay),
    ];
    for (what, value) in rows {
        table.add_row([what.to_owned(), value]);
    }
    table
}

fn mix(found: &Findings) -> Table {
    let mut table = new_table(&["event", "medium", "group", "kind", "size", "verdict", "events"]);
    let dash = || "-".to_owned();
    for row in &found.mix {
        let kind = &row.kind;
        table.add_row([
            kind.event.to_owned(),
            kind.medium.clone().unwrap_or_else(dash),
            kind.group_idx.map_or_else(dash, |group| group.to_string()),
            kind.spec_kind.clone().unwrap_or_else(dash),
            kind.block_size.map_or_else(dash, |size| size.to_string()),
            kind.verdict.to_owned(),
            HumanCount(row.events).to_string(),
        ]);
    }
    table
}
