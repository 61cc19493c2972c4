//! `kvtap-perf-service load`: what a query over HTTP costs, kvtap's service beside the router's own.

mod load;
#[path = "../../src/machine.rs"]
mod machine;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures kvtap's service beside its peer's")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fills both servers with the same blocks, and asks them by turns with wrk.
    Load(load::Options),
    /// Serves until stdin ends; what `load` starts.
    #[command(hide = true)]
    Serve {
        /// Which of the two.
        system: load::System,
    },
}

fn main() -> std::process::ExitCode {
    match Arguments::parse().command {
        Command::Load(options) => load::run(&options),
        Command::Serve { system } => {
            load::serve(system);
            std::process::ExitCode::SUCCESS
        }
    }
}
