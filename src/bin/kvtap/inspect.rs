//! `kvtap inspect`: every event of a capture, decoded, with the verdict on it.

use std::io::{self, BufWriter, Write};

use kvtap::wire::{Body, Event, EventError, Gate, Removed, Stored, WireError};
use kvtap::{Applied, Observer, Verdict, Worker};

use crate::args::InspectArgs;
use crate::capture::{Capture, progress};
use crate::json::{self, EventLine, Fault, Hash};
use crate::sources::{start_engine, warn_of_losses};

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let engine = start_engine(1)?;
    let mut ingest = engine.ingest(args.source.config(0))?;
    let bar = progress([args.file.as_path()].into_iter());
    let mut capture = Capture::open(&args.file, &bar)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if !args.json {
        writeln!(out, "{}", HEADINGS.trim_end())?;
    }
    let mut inspector =
        Inspector { out, json: args.json, batch: 0, sequence: 0, timestamp: None, event: 0, written: Ok(()) };
    while let Some(record) = capture.next_record()? {
        inspector.event = 0;
        inspector.sequence = record.sequence;
        if let Err(error) = ingest.apply_observed(record.payload, &mut inspector) {
            inspector.refused(error);
        }
        std::mem::replace(&mut inspector.written, Ok(()))?;
        inspector.batch += 1;
    }
    inspector.out.flush()?;
    bar.finish_and_clear();
    warn_of_losses(&args.file, &ingest, args.source.block_size);
    Ok(())
}

/// Writes a line per event.
struct Inspector<W> {
    out: W,
    json: bool,
    /// Of the capture, from 0.
    batch: u64,
    sequence: u64,
    timestamp: Option<f64>,
    /// Of the batch, from 0.
    event: u64,
    /// How this batch's lines fared: an observer cannot fail.
    written: io::Result<()>,
}

impl<W: Write> Inspector<W> {
    fn line(&self, kind: &'static str) -> EventLine {
        EventLine { batch: self.batch, seq: self.sequence, kind, ..EventLine::default() }
    }

    fn refused(&mut self, error: WireError) {
        let fault = Some(Fault { error: error.kind().label().to_owned(), offset: error.offset() });
        let line = EventLine { fault, ..self.line("malformed") };
        self.write(&line, &format!("whole batch: {error}"));
    }

    fn write(&mut self, line: &EventLine, note: &str) {
        if self.written.is_err() {
            return;
        }
        self.written = if self.json {
            json::write_line(&mut self.out, line)
        } else {
            writeln!(self.out, "{}", columns(line, note).trim_end())
        };
    }
}

impl<W: Write> Observer for Inspector<W> {
    fn batch(&mut self, batch: Applied) {
        self.timestamp = Some(batch.timestamp);
    }

    fn event(&mut self, worker: Worker, event: &mut Event<'_>, verdict: Verdict) {
        let mut line = EventLine {
            ts: self.timestamp,
            dp_rank: Some(worker.dp_rank),
            event: Some(self.event),
            ..self.line("malformed")
        };
        self.event += 1;
        let mut note = String::new();
        match event {
            Event::Stored(stored) => line.stored(stored),
            Event::Removed(removed) => line.removed(removed),
            Event::Cleared(cleared) => {
                line.kind = "cleared";
                line.ownership = owned(cleared.ownership().ok().flatten());
            }
            Event::Unknown(tag) => {
                line.kind = "unknown";
                note = format!("tag {}", tag.escape_debug());
            }
            Event::Malformed(_) | _ => {}
        }
        match verdict {
            Verdict::Place => line.verdict = Some("place"),
            Verdict::Filter(reason) => line.verdict = Some(reason.label()),
            Verdict::Malformed(error) => {
                line.kind = "malformed";
                line.fault = Some(fault(error));
                note = error.to_string();
            }
            Verdict::Unknown | _ => {}
        }
        self.write(&line, &note);
    }
}

