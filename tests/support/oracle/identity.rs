//! What identifies a block besides its tokens: multimodal infos or extra keys, and the salt hidden among those.

use super::fields::{Fields, Malformed, text};
use super::hashes;
use super::value::Value;

/// What the two fields of one store say.
#[derive(Default)]
pub(crate) struct Identities {
    /// Per listed block, the u64 hashes of its objects, in wire order.
    pub(crate) blocks: Vec<Vec<u64>>,
    /// The salt in the first block's extra keys.
    pub(crate) cache_salt: Option<String>,
}

/// Reads and checks both fields; `block_mm_infos` gives the objects where it is present.
pub(crate) fn read(
    fields: &Fields<'_, '_>,
    lora_name: Option<&str>,
    has_parent: bool,
) -> Result<Identities, Malformed> {
    let mut identities = Identities::default();
    for (position, entry) in fields.array("extra_keys")?.unwrap_or_default().iter().enumerate() {
        let may_hold_salt = position == 0 && !has_parent;
        let (objects, salt) = extra_keys(entry, lora_name, may_hold_salt)?;
        identities.blocks.push(objects);
        identities.cache_salt = identities.cache_salt.or(salt);
    }
    if let Some(entries) = fields.array("block_mm_infos")? {
        identities.blocks = entries.iter().map(mm_info).collect::<Result<_, _>>()?;
    }
    Ok(identities)
}

fn extra_keys(
    entry: &Value<'_>,
    lora_name: Option<&str>,
    may_hold_salt: bool,
) -> Result<(Vec<u64>, Option<String>), Malformed> {
    if entry.is_nil() {
        return Ok((Vec::new(), None));
    }
    let mut items = entry.array().ok_or(Malformed)?.to_vec();
    let is_lora = |item: &Value<'_>| matches!((item, lora_name), (Value::Str(name), Some(lora)) if *name == lora.as_bytes());
    if let Some(position) = items.iter().position(is_lora) {
        items.remove(position);
    }
    let mut salt = None;
    if may_hold_salt {
        let is_salt = |item: &Value<'_>| {
            matches!(item, Value::Str(_)) && text(item).is_ok_and(|text| !hashes::is_hex_digest(&text))
        };
        if let Some(position) = items.iter().rposition(is_salt) {
            let found = text(&items.remove(position))?;
            let bare = found.strip_prefix("dynamo-cache-salt:").unwrap_or(&found);
            salt = Some(bare.to_owned()).filter(|salt| !salt.is_empty());
        }
    }
    let mut objects = Vec::new();
    for item in &items {
        match item {
            Value::Str(_) => objects.push(hashes::identifier(&text(item)?)),
            Value::Bin(bytes) => objects.push(hashes::opaque(bytes)),
            Value::Array(pair) => {
                if let Some(name @ Value::Str(_)) = pair.first() {
                    objects.push(hashes::identifier(&text(name)?));
                }
            }
            Value::Nil
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Map(_)
            | Value::Ext(..) => {}
        }
    }
    Ok((objects, salt))
}

/// One block's multimodal infos: nil, `{mm_objects: [...]}` or `[[...]]`.
fn mm_info(entry: &Value<'_>) -> Result<Vec<u64>, Malformed> {
    if entry.is_nil() {
        return Ok(Vec::new());
    }
    match slot(entry, "mm_objects")? {
        None | Some(Value::Nil) => Ok(Vec::new()),
        Some(objects) => objects.array().ok_or(Malformed)?.iter().map(mm_hash).collect(),
    }
}

fn mm_hash(object: &Value<'_>) -> Result<u64, Malformed> {
    let hash = slot(object, "mm_hash")?.ok_or(Malformed)?;
    u64::try_from(hash.int().ok_or(Malformed)?).map_err(|_| Malformed)
}

/// A struct's first field, of a map by name, of an array by position.
fn slot<'v, 'a>(value: &'v Value<'a>, name: &str) -> Result<Option<&'v Value<'a>>, Malformed> {
    if let Some(slots) = value.array() {
        return Ok(slots.first());
    }
    if value.map().is_none() {
        return Err(Malformed);
    }
    Ok(value.key(name))
}
