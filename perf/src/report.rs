//! What was measured, as Markdown and as JSON lines.

use std::fmt::Write;

use serde_json::json;

use crate::peers::{self, DYNAMO, FLOOR, KVTAP};
use crate::rounds::Measured;
use crate::support::cases::{Case, Content};
use crate::support::payload::Payload;

/// One case, and what its systems took.
pub(crate) struct Row {
    case: Case,
    /// Of a payload, in the mean.
    tokens: f64,
    blocks: f64,
    bytes: f64,
    payloads: usize,
    measured: Vec<Measured>,
}

impl Row {
    pub(crate) fn new(case: Case, payloads: &[Payload], measured: Vec<Measured>) -> Self {
        let mean =
            |of: fn(&Payload) -> usize| payloads.iter().map(of).sum::<usize>() as f64 / payloads.len() as f64;
        let tokens = mean(|payload| payload.tokens);
        let blocks = mean(|payload| payload.blocks);
        let bytes = mean(|payload| payload.bytes.len());
        Self { case, tokens, blocks, bytes, payloads: payloads.len(), measured }
    }

    fn of(&self, system: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.name == system)
    }

    fn ns_per_token(&self, measured: &Measured) -> Option<f64> {
        (self.tokens > 0.0).then(|| measured.ns_per_payload / self.tokens)
    }

    /// How many times faster than the peer.
    fn ratio_to_dynamo(&self, measured: &Measured) -> Option<f64> {
        self.of(DYNAMO).map(|dynamo| dynamo.ns_per_payload / measured.ns_per_payload)
    }

    /// How many times slower than the floor.
    fn ratio_to_floor(&self, measured: &Measured) -> Option<f64> {
        self.of(FLOOR).map(|floor| measured.ns_per_payload / floor.ns_per_payload)
    }
}

/// A table of one case.
pub(crate) fn section(row: &Row) -> String {
    let Row { case, tokens, blocks, bytes, payloads, .. } = row;
    let mut text = format!(
        "\n## {}\n{payloads} payloads of {} events, {tokens:.0} tokens, {blocks:.0} blocks, {bytes:.0} bytes; {} % filtered\n\n\
         | system | ns/token | ns/block | GB/s | allocations/batch | faster than dynamo | slower than floor |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        case.name,
        case.events,
        case.filtered_percent(),
    );
    for name in peers::names() {
        let Some(measured) = row.of(&name) else {
            let _ = writeln!(text, "| {name} | n/a | n/a | n/a | n/a | n/a | n/a |");
            continue;
        };
        let ns = measured.ns_per_payload;
        let _ = writeln!(
            text,
            "| {name} | {} | {:.1} | {:.2} | {:.1} | {} | {} |",
            cell(row.ns_per_token(measured), 2),
            ns / blocks,
            bytes / ns,
            measured.allocs_per_payload,
            cell(row.ratio_to_dynamo(measured), 1),
            cell(row.ratio_to_floor(measured), 2),
        );
    }
    text
}

fn cell(number: Option<f64>, digits: usize) -> String {
    number.map_or_else(|| "n/a".to_owned(), |number| format!("{number:.digits$}"))
}

/// A line per system that can decode the case.
pub(crate) fn json_lines(row: &Row) -> String {
    let line = |measured: &Measured| {
        let line = json!({
            "case": row.case.name,
            "blocks_per_event": row.case.blocks,
            "hybrid": row.case.filtered_percent(),
            "system": measured.name,
            "ns_per_token": row.ns_per_token(measured),
            "ns_per_block": measured.ns_per_payload / row.blocks,
            "gb_per_s": row.bytes / measured.ns_per_payload,
            "allocs_per_batch": measured.allocs_per_payload,
            "ratio_to_dynamo": row.ratio_to_dynamo(measured),
            "ratio_to_floor": row.ratio_to_floor(measured),
        });
        format!("{line}\n")
    };
    row.measured.iter().map(line).collect()
}

