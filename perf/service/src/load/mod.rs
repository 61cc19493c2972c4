//! The plan of a run: which servers, how full, which prompts, in which order.

mod fill;
mod report;
mod servers;
mod wrk;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use fill::{Fill, Size};
use report::Row;
use servers::Pair;
use wrk::Wrk;

pub(crate) use servers::serve;

/// The servers, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    Kvtap,
    Dynamo,
}

impl System {
    pub(crate) const BOTH: [Self; 2] = [Self::Kvtap, Self::Dynamo];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kvtap => "kvtap",
            Self::Dynamo => "dynamo",
        }
    }
}

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Numbers of workers, one fill each.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64])]
    workers: Vec<u64>,
    /// Rounds; in each every row is measured once on each server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Connections that wrk keeps open, each with one request at a time.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Threads of each server's HTTP runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Blocks per second and worker that are stored, and as many removed, in the rows under ingest.
    #[arg(long, default_value_t = 1_000)]
    ingest: u64,
    /// Only rows whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// One short round with eight workers.
    #[arg(long)]
    quick: bool,
}

/// Blocks asked for, and in how many steps workers hold them.
const SIZES: [Size; 4] = [
    Size { blocks: 64, steps: 16, prompts: 16, by_tokens: false },
    Size { blocks: 512, steps: 16, prompts: 16, by_tokens: false },
    Size { blocks: 2_048, steps: 16, prompts: 16, by_tokens: false },
    // A million tokens.
    Size { blocks: 62_500, steps: 20, prompts: 1, by_tokens: true },
];

pub(crate) fn run(options: &Options) -> ExitCode {
    let Some(wrk) = Wrk::find() else {
        eprintln!("kvtap-perf-service: wrk is not installed; it is in Debian's package of that name");
        return ExitCode::from(2);
    };
    let all = if options.quick { &[8][..] } else { &options.workers };
    report::head(options);
    for &workers in all {
        let pair = Pair::start(options.threads);
        let mut fill = Fill::new(&pair, workers);
        println!("\n#### {workers} workers\n");
        println!("{}\n", fill.publish_all());
        let rows = measure(options, &wrk, &pair, &mut fill);
        report::table(&rows);
    }
    ExitCode::SUCCESS
}

/// All rows of one fill, round by round, the servers by turns.
fn measure(options: &Options, wrk: &Wrk, pair: &Pair, fill: &mut Fill) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for under_ingest in [false, true] {
        for (index, size) in SIZES.iter().enumerate() {
            let row = Row::new(index, size, under_ingest);
            if row.name().contains(&options.only) {
                rows.push(row);
            }
        }
    }
    let rounds = if options.quick { 1 } else { options.rounds };
    for round in 0..rounds {
        for under_ingest in [false, true] {
            if rows.iter().all(|row| row.under_ingest != under_ingest) {
                continue;
            }
            let churn = under_ingest.then(|| fill.start_churn(options.ingest));
            for row in rows.iter_mut().filter(|row| row.under_ingest == under_ingest) {
                fill.compare(pair, row.size);
                let mut order = System::BOTH;
                order.rotate_left(round % 2);
                for system in order {
                    let script = fill.script(row.size);
                    let run = wrk.run(options, pair.address(system), &script);
                    eprintln!("round {round}, {}, {}: {run:?}", row.name(), system.name());
                    row.add(system, run);
                }
            }
            if let Some(churn) = churn {
                let sent = fill.stop_churn(churn);
                // What the publisher kept up with, which may be less than was asked for.
                eprintln!("round {round}: {sent:.0} blocks per second stored while asking");
            }
        }
    }
    rows
}
