//! Step 5: the cache namespace. Later blocks of a prompt do not repeat its salt, so it is taken from the parent.

use super::Reason;
use crate::hash::{SaltHash, is_hex64};
use crate::ids::EngineHash;
use crate::wire::{Body, ExtraKey};

/// Marks a salt among other extra keys (Dynamo's vLLM patch).
const TAGGED: &[u8] = b"dynamo-cache-salt:";

/// Under which salt a block is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Unknown block, or one without salt.
    Plain,
    Salted(SaltHash),
    /// Known under more than one.
    Ambiguous,
}

/// Answers under which salt a block of this worker and rank is known.
pub(crate) trait KnownBlocks {
    fn namespace(&self, engine_hash: EngineHash) -> Namespace;
}

/// The salt of an event with tokens.
#[inline]
pub(super) fn admit(
    body: &Body<'_>,
    parent: Option<EngineHash>,
    known: &impl KnownBlocks,
) -> Result<Option<SaltHash>, Reason> {
    let own = SaltHash::of(body.cache_salt.map(str::as_bytes)).or_else(|| match parent {
        None if !body.extra_keys.is_empty() => SaltHash::of(salt_among_extra_keys(body)),
        _ => None,
    });
    match (own, parent) {
        (None, Some(parent)) => match known.namespace(parent) {
            Namespace::Plain => Ok(None),
            Namespace::Salted(salt) => Ok(Some(salt)),
            Namespace::Ambiguous => Err(Reason::AmbiguousCacheNamespace),
        },
        (own, _) => Ok(own),
    }
}

/// The last plain string of the first block that is neither the LoRA name nor 64 hex digits (vLLM ≥ 0.17.1 sends the
/// salt only with the block that starts at token 0).
fn salt_among_extra_keys<'e>(body: &Body<'e>) -> Option<&'e [u8]> {
    let mut salt = None;
    for_each_key(body, |block, key| {
        if let (0, ExtraKey::Text(text)) = (block, key)
            && !is_hex64(text)
        {
            salt = Some(text);
        }
    });
    salt.map(|salt: &[u8]| salt.strip_prefix(TAGGED).unwrap_or(salt))
}

/// Every extra key but one item per block equal to the LoRA name.
pub(crate) fn for_each_key<'e>(body: &Body<'e>, mut each: impl FnMut(usize, ExtraKey<'e>)) {
    let lora_name = body.lora_name.map(str::as_bytes);
    let mut skipped_in = None;
    body.extra_keys.for_each(|block, key| {
        if skipped_in != Some(block) && lora_name.is_some_and(|name| key == ExtraKey::Text(name)) {
            skipped_in = Some(block);
        } else {
            each(block, key);
        }
    });
}
