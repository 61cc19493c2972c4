//! What was measured, as Markdown and as JSON lines.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::subject::{CLASSES, Row, Times};
use super::workload::Trace;

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// Microseconds: the sample at each rank.
fn quantiles(times: &mut [u32]) -> [Option<f64>; 3] {
    times.sort_unstable();
    QUANTILES.map(|(_, quantile)| {
        let rank = (times.len().saturating_sub(1) as f64 * quantile) as usize;
        times.get(rank).map(|&time| f64::from(time) / 1000.0)
    })
}

fn miss_ns(row: &mut Row) -> Option<f64> {
    quantiles(&mut row.miss)[0].map(|microseconds| microseconds * 1000.0)
}

/// A table of what each system costs, and one of its queries.
pub(super) fn section(trace: &Trace, own: [usize; 2], rows: &mut [Row]) -> String {
    let Trace { workers, entries, distinct, .. } = trace;
    let [shards, maps] = own.map(|bytes| bytes as f64 / *entries as f64);
    let mut text = format!(
        "\n### {workers} workers\n{entries} entries, {distinct} distinct blocks; by its own count kvtap has {shards:.1} bytes per entry \
         in its shard, {maps:.1} in engine-hash maps.\n\n\
         | system | bytes/entry | ingest | stored | removed | cleared | filling | miss, ns | 1 reader | 2 readers |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    );
    for row in &mut *rows {
        let miss = miss_ns(row);
        let Row { name, bytes_per_entry, cpu, read, .. } = row;
        let _ = write!(text, "| {name} | {} |", cell(*bytes_per_entry, 1));
        for nanoseconds in [cpu.steady, cpu.stored, cpu.removed, cpu.cleared, cpu.fill, miss] {
            let _ = write!(text, " {} |", cell(nanoseconds, 0));
        }
        for rate in read {
            let _ = write!(text, " {} |", cell(rate.map(|rate| rate / 1e6), 2));
        }
        text.push('\n');
    }
    let [a, b, c, d] = rows[0].quiet.each_ref().map(Vec::len);
    let _ = write!(
        text,
        "\nQueries, µs, p50 / p99 / p99.9; quiet these are of {a}, {b}, {c} and {d} samples:\n\n| system | |"
    );
    CLASSES.iter().for_each(|(class, _)| text.push_str(&format!(" {class} |")));
    text.push_str("\n| --- | --- | --- | --- | --- | --- |\n");
    for row in rows {
        for (state, times) in [("quiet", &mut row.quiet), ("under ingest", &mut row.loaded)] {
            let _ = write!(text, "| {} | {state} |", row.name);
            for times in times {
                let three = quantiles(times).map(|time| cell(time, 2));
                let _ = write!(text, " {} |", three.join(" / "));
            }
            text.push('\n');
        }
    }
    text
}

fn cell(number: Option<f64>, digits: usize) -> String {
    number.map_or("–".to_owned(), |number| format!("{number:.digits$}"))
}

/// One line per system.
pub(super) fn json_lines(workers: usize, rows: &mut [Row]) -> String {
    let mut lines = String::new();
    for row in rows {
        let miss = miss_ns(row);
        let line = json!({
            "workers": workers,
            "system": row.name,
            "bytes_per_entry": row.bytes_per_entry,
            "ingest_cpu_ns_per_block": row.cpu.steady,
            "stored_cpu_ns_per_block": row.cpu.stored,
            "removed_cpu_ns_per_block": row.cpu.removed,
            "cleared_cpu_ns_per_block": row.cpu.cleared,
            "fill_cpu_ns_per_block": row.cpu.fill,
            "miss_ns": miss,
            "readers": { "1": row.read[0], "2": row.read[1] },
            "query_us": { "quiet": by_class(&mut row.quiet), "loaded": by_class(&mut row.loaded) },
        });
        let _ = writeln!(lines, "{line}");
    }
    lines
}

fn by_class(times: &mut Times) -> Value {
    let named = CLASSES.iter().zip(times).map(|((class, _), times)| {
        let three = QUANTILES.iter().zip(quantiles(times));
        let three: Map<_, _> = three.map(|((name, _), time)| ((*name).to_owned(), json!(time))).collect();
        ((*class).to_owned(), Value::Object(three))
    });
    Value::Object(named.collect())
}
