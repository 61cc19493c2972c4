//! The `kvtap` program: decodes captured and live KV-cache events and answers what they say. Data goes to stdout, all else to
//! stderr. Exit status: 0 done, 1 the work failed, 2 bad usage.

mod args;
mod capture;
mod sources;
mod replay;
mod report;
mod producers;
mod inspect;
mod placements;
mod query;
#[cfg(feature = "zmq")]
mod live;
#[cfg(feature = "mock")]
mod mock;
mod json;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Args, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FAILED: u8 = 1;
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return not_a_command(&error),
    };
    let done = match &args.command {
        Command::Replay(args) => replay::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Placements(args) => placements::run(args),
        Command::Query(args) => query::run(args),
        #[cfg(feature = "zmq")]
        Command::Serve(args) => live::serve(args),
        #[cfg(feature = "zmq")]
        Command::Capture(args) => live::capture(args),
        #[cfg(feature = "zmq")]
        Command::Doctor(args) => live::doctor(args),
        #[cfg(feature = "mock")]
        Command::Mock(args) => mock::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has had enough of it.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::from(if is_bad_usage(&error) { BAD_USAGE } else { FAILED })
        }
    }
}

/// Whether the failure lies in what was asked for.
fn is_bad_usage(error: &anyhow::Error) -> bool {
    #[cfg(feature = "zmq")]
    if error
        .downcast_ref::<kvtap::source::SourceError>()
        .is_some_and(kvtap::source::SourceError::is_bad_option)
    {
        return true;
    }
    #[cfg(feature = "mock")]
    if mock::is_bad_usage(error) {
        return true;
    }
    #[cfg(feature = "server")]
    if error.is::<live::FileError>()
        || error.downcast_ref::<kvtap::server::ServiceError>().is_some_and(|error| error.is_bad_option())
    {
        return true;
    }
    error.is::<kvtap::ConfigError>()
}

/// A line on stderr. If even that is closed, there is nobody left to tell.
fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Help, the version, or one sentence about what is wrong with the command line.
fn not_a_command(error: &clap::Error) -> ExitCode {
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        note(&one_sentence(&error.to_string()));
    }
    ExitCode::from(BAD_USAGE)
}

/// The first paragraph of clap's message on one line; usage and tips follow after it.
fn one_sentence(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ")
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_error_is_one_line() {
        let error = Args::try_parse_from(["kvtap", "replay"]).unwrap_err();
        assert_eq!(
            one_sentence(&error.to_string()),
            "error: the following required arguments were not provided: <FILE>..."
        );
    }

    #[test]
    fn a_closed_pipe_is_found_under_any_context() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing");
        assert!(is_closed_pipe(&closed));
        assert!(!is_closed_pipe(&io::Error::from(io::ErrorKind::StorageFull).into()));
    }
}
