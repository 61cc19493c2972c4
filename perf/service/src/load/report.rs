//! Rows, and the table they make.

use super::fill::Size;
use super::wrk::Run;
use super::{Options, System};
use crate::machine;

/// One kind of request, and what every run of it took, by system.
pub(super) struct Row {
    pub(super) size: usize,
    pub(super) under_ingest: bool,
    what: String,
    runs: [Vec<Run>; 2],
}

impl Row {
    pub(super) fn new(index: usize, size: &Size, under_ingest: bool) -> Self {
        let what = if size.by_tokens {
            format!("`/query`, {} tokens", size.blocks * 16)
        } else {
            format!("`/query_by_hash`, {} blocks", size.blocks)
        };
        Self { size: index, under_ingest, what, runs: [Vec::new(), Vec::new()] }
    }

    pub(super) fn name(&self) -> String {
        format!("{}, {}", self.what, if self.under_ingest { "under ingest" } else { "quiet" })
    }

    pub(super) fn add(&mut self, system: System, run: Run) {
        self.runs[system as usize].push(run);
    }

    fn median(&self, system: System, figure: impl Fn(&Run) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.runs[system as usize].iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}

/// What was run, and where.
pub(super) fn head(options: &Options) {
    println!("{}", machine::line(&["kvtap", "dynamo-kv-router", "axum", "tokio"]));
    println!(
        "wrk with {} connections and one thread, {} rounds of {} s; {} HTTP threads a server. Under ingest: every worker \
         stores {} blocks a second and removes as many.",
        options.connections, options.rounds, options.seconds, options.threads, options.ingest
    );
}

/// Medians of the rounds; how many times better kvtap's is.
pub(super) fn table(rows: &[Row]) {
    println!(
        "| | kvtap p50 / p99, µs | dynamo p50 / p99, µs | p50 | p99 | kvtap, requests/s | dynamo, requests/s | times |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for row in rows {
        let [(k50, k99, k), (d50, d99, d)] = System::BOTH.map(|system| {
            let of = |figure: fn(&Run) -> f64| row.median(system, figure);
            (of(|run| run.p50_us), of(|run| run.p99_us), of(|run| run.per_second))
        });
        println!(
            "| {} | {k50:.0} / {k99:.0} | {d50:.0} / {d99:.0} | {:.2}× | {:.2}× | {k:.0} | {d:.0} | {:.2}× |",
            row.name(),
            d50 / k50,
            d99 / k99,
            k / d
        );
    }
}