fn fault(error: EventError) -> Fault {
    Fault { error: format!("{}:{}", error.kind().label(), error.field().label()), offset: error.offset() }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

/// Both stages are shown whatever the verdict; one that cannot be read is left out whole.
impl EventLine {
    fn stored(&mut self, stored: &mut Stored<'_>) {
        self.kind = "stored";
        if let Ok(gate) = stored.gate() {
            self.gate(&gate);
        }
        if let Ok(body) = stored.body() {
            self.body(&body);
        }
    }

    fn removed(&mut self, removed: &mut Removed<'_>) {
        self.kind = "removed";
        if let Ok(gate) = removed.gate() {
            self.gate(&gate);
        }
        if let Ok(hashes) = removed.block_hashes() {
            self.block_hashes = Some(hashes.iter().map(|hash| Hash(hash.0)).collect());
        }
    }

    fn gate(&mut self, gate: &Gate<'_>) {
        self.medium = owned(gate.medium);
        self.group_idx = gate.group_idx;
        self.spec_kind = owned(gate.spec_kind);
        self.sliding_window = gate.sliding_window;
        self.locality = owned(gate.locality);
        self.ownership = owned(gate.ownership);
    }

    fn body(&mut self, body: &Body<'_>) {
        self.block_hashes = Some(body.block_hashes.iter().map(|hash| Hash(hash.0)).collect());
        self.parent = body.parent_block_hash.map(|hash| Hash(hash.0));
        // Of EAGLE pairs the first of each, so that there are as many as blocks account for.
        self.token_ids = body.token_ids.get(..body.token_count()).map(<[u32]>::to_vec);
        self.bigram = Some(body.bigram);
        self.block_size = Some(body.block_size);
        self.lora_name = owned(body.lora_name);
        self.cache_salt = owned(body.cache_salt);
        self.session_id = owned(body.session_id);
    }
}

const HEADINGS: &str = " batch       seq             ts  rank  kind       verdict                    \
                        medium      blocks   tokens    size  details";

/// One aligned line for people.
fn columns(line: &EventLine, note: &str) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let count = |count: Option<usize>| or_dash(count.map(|count| count.to_string()));
    format!(
        "{:>6} {:>9} {:>14} {:>5}  {:<9}  {:<25}  {:<10} {:>7} {:>8} {:>7}  {}{note}",
        line.batch,
        line.seq,
        or_dash(line.ts.map(|ts| format!("{ts:.3}"))),
        or_dash(line.dp_rank.map(|rank| rank.to_string())),
        line.kind,
        line.verdict.unwrap_or("-"),
        or_dash(line.medium.as_deref().map(printable)),
        count(line.block_hashes.as_ref().map(Vec::len)),
        count(line.token_ids.as_ref().map(Vec::len)),
        or_dash(line.block_size.map(|size| size.to_string())),
        details(line),
    )
}

/// The rest of what the event says, absent fields left out.
fn details(line: &EventLine) -> String {
    let mut details = String::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            details.push_str(name);
            details.push_str(&value);
            details.push(' ');
        }
    };
    let hash = |hash: &Hash| format!("{:016x}", hash.0);
    add("first=", line.block_hashes.as_ref().and_then(|hashes| hashes.first()).map(hash));
    add("parent=", line.parent.as_ref().map(hash));
    add("pairs", line.bigram.filter(|&bigram| bigram).map(|_| String::new()));
    add("group=", line.group_idx.map(|group| group.to_string()));
    add("window=", line.sliding_window.map(|window| window.to_string()));
    let texts = [
        ("spec_kind=", &line.spec_kind),
        ("lora=", &line.lora_name),
        ("salt=", &line.cache_salt),
        ("session=", &line.session_id),
        ("locality=", &line.locality),
        ("ownership=", &line.ownership),
    ];
    for (name, text) in texts {
        add(name, text.as_deref().map(printable));
    }
    details
}

/// Text of a publisher, made safe for a terminal.
fn printable(text: &str) -> String {
    if text.is_empty() { "\"\"".to_owned() } else { text.escape_debug().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_headings() {
        let line = EventLine {
            kind: "removed",
            verdict: Some("place"),
            medium: Some("GPU".to_owned()),
            block_hashes: Some(vec![Hash(255)]),
            ..EventLine::default()
        };
        let line = columns(&line, "");
        for (heading, value) in
            [("kind", "removed"), ("verdict", "place"), ("medium", "GPU"), ("details", "first=00")]
        {
            assert_eq!(HEADINGS.find(heading), line.find(value), "{heading}");
        }
        let end_of = |text: &str, word: &str| text.find(word).map(|start| start + word.len());
        assert_eq!(end_of(HEADINGS, "blocks"), end_of(&line, "      1"));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[31m"), "a\\u{1b}[31m");
        assert_eq!(printable(""), "\"\"");
    }
}
