//! What a random store says.

use super::{BLOCKS, CHAINS, engine_hash, lora_of, salt_of, tokens_of};
use crate::support::pack::Choices;

/// One store before it is packed.
pub(super) struct Shape {
    pub(super) blocks: Vec<usize>,
    pub(super) parent: Option<u64>,
    pub(super) tokens: Vec<u32>,
    pub(super) after_last: u32,
    pub(super) bigram: bool,
    pub(super) block_size: u32,
    pub(super) lora: Option<&'static str>,
    pub(super) salt: Option<&'static str>,
    pub(super) placeholder: bool,
}

impl Shape {
    pub(super) fn draw(choices: &mut Choices, full_size: u32) -> Self {
        let chain = choices.below(CHAINS);
        let start = if choices.percent(65) { 0 } else { choices.below(BLOCKS / CHAINS) };
        let length = 1 + choices.below(4);
        let depths = start..(start + length).min(BLOCKS / CHAINS);
        let mut blocks: Vec<_> = depths.map(|depth| chain + depth * CHAINS).collect();
        let mut parent = start.checked_sub(1).map(|depth| engine_hash(chain + depth * CHAINS));
        let mut block_size = full_size;
        if choices.percent(6) {
            block_size = choices.pick(&[full_size / 2, full_size * 2, 0, 1]);
        }
        let mut tokens: Vec<_> = blocks.iter().flat_map(|block| tokens_of(*block, block_size)).collect();
        let after_last = tokens_of(blocks[blocks.len() - 1] + CHAINS, full_size)[0];
        let (mut salt, mut lora) = (salt_of(chain), lora_of(chain));
        if start > 0 && choices.percent(40) {
            salt = None; // to be inherited
        }
        match choices.below(100) {
            0 | 10..22 => salt = choices.pick(&[None, Some("tenant-b"), Some("")]),
            1 => lora = choices.pick(&[None, Some("other-lora"), Some("")]),
            2 => tokens.truncate(choices.below(tokens.len() + 1)),
            3 => tokens.extend([1, 2, 3]),
            4 => blocks.push(blocks[0]),
            5 => parent = Some(engine_hash(blocks[0])),
            6 => blocks.clear(),
            7 => parent = Some(engine_hash(choices.below(BLOCKS))),
            8 => tokens.reverse(),
            9 => parent = None,
            _ => {}
        }
        let placeholder = choices.percent(8);
        if placeholder {
            tokens.clear();
            parent = None;
            salt = None;
            block_size = choices.pick(&[0, 0, full_size]);
        }
        let bigram = choices.percent(8);
        Self { blocks, parent, tokens, after_last, bigram, block_size, lora, salt, placeholder }
    }
}
