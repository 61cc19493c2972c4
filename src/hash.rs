//! Block hashes: pure functions, the only user of the XXH3 crate.
//!
//! They equal dynamo-kv-router 1.6.1's `LocalBlockHash` and `SequenceHash` for every event it understands
//! (`lib/kv-router/src/protocols.rs` there).

use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_64_with_seed};

use crate::ids::{EngineHash, LocalHash, PrefixHash, Tier, Worker};

/// Seed of local and prefix hashes.
const SEED: u64 = 1337;

/// XXH3 derives a secret from the seed on every call above 240 bytes; ours hardly ever changes.
static SECRET: [u8; 192] = const_custom_default_secret(SEED);
const LONG: usize = 240;

/// The namespace part of a prompt or event as a hash seed: LoRA adapter and cache salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u64);

/// A cache salt as it enters the seed; two salts are the same if these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaltHash(u64);

impl SaltHash {
    /// Absent and empty salts are none.
    #[inline]
    pub(crate) fn of(salt: Option<&[u8]>) -> Option<Self> {
        salt.filter(|salt| !salt.is_empty()).map(|salt| Self(xxh3_64_with_seed(salt, 1)))
    }

    /// For those who take over what another knew.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl Seed {
    /// The seed under a LoRA name (empty is none) and a salt.
    #[inline]
    pub(crate) fn new(lora_name: Option<&str>, salt: Option<SaltHash>) -> Self {
        let lora = match lora_name {
            Some(name) if !name.is_empty() => xxh3_64_with_seed(name.as_bytes(), 0),
            _ => 0,
        };
        Self(SEED.wrapping_add(lora).wrapping_add(salt.map_or(0, |salt| salt.0)))
    }
}

/// Hash of one block given as bytes: little-endian u32 token ids, then sorted little-endian u64 identities.
#[inline]
pub(crate) fn local_hash(block: &[u8], seed: Seed) -> LocalHash {
    LocalHash(if block.len() > LONG && seed.0 == SEED {
        xxh3_64_with_secret(block, &SECRET)
    } else {
        xxh3_64_with_seed(block, seed.0)
    })
}

/// Chain step: the prefix hash of a block after `parent` (none at the start of a prompt).
#[inline]
pub(crate) fn prefix_hash(parent: Option<PrefixHash>, local: LocalHash) -> PrefixHash {
    let Some(parent) = parent else { return PrefixHash(local.0) };
    let mut pair = [0; 16];
    let (low, high) = pair.split_at_mut(8);
    low.copy_from_slice(&parent.0.to_le_bytes());
    high.copy_from_slice(&local.0.to_le_bytes());
    PrefixHash(xxh3_64_with_seed(&pair, SEED))
}

/// Tells a block and all before it from others under one engine hash, if the check of the block before it is given.
#[inline]
pub(crate) fn chain_check(parent: Option<u64>, local: LocalHash) -> u64 {
    prefix_hash(parent.map(PrefixHash), local).0
}

/// Makes digests of the blocks of one page of the index: equal digests are equal blocks, up to 64-bit collisions. It is the
/// index's own: a publisher who could aim at another's page would hide what that one holds. A seed that is no constant would
/// have to be mixed in again for every page; a secret is not.
#[derive(Clone, Debug)]
pub(crate) struct PageKey([u8; 192]);

impl PageKey {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(const_custom_default_secret(seed))
    }

    #[inline]
    pub(crate) fn digest(&self, blocks: &[LocalHash]) -> u64 {
        xxh3_64_with_secret(bytemuck::cast_slice(blocks), &self.0)
    }
}

/// A multimodal identifier as u64: the first 16 of 64 hex digits, or a hash of anything else.
pub(crate) fn identifier(text: &[u8]) -> u64 {
    match text.first_chunk::<16>() {
        Some(head) if is_hex64(text) => head.iter().fold(0, |value, digit| value << 4 | hex_digit(*digit)),
        _ => xxh3_64_with_seed(text, 0),
    }
}

/// Value of a hex digit; anything for others.
const fn hex_digit(digit: u8) -> u64 {
    // Digits end in their value; both cases of letters in theirs minus nine.
    (digit as u64 & 0x0f) + 9 * (digit as u64 >> 6)
}

/// Whether the text is 64 hex digits, the usual form of a multimodal identifier.
pub(crate) fn is_hex64(text: &[u8]) -> bool {
    // Without a way out of the loop, so that it becomes a few vector instructions.
    let hex = |bytes: &[u8; 64]| bytes.iter().fold(true, |hex, byte| hex & byte.is_ascii_hexdigit());
    text.len() == 64 && text.first_chunk().is_some_and(hex)
}

/// An opaque digest among the extra keys (vLLM prompt embeddings) as u64.
pub(crate) fn opaque(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, 0)
}

/// One term of the order-free index digest (design: wrapping sum over live entries).
pub(crate) fn digest_term(worker: Worker, tier: Tier, engine_hash: EngineHash) -> u64 {
    let mut term = [0; 21];
    term[..8].copy_from_slice(&worker.worker_id.to_le_bytes());
    term[8..12].copy_from_slice(&worker.dp_rank.to_le_bytes());
    term[12] = tier as u8;
    term[13..].copy_from_slice(&engine_hash.0.to_le_bytes());
    xxh3_64_with_seed(&term, 0)
}

/// The complete blocks of a token list. EAGLE blocks are windows of one token more, overlapping by it.
pub(crate) fn blocks(tokens: &[u32], block_size: usize, bigram: bool) -> impl Iterator<Item = &[u32]> {
    let window = block_size.saturating_add(usize::from(bigram)).max(1);
    let tokens = if block_size == 0 { &[] } else { tokens };
    tokens.windows(window).step_by(block_size.max(1))
}

/// Local hash of a block without identity objects.
#[inline]
pub(crate) fn hash_tokens(tokens: &[u32], seed: Seed) -> LocalHash {
    if cfg!(target_endian = "little") {
        local_hash(bytemuck::cast_slice(tokens), seed)
    } else {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        local_hash(&bytes, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_64_hex_digits_are_their_first_sixteen() {
        let digits = "0123456789abcDEF".repeat(4);
        assert_eq!(identifier(digits.as_bytes()), 0x0123_4567_89ab_cdef);
        for at in 0..64 {
            for other in ['g', 'G', '/', ':', '@', '`', '\u{7f}'] {
                let mut text = digits.clone();
                text.replace_range(at..=at, &other.to_string());
                assert!(!is_hex64(text.as_bytes()), "{text}");
                assert_eq!(identifier(text.as_bytes()), xxh3_64_with_seed(text.as_bytes(), 0));
            }
        }
        assert!(!is_hex64(&digits.as_bytes()[1..]) && !is_hex64(format!("{digits}0").as_bytes()));
    }
}
