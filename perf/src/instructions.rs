//! `instructions`: counts per named case and SIMD level, and of the index, against the committed baseline.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::{Command, ExitCode};

use clap::Args;
use serde_json::Value;

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.csv");
const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Percent that a case may grow by without being named.
const GROWTH_MAX: u64 = 2;

/// What to do with the counts.
#[derive(Args)]
pub(crate) struct Options {
    /// Make them the baseline, instead of comparing them with it.
    #[arg(long)]
    update: bool,
}

/// Instructions by `case/setup`.
type Counts = BTreeMap<String, u64>;

/// Runs the benches, and fails if a case grew, is new, or is gone.
pub(crate) fn run(options: &Options) -> ExitCode {
    let counts = match count() {
        Ok(counts) => counts,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    if options.update {
        fs::write(BASELINE, csv(&counts)).expect("the baseline can be written");
        println!("{} cases are the new baseline", counts.len());
        return ExitCode::SUCCESS;
    }
    let baseline = parse(&fs::read_to_string(BASELINE).expect("the baseline can be read"));
    let problems = compare(&baseline, &counts);
    problems.iter().for_each(|problem| println!("{problem}"));
    if problems.is_empty() {
        println!("{} cases, none grew by more than {GROWTH_MAX} %", counts.len());
        return ExitCode::SUCCESS;
    }
    println!(
        "If that is as it should be: cargo run --release --manifest-path perf/Cargo.toml -- instructions --update"
    );
    ExitCode::FAILURE
}

fn count() -> Result<Counts, String> {
    let benches =
        ["bench", "--features", "bench", "--bench", "instructions", "--bench", "index_instructions"];
    let output =
        Command::new("cargo").args(benches).args(["--", "--output-format=json"]).current_dir(CRATE).output();
    let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("a bench failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8_lossy(&output.stdout).lines().map(case).collect()
}

/// One line of the bench's output: which case at which level, and how many instructions.
fn case(line: &str) -> Result<(String, u64), String> {
    let parsed = || {
        let line: Value = serde_json::from_str(line).ok()?;
        // `scalar(String :: from("map-bs16-b8"))`: the setup function is named as the level, or as what the index is asked to do.
        let details = line["details"].as_str()?;
        let (level, name) = (details.split('(').next()?, details.split('"').nth(1)?);
        let instructions = line["profiles"].as_array()?.iter().find_map(|profile| {
            let counted = &profile["summaries"]["total"]["summary"]["Callgrind"]["Ir"]["metrics"];
            // Alone, or on the left of an earlier run's.
            counted["Left"]["Int"].as_u64().or_else(|| counted["Both"][0]["Int"].as_u64())
        })?;
        Some((format!("{name}/{level}"), instructions))
    };
    parsed().ok_or_else(|| format!("not a count: {line}"))
}

fn csv(counts: &Counts) -> String {
    let mut text = String::from("case,instructions\n");
    for (case, instructions) in counts {
        let _ = writeln!(text, "{case},{instructions}");
    }
    text
}

fn parse(csv: &str) -> Counts {
    let lines = csv.lines().skip(1).filter_map(|line| line.split_once(','));
    lines.map(|(case, count)| (case.to_owned(), count.parse().expect("a count"))).collect()
}

/// A sentence per case that is not as it was; shrinking is welcome.
fn compare(baseline: &Counts, counts: &Counts) -> Vec<String> {
    let mut problems = Vec::new();
    for (case, &now) in counts {
        let Some(&before) = baseline.get(case) else {
            problems.push(format!("{case} is not in the baseline"));
            continue;
        };
        if now * 100 > before * (100 + GROWTH_MAX) {
            let percent = (now as f64 / before as f64 - 1.0) * 100.0;
            problems.push(format!("{case} grew by {percent:.1} %: {before} to {now} instructions"));
        }
    }
    let gone = baseline.keys().filter(|case| !counts.contains_key(*case));
    problems.extend(gone.map(|case| format!("{case} is in the baseline only")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cases: &[(&str, u64)]) -> Counts {
        cases.iter().map(|&(case, count)| (case.to_owned(), count)).collect()
    }

    #[test]
    fn growth_beyond_the_limit_is_named_and_shrinking_is_not() {
        let baseline = counts(&[("a", 1000), ("b", 1000), ("c", 1000)]);
        let problems = compare(&baseline, &counts(&[("a", 1021), ("b", 1020), ("c", 10)]));
        assert_eq!(problems, ["a grew by 2.1 %: 1000 to 1021 instructions"]);
    }

    #[test]
    fn new_and_missing_cases_are_named() {
        let problems = compare(&counts(&[("a", 1)]), &counts(&[("b", 1)]));
        assert_eq!(problems, ["b is not in the baseline", "a is in the baseline only"]);
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let baseline = counts(&[("a/scalar", 12), ("b/ssse3", 3)]);
        assert_eq!(parse(&csv(&baseline)), baseline);
    }
}
