//! Local hashes of an event's complete blocks, straight from its decoded tokens.

use super::identity::Identities;
use crate::hash::{Seed, blocks, hash_tokens, local_hash};
use crate::ids::LocalHash;
use crate::policy::Admitted;

/// Hashes blocks; owns the scratch, which is reused.
#[derive(Debug, Default)]
pub(super) struct LocalHasher {
    identities: Identities,
    block: Vec<u8>,
    hashes: Vec<LocalHash>,
}

impl LocalHasher {
    /// The local hashes of the event's leading complete blocks, at most one per engine hash.
    #[inline]
    pub(super) fn hash(&mut self, admitted: &Admitted<'_>) -> &[LocalHash] {
        self.hashes.clear();
        let body = admitted.body();
        let (block_size, count) = (body.block_size as usize, body.block_hashes.len());
        let seed = Seed::new(body.lora_name, admitted.salt());
        self.identities.read(admitted);
        if self.identities.is_empty() && !body.bigram && block_size > 0 {
            // Split off one by one: an iterator of chunks divides by the block size, twice.
            let mut rest = body.token_ids;
            for _ in 0..count {
                let Some((block, after)) = rest.split_at_checked(block_size) else { break };
                self.hashes.push(hash_tokens(block, seed));
                rest = after;
            }
            return &self.hashes;
        }
        let blocks = blocks(body.token_ids, block_size, body.bigram).take(count);
        for (block, tokens) in blocks.enumerate() {
            self.block.clear();
            self.block.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
            self.block.extend(self.identities.of(block).flat_map(u64::to_le_bytes));
            self.hashes.push(local_hash(&self.block, seed));
        }
        &self.hashes
    }
}
