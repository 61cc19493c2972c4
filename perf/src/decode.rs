//! `decode`: payload bytes to records.

use std::time::Duration;

use clap::Args;

use crate::machine;
use crate::peers;
use crate::report::{self, Row};
use crate::rounds::{Plan, measure};
use crate::support::cases;
use crate::support::payload::{TOKENS, payloads};

/// What to measure, and how to show it.
#[derive(Args)]
pub(crate) struct Options {
    /// Measure with fewer and shorter rounds, within 40 seconds.
    #[arg(long)]
    quick: bool,
    /// Print a JSON line per case and system; the tables go to standard error.
    #[arg(long)]
    json: bool,
    /// Measure only cases whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Measure only systems whose names contain this: for profilers. Ratios need all of them.
    #[arg(long, value_name = "TEXT", default_value = "")]
    system: String,
}

/// A slice is shorter than what a busy scheduler leaves a thread, so that most are not interrupted and the median is clean.
const SLICE: Duration = Duration::from_millis(1);
const FULL: Plan = Plan { rounds: 61, slice: SLICE };
const QUICK: Plan = Plan { rounds: 11, slice: SLICE };

/// Measures every case, showing each as soon as it is known, and sums up.
pub(crate) fn run(options: &Options) {
    let plan = if options.quick { QUICK } else { FULL };
    let show = |text: &str| if options.json { eprint!("{text}") } else { print!("{text}") };
    show(&machine::line(&["kvtap", "dynamo-kv-router", "rmp-serde", "rmpv"]));
    let mut rows = Vec::new();
    for case in cases::all().filter(|case| case.name.contains(&options.only)) {
        let payloads = payloads(&case, TOKENS);
        let mut systems = peers::able(&case);
        systems.retain(|system| system.name().contains(&options.system));
        let measured = measure(systems, &payloads, plan);
        let row = Row::new(case, &payloads, measured);
        show(&report::section(&row));
        if options.json {
            print!("{}", report::json_lines(&row));
        }
        rows.push(row);
    }
    show(&report::summary(&rows));
}
