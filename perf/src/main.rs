//! Measures kvtap beside its peers, on one machine, in one process. See the README.

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
mod alloc;
mod decode;
#[expect(clippy::cast_possible_truncation, reason = "block sizes, depths and worker ids are small")]
mod end_to_end;
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of workers, lengths and ranks are small, and never negative"
)]
mod index;
mod instructions;
mod machine;
mod peers;
mod receive;
mod report;
mod rounds;
#[path = "../../benches/support/mod.rs"]
mod support;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Measures kvtap beside its peers.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Payload bytes to records: every system over the same named cases.
    Decode(decode::Options),
    /// The index alone: memory, ingest, queries quiet and under ingest, against other indexes.
    Index(index::Options),
    /// Payload bytes to queryable blocks, beside dynamo's decoder, normalizer and index.
    EndToEnd(end_to_end::Options),
    /// One listener over ipc, beside a bare receive loop.
    Receive(receive::Options),
    /// Counts instructions and compares them with the baseline.
    Instructions(instructions::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Decode(options) => {
            decode::run(&options);
            ExitCode::SUCCESS
        }
        Command::Index(options) => {
            index::run(&options);
            ExitCode::SUCCESS
        }
        Command::EndToEnd(options) => {
            end_to_end::run(&options);
            ExitCode::SUCCESS
        }
        Command::Receive(options) => {
            receive::run(&options);
            ExitCode::SUCCESS
        }
        Command::Instructions(options) => instructions::run(&options),
    }
}
