//! A block's identity objects (multimodal identifiers, prompt-embedding digests) → sorted u64 for the local hash.

use crate::hash::{identifier, is_hex64, opaque};
use crate::policy::{Admitted, for_each_key};
use crate::wire::ExtraKey;

/// Identities of one event's blocks, ascending by block, then value. Reused.
#[derive(Debug, Default)]
pub(super) struct Identities {
    by_block: Vec<(usize, u64)>,
}

impl Identities {
    #[inline]
    pub(super) fn read(&mut self, admitted: &Admitted<'_>) {
        self.by_block.clear();
        let body = admitted.body();
        if body.block_mm_infos.is_some() || !body.extra_keys.is_empty() {
            self.read_objects(admitted);
        }
    }

    fn read_objects(&mut self, admitted: &Admitted<'_>) {
        let body = admitted.body();
        if let Some(infos) = body.block_mm_infos {
            infos.for_each(|block, mm_hash| self.by_block.push((block, mm_hash)));
        } else {
            // In the first block of a prompt, the last string that is no identifier is the salt.
            let mut salt_at = None;
            for_each_key(body, |block, key| {
                let value = match key {
                    ExtraKey::Text(text) => {
                        if block == 0 && admitted.parent().is_none() && !is_hex64(text) {
                            salt_at = Some(self.by_block.len());
                        }
                        identifier(text)
                    }
                    ExtraKey::Identifier(text) => identifier(text),
                    ExtraKey::Digest(bytes) => opaque(bytes),
                };
                self.by_block.push((block, value));
            });
            if let Some(salt_at) = salt_at {
                self.by_block.remove(salt_at);
            }
        }
        self.by_block.sort_unstable();
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }

    /// The identities of one block.
    pub(super) fn of(&self, block: usize) -> impl Iterator<Item = u64> {
        let start = self.by_block.partition_point(|&(at, _)| at < block);
        self.by_block[start..].iter().take_while(move |&&(at, _)| at == block).map(|&(_, value)| value)
    }
}
