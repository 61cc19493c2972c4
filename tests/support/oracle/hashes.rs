//! Every hash of the contract: engine hashes from the wire, local and prefix hashes, identifiers.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Digest;
use super::fields::Malformed;
use super::value::Value;

const SEED: u64 = 1337;

/// An engine block hash: any integer of 64 bits, or the digest bytes as one big-endian number.
pub(crate) fn engine_hash(value: &Value<'_>, digest: Digest) -> Result<u64, Malformed> {
    if let Some(number) = value.int() {
        let bits = u64::try_from(number).or_else(|_| i64::try_from(number).map(i64::cast_unsigned));
        return bits.map_err(|_| Malformed);
    }
    let Value::Bin(bytes) = value else { return Err(Malformed) };
    if bytes.is_empty() {
        return Err(Malformed);
    }
    let width = bytes.len().min(8);
    let kept = match digest {
        Digest::Low => &bytes[bytes.len() - width..],
        Digest::High => &bytes[..width],
    };
    Ok(kept.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

/// The seed of local hashes under a LoRA and a salt.
fn seed(lora_name: Option<&str>, cache_salt: Option<&str>) -> u64 {
    let part = |name: Option<&str>, seed| match name {
        None | Some("") => 0,
        Some(name) => xxh3_64_with_seed(name.as_bytes(), seed),
    };
    SEED.wrapping_add(part(lora_name, 0)).wrapping_add(part(cache_salt, 1))
}

/// The hash of one block's own content.
pub(crate) fn local_hash(
    tokens: &[u32],
    identities: &[u64],
    lora_name: Option<&str>,
    cache_salt: Option<&str>,
) -> u64 {
    let mut sorted = identities.to_vec();
    sorted.sort_unstable();
    let mut bytes = Vec::new();
    for token in tokens {
        bytes.extend(token.to_le_bytes());
    }
    for identity in sorted {
        bytes.extend(identity.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, seed(lora_name, cache_salt))
}

/// The hash of a block and everything before it.
pub(crate) fn prefix_hash(before: Option<u64>, local_hash: u64) -> u64 {
    let Some(before) = before else { return local_hash };
    let mut bytes = before.to_le_bytes().to_vec();
    bytes.extend(local_hash.to_le_bytes());
    xxh3_64_with_seed(&bytes, SEED)
}

/// The u64 of an identifier: a digest's first half-words, or a hash of the text.
pub(crate) fn identifier(text: &str) -> u64 {
    if is_hex_digest(text) {
        return u64::from_str_radix(&text[..16], 16).expect("hex digits");
    }
    xxh3_64_with_seed(text.as_bytes(), 0)
}

/// Sixty-four hex digits of either case.
pub(crate) fn is_hex_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The u64 of opaque bytes among the extra keys.
pub(crate) fn opaque(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, 0)
}

/// One triple's share of the index digest.
pub(crate) fn digest_share(worker_id: u64, dp_rank: u32, tier: u8, engine_hash: u64) -> u64 {
    let mut bytes = worker_id.to_le_bytes().to_vec();
    bytes.extend(dp_rank.to_le_bytes());
    bytes.push(tier);
    bytes.extend(engine_hash.to_le_bytes());
    xxh3_64_with_seed(&bytes, 0)
}
