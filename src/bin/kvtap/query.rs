//! `kvtap query`: replays captures, then tells which worker holds how much of each prompt.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use comfy_table::CellAlignment;
use kvtap::Prompt;

use crate::args::{QueryArgs, TokenIds};
use crate::json::{self, MatchEntry, PromptLine};
use crate::report::new_table;
use crate::sources::Sources;

const SHARDS: usize = 2;

pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<()> {
    let prompts = read_prompts(args)?;
    let sources = Sources::replay(&args.files, &args.source, SHARDS)?;
    let mut reader = sources.reader();
    let mut matches = Vec::new();
    let mut answers = Vec::with_capacity(prompts.len());
    for (number, token_ids) in prompts.iter().enumerate() {
        let mut prompt = Prompt::new(token_ids, args.source.block_size);
        prompt.lora_name = args.prompt.lora_name.as_deref();
        prompt.cache_salt = args.prompt.cache_salt.as_deref();
        prompt.bigram = args.prompt.bigram;
        let blocks = reader.find_matches(&prompt, &mut matches);
        matches.sort_unstable();
        answers.push(PromptLine {
            prompt: number,
            blocks,
            matches: matches.iter().map(MatchEntry::from).collect(),
        });
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        for answer in &answers {
            json::write_line(&mut out, answer)?;
        }
    } else {
        write_table(&mut out, &answers)?;
    }
    out.flush()?;
    // A recorder that was killed leaves such a file: tell what it held, then that it is damaged.
    sources.failure.map_or(Ok(()), Err)
}

fn read_prompts(args: &QueryArgs) -> anyhow::Result<Vec<Vec<u32>>> {
    match (&args.tokens, &args.tokens_file) {
        (Some(TokenIds(token_ids)), _) => Ok(vec![token_ids.clone()]),
        (None, Some(path)) => read_prompt_file(path),
        (None, None) => Ok(Vec::new()),
    }
}

/// One JSON array of token ids per line; blank lines are no prompts.
fn read_prompt_file(path: &Path) -> anyhow::Result<Vec<Vec<u32>>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let read = |(line, number): (&str, u64)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}: line {number} is not a JSON array of token ids", path.display()))
    };
    lines.map(read).collect()
}

/// A row per match; depths count from the prompt's start and include the tiers to their left.
fn write_table(out: &mut impl Write, answers: &[PromptLine]) -> io::Result<()> {
    let mut table =
        new_table(&["prompt", "blocks", "worker", "rank", "device", "+ host", "+ disk", "+ external"]);
    for answer in answers {
        let (prompt, blocks) = (answer.prompt.to_string(), answer.blocks.to_string());
        if answer.matches.is_empty() {
            table.add_row([&prompt, &blocks, "none"]);
        }
        for found in &answer.matches {
            let depths = [found.device, found.host_pinned, found.disk, found.external];
            let mut row =
                vec![prompt.clone(), blocks.clone(), found.worker.to_string(), found.dp_rank.to_string()];
            row.extend(depths.map(|depth| depth.to_string()));
            table.add_row(row);
        }
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out, "{}", table.trim_fmt())
}
