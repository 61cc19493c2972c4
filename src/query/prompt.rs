//! What is asked: a prompt as tokens, and the hashes of its blocks.

use crate::hash::{SaltHash, Seed, blocks, hash_tokens};
use crate::ids::LocalHash;

/// A prompt as a router knows it.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by callers, with `..Default::default()`")]
pub struct Prompt<'a> {
    /// Token ids, from the prompt's start.
    pub token_ids: &'a [u32],
    /// Tokens per block.
    pub block_size: u32,
    /// Adapter name; empty is none.
    pub lora_name: Option<&'a str>,
    /// Cache namespace; empty is none.
    pub cache_salt: Option<&'a str>,
    /// Whether the workers publish EAGLE pairs: blocks are windows of one token more.
    pub bigram: bool,
}

impl<'a> Prompt<'a> {
    /// A prompt without adapter or salt.
    #[must_use]
    pub fn new(token_ids: &'a [u32], block_size: u32) -> Self {
        Self { token_ids, block_size, ..Self::default() }
    }

    /// Local hashes of the complete blocks, appended to `out`. Multimodal identities are not tokens: a router that has
    /// them asks by local hashes it computed itself.
    pub fn local_hashes(&self, out: &mut Vec<LocalHash>) {
        let seed = Seed::new(self.lora_name, SaltHash::of(self.cache_salt.map(str::as_bytes)));
        let blocks = blocks(self.token_ids, self.block_size as usize, self.bigram);
        out.extend(blocks.map(|tokens| hash_tokens(tokens, seed)));
    }
}
