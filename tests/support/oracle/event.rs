//! The two readings of an event: what the verdict of steps 1 to 4 needs, and the rest.

use super::Digest;
use super::fields::{Fields, Malformed, Tag};
use super::hashes::engine_hash;
use super::identity::{self, Identities};
use super::value::Value;

/// Python's hash of the empty tuple: the root's parent in SGLang up to 0.4.9.
const ROOT_PARENT: u64 = 5_740_354_900_026_072_187;

/// The fields of the first reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) ownership: Option<String>,
    pub(crate) locality: Option<String>,
    pub(crate) medium: Option<String>,
    pub(crate) group_idx: Option<u32>,
    pub(crate) spec_kind: Option<String>,
    pub(crate) sliding_window: Option<u32>,
}

impl Head {
    pub(crate) fn read(tag: Tag, fields: &Fields<'_, '_>) -> Result<Self, Malformed> {
        let ownership = fields.text("ownership")?;
        if tag == Tag::Cleared {
            return Ok(Self { ownership, ..Self::default() });
        }
        Ok(Self {
            ownership,
            locality: fields.text("locality")?,
            medium: fields.text("medium")?,
            group_idx: fields.u32("group_idx")?,
            spec_kind: fields.text("kv_cache_spec_kind")?,
            sliding_window: fields.u32("kv_cache_spec_sliding_window")?,
        })
    }
}

/// The rest of a stored event.
pub(crate) struct Body {
    pub(crate) block_hashes: Vec<u64>,
    /// As on the wire; see [`Body::parent`].
    pub(crate) wire_parent: Option<u64>,
    pub(crate) tokens: Tokens,
    pub(crate) block_size: u32,
    pub(crate) lora_name: Option<String>,
    /// The event's own field, before extra keys and parents are asked.
    pub(crate) cache_salt: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) identities: Identities,
}

/// Token ids as the wire has them.
#[derive(Default)]
pub(crate) struct Tokens {
    /// One per position; of a pair, its first.
    pub(crate) ids: Vec<u32>,
    /// The second of the last pair; present exactly for a list of pairs.
    pub(crate) after_last: Option<u32>,
}

impl Tokens {
    /// The tokens that block number `block` hashes: its own, and for pairs one more.
    pub(crate) fn of_block(&self, block: usize, block_size: u32) -> Vec<u32> {
        let size = usize::try_from(block_size).expect("a small size");
        let mut all = self.ids.clone();
        all.extend(self.after_last);
        let window = size + usize::from(self.after_last.is_some());
        all[block * size..][..window].to_vec()
    }
}

impl Body {
    pub(crate) fn read(fields: &Fields<'_, '_>, digest: Digest) -> Result<Self, Malformed> {
        let block_hashes = hashes(fields, digest)?;
        let wire_parent =
            fields.find("parent_block_hash").map(|parent| engine_hash(parent, digest)).transpose()?;
        if !fields.has("token_ids") {
            return Err(Malformed);
        }
        let tokens = tokens(fields.array("token_ids")?.unwrap_or_default())?;
        let block_size = match fields.u32("block_size")? {
            Some(size) => size,
            None if tokens.ids.is_empty() => 0,
            None => return Err(Malformed),
        };
        let lora_name = fields.text("lora_name")?;
        let has_parent = wire_parent.is_some_and(|parent| parent != ROOT_PARENT);
        let identities = identity::read(fields, lora_name.as_deref(), has_parent)?;
        Ok(Self {
            block_hashes,
            wire_parent,
            tokens,
            block_size,
            lora_name,
            cache_salt: fields.text("cache_salt")?,
            session_id: fields.text("session_id")?,
            identities,
        })
    }

    /// The block before the first one, if this is not a root.
    pub(crate) fn parent(&self) -> Option<u64> {
        self.wire_parent.filter(|parent| *parent != ROOT_PARENT)
    }

    /// The salt the event itself names; an empty one is none.
    pub(crate) fn own_salt(&self) -> Option<String> {
        let field = self.cache_salt.clone().filter(|salt| !salt.is_empty());
        field.or_else(|| self.identities.cache_salt.clone())
    }
}

/// The required list of engine hashes.
pub(crate) fn hashes(fields: &Fields<'_, '_>, digest: Digest) -> Result<Vec<u64>, Malformed> {
    let list = fields.array("block_hashes")?.ok_or(Malformed)?;
    list.iter().map(|hash| engine_hash(hash, digest)).collect()
}

fn tokens(list: &[Value<'_>]) -> Result<Tokens, Malformed> {
    let mut tokens = Tokens::default();
    let pairs = matches!(list.first(), Some(Value::Array(_)));
    for item in list {
        if !pairs {
            tokens.ids.push(item.u32().ok_or(Malformed)?);
            continue;
        }
        let Some([first, second]) = item.array() else { return Err(Malformed) };
        let (first, second) = (first.u32().ok_or(Malformed)?, second.u32().ok_or(Malformed)?);
        if tokens.after_last.is_some_and(|expected| expected != first) {
            return Err(Malformed);
        }
        tokens.ids.push(first);
        tokens.after_last = Some(second);
    }
    Ok(tokens)
}