/// All cases in one table, the geometric means, and what filtering costs.
pub(crate) fn summary(rows: &[Row]) -> String {
    let names = peers::names();
    let own: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.starts_with(KVTAP)).collect();
    let mut text =
        String::from("\n## All cases\nns per block; in brackets, times faster than dynamo.\n\n| case |");
    names.iter().for_each(|name| text += &format!(" {name} |"));
    text += "\n| --- |";
    names.iter().for_each(|_| text += " ---: |");
    for row in rows {
        let _ = write!(text, "\n| {} |", row.case.name);
        for name in &names {
            text += &match row.of(name) {
                Some(measured) if name.starts_with(KVTAP) => format!(
                    " {:.1} ({}×) |",
                    measured.ns_per_payload / row.blocks,
                    cell(row.ratio_to_dynamo(measured), 1)
                ),
                Some(measured) => format!(" {:.1} |", measured.ns_per_payload / row.blocks),
                None => " n/a |".to_owned(),
            };
        }
    }
    text + "\n" + &means(rows, &own) + &splits(rows, &own)
}

/// A set of cases, and the ratio whose mean is taken over them.
struct Mean {
    title: &'static str,
    holds: fn(&Case) -> bool,
    ratio: fn(&Row, &Measured) -> Option<f64>,
}

const MEANS: [Mean; 5] = [
    Mean {
        title: "≥ 8 blocks per event, faster than dynamo",
        holds: |case| brings_tokens(case) && case.blocks >= 8,
        ratio: Row::ratio_to_dynamo,
    },
    Mean {
        title: "1 block per event, faster than dynamo",
        holds: |case| brings_tokens(case) && case.blocks == 1,
        ratio: Row::ratio_to_dynamo,
    },
    Mean {
        title: "removed only, faster than dynamo",
        holds: |case| case.content == Content::Removed,
        ratio: Row::ratio_to_dynamo,
    },
    Mean {
        title: "≥ 64 blocks, nothing filtered, slower than floor",
        holds: |case| brings_tokens(case) && case.blocks >= 64 && case.filtered_percent() == 0,
        ratio: Row::ratio_to_floor,
    },
    Mean {
        title: "≥ 64 blocks, hybrid 75 %, slower than floor",
        holds: |case| brings_tokens(case) && case.blocks >= 64 && case.filtered_percent() > 0,
        ratio: Row::ratio_to_floor,
    },
];

/// The split cases would count the hybrid ones twice.
fn brings_tokens(case: &Case) -> bool {
    case.content != Content::Removed && !case.is_split()
}

fn means(rows: &[Row], own: &[&str]) -> String {
    let mut text = String::from("\n## Geometric means\n\n| cases | count |");
    own.iter().for_each(|name| text += &format!(" {name} |"));
    text += "\n| --- | ---: |";
    own.iter().for_each(|_| text += " ---: |");
    for mean in &MEANS {
        let cases: Vec<&Row> = rows.iter().filter(|row| (mean.holds)(&row.case)).collect();
        let _ = write!(text, "\n| {} | {} |", mean.title, cases.len());
        for name in own {
            let ratios = cases.iter().filter_map(|row| (mean.ratio)(row, row.of(name)?));
            text += &format!(" {} |", cell(geometric_mean(ratios), 2));
        }
    }
    let allocations = |name: &&str| {
        let all = rows.iter().filter_map(|row| Some(row.of(name)?.allocs_per_payload));
        format!(" {:.1} |", all.fold(0.0, f64::max))
    };
    let _ = write!(text, "\n| allocations per batch, the most of any case | {} |", rows.len());
    text += &own.iter().map(allocations).collect::<String>();
    text + "\n"
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = ratios.fold((0.0, 0.0), |(sum, count), ratio| (sum + ratio.ln(), count + 1.0));
    (count > 0.0).then(|| f64::exp(sum / count))
}

/// What a filtered event costs beside a placed one, per payload byte.
fn splits(rows: &[Row], own: &[&str]) -> String {
    let mut text =
        String::from("\n## Filtered events\nCost per payload byte, as part of a placed event's.\n\n| case |");
    own.iter().for_each(|name| text += &format!(" {name} |"));
    text += "\n| --- |";
    own.iter().for_each(|_| text += " ---: |");
    for filtered in rows {
        let Some(stem) = filtered.case.name.strip_suffix("-filtered") else { continue };
        let Some(placed) = rows.iter().find(|row| row.case.name == format!("{stem}-placed")) else {
            continue;
        };
        let _ = write!(text, "\n| {stem} |");
        for name in own {
            let per_byte = |row: &Row| Some(row.of(name)?.ns_per_payload / row.bytes);
            let part = per_byte(filtered).zip(per_byte(placed)).map(|(one, other)| one / other);
            text += &format!(" {} |", cell(part, 2));
        }
    }
    text + "\n"
}
