//! The command line. Every value is checked here, so that a bad one is refused before any work starts.

use std::path::PathBuf;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum, value_parser};
use kvtap::{Copies, DigestHalf, SourceConfig};

#[cfg(feature = "zmq")]
use crate::live::{CaptureArgs, DoctorArgs, ServeArgs};

#[derive(Debug, Parser)]
#[command(name = "kvtap", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay captures into an index and sum up what happened
    Replay(ReplayArgs),
    /// Show every event of a capture, decoded, one per line
    Inspect(InspectArgs),
    /// Show every block placed or removed, as JSON lines
    Placements(PlacementsArgs),
    /// Replay captures, then tell which worker holds how much of each prompt
    Query(QueryArgs),
    /// Follow running engines; sum up at the end
    #[cfg(feature = "zmq")]
    Serve(ServeArgs),
    /// Record what a running engine publishes
    #[cfg(feature = "zmq")]
    Capture(CaptureArgs),
    /// Tell what a running engine publishes, and what a router would make of it
    #[cfg(feature = "zmq")]
    Doctor(DoctorArgs),
    /// Stand in for an engine: publish simulated traffic, or write it to a capture
    #[cfg(feature = "mock")]
    Mock(crate::mock::MockArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Captures; each is one worker, numbered from 0 in this order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Index shards, each with a thread of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u8).range(1..=64))]
    pub(crate) shards: u8,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print JSON lines instead of columns
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlacementsArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("prompts").required(true).multiple(false)))]
pub(crate) struct QueryArgs {
    /// Captures; each is one worker, numbered from 0 in this order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The prompt, as token ids
    #[arg(long, value_name = "1,2,3", group = "prompts", value_parser = read_tokens)]
    pub(crate) tokens: Option<TokenIds>,
    /// Prompts, one per line, each a JSON array of token ids
    #[arg(long, value_name = "FILE", group = "prompts")]
    pub(crate) tokens_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Print a JSON line per prompt instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// How prompts are asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct PromptArgs {
    /// Adapter the prompts run with
    #[arg(long, value_name = "NAME")]
    pub(crate) lora_name: Option<String>,
    /// Cache salt (namespace) of the prompts
    #[arg(long, value_name = "SALT")]
    pub(crate) cache_salt: Option<String>,
    /// Hash EAGLE windows of block size + 1 tokens, as workers with EAGLE publish them
    #[arg(long)]
    pub(crate) bigram: bool,
}

/// How captures are read.
#[derive(Debug, clap::Args)]
pub(crate) struct SourceArgs {
    /// Tokens per block, as the engine was configured
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=65536))]
    pub(crate) block_size: u32,
    /// How repeated stores of a block count
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CopiesArg::Count)]
    copies: CopiesArg,
    /// Which 64 bits of a digest name a block
    #[arg(long, value_enum, value_name = "HALF", default_value_t = DigestArg::Low)]
    digest: DigestArg,
}

impl SourceArgs {
    /// The source that stands for the capture at this position.
    pub(crate) fn config(&self, worker_id: u64) -> SourceConfig {
        let mut config = SourceConfig::new(worker_id);
        config.block_size = self.block_size;
        config.copies = match self.copies {
            CopiesArg::Count => Copies::Count,
            CopiesArg::Set => Copies::Set,
        };
        config.digest = match self.digest {
            DigestArg::Low => DigestHalf::Low,
            DigestArg::High => DigestHalf::High,
        };
        config
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CopiesArg {
    /// Each store is a copy of its own
    Count,
    /// Stores are idempotent, the first removal is final (vLLM's "full" report mode)
    Set,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DigestArg {
    /// The last 8 bytes, as vLLM truncates
    Low,
    /// The first 8 bytes, as SGLang and TensorRT-LLM do
    High,
}

/// A prompt on the command line. A type of its own because clap reads a bare `Vec` as a repeated option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenIds(pub(crate) Vec<u32>);

fn read_tokens(list: &str) -> Result<TokenIds, String> {
    let read = |token: &str| {
        token.trim().parse().map_err(|_| format!("'{}' is not a token id (0 to {})", token.trim(), u32::MAX))
    };
    list.split(',').map(read).collect::<Result<_, _>>().map(TokenIds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn token_lists_are_numbers_between_commas() {
        assert_eq!(read_tokens("1, 2,4294967295"), Ok(TokenIds(vec![1, 2, u32::MAX])));
        for bad in ["", "1,,2", "1,2,", "-1", "4294967296", "1;2", "0x1", "1.0"] {
            assert!(read_tokens(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn options_reach_the_source() {
        let command = ["kvtap", "inspect", "f", "--block-size", "64", "--copies", "set", "--digest", "high"];
        let Command::Inspect(args) = Args::try_parse_from(command).unwrap().command else { panic!() };
        let config = args.source.config(3);
        assert_eq!((config.worker_id, config.dp_rank, config.block_size), (3, 0, 64));
        assert_eq!((config.copies, config.digest), (Copies::Set, DigestHalf::High));
    }
}
