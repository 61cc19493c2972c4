//! `instructions`
use clap::Args;
use std::process::ExitCode;
#[derive(Args)]
pub(crate) struct Options {}
pub(crate) fn run(_: &Options) -> ExitCode {
    ExitCode::SUCCESS
}
