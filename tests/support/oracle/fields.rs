//! One event's fields under their names, whether it came as a tuple or as a map.

use std::collections::BTreeMap;

use super::value::Value;

/// The three names on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Stored,
    Removed,
    Cleared,
}

/// The event broke a rule that costs only itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What the tag said.
pub(crate) enum Opened<'v, 'a> {
    Known(Tag, Fields<'v, 'a>),
    Unknown,
    Malformed,
}

/// Name to value. Unknown names are in it too and are never asked for.
#[derive(Default)]
pub(crate) struct Fields<'v, 'a> {
    by_name: BTreeMap<Vec<u8>, &'v Value<'a>>,
}

impl<'v, 'a> Fields<'v, 'a> {
    fn set(&mut self, name: &str, value: &'v Value<'a>) {
        self.by_name.insert(name.as_bytes().to_vec(), value);
    }

    /// Whether the field is there at all, be it nil.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name.as_bytes())
    }

    /// The field, unless it is missing or nil.
    pub(crate) fn find(&self, name: &str) -> Option<&'v Value<'a>> {
        self.by_name.get(name.as_bytes()).copied().filter(|value| !value.is_nil())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Malformed> {
        self.find(name).map(text).transpose()
    }

    pub(crate) fn u32(&self, name: &str) -> Result<Option<u32>, Malformed> {
        self.find(name).map(|value| value.u32().ok_or(Malformed)).transpose()
    }

    pub(crate) fn array(&self, name: &str) -> Result<Option<&'v [Value<'a>]>, Malformed> {
        self.find(name).map(|value| value.array().ok_or(Malformed)).transpose()
    }
}

/// Text that is used must be UTF-8, as str or as bin.
pub(crate) fn text(value: &Value<'_>) -> Result<String, Malformed> {
    let bytes = value.text().ok_or(Malformed)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}

/// Reads the tag and names the fields.
pub(crate) fn open<'v, 'a>(event: &'v Value<'a>) -> Opened<'v, 'a> {
    let tag = match event {
        Value::Array(slots) => slots.first(),
        Value::Map(_) => event.key("type"),
        Value::Nil
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::Str(_)
        | Value::Bin(_)
        | Value::Ext(..) => None,
    };
    let Some(Ok(name)) = tag.map(text) else { return Opened::Malformed };
    let tag = match name.as_str() {
        "BlockStored" => Tag::Stored,
        "BlockRemoved" => Tag::Removed,
        "AllBlocksCleared" => Tag::Cleared,
        _ => return Opened::Unknown,
    };
    if let Some(slots) = event.array() {
        return match (tag, slots.len()) {
            (Tag::Stored, 0..5) | (Tag::Removed, 0..2) => Opened::Malformed,
            (Tag::Stored, _) => Opened::Known(tag, stored_tuple(slots)),
            (Tag::Removed, _) => Opened::Known(tag, removed_tuple(slots)),
            (Tag::Cleared, _) => Opened::Known(tag, cleared_tuple(slots)),
        };
    }
    let mut fields = Fields::default();
    for (key, value) in event.map().unwrap_or_default() {
        if let Some(name) = key.text() {
            fields.by_name.insert(name.to_vec(), value); // the last of repeated keys stays
        }
    }
    Opened::Known(tag, fields)
}

fn stored_tuple<'v, 'a>(slots: &'v [Value<'a>]) -> Fields<'v, 'a> {
    let names = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"];
    let mut fields = Fields::default();
    for (name, value) in names.iter().zip(&slots[1..]) {
        fields.set(name, value);
    }
    if let Some(slot) = slots.get(7) {
        if slot.map().is_some() {
            // SGLang 0.5.18 and 0.5.19 put a metadata map here.
            if let Some(salt) = slot.key("cache_salt") {
                fields.set("cache_salt", salt);
            }
        } else {
            fields.set("lora_name", slot);
        }
    }
    if let Some(slot) = slots.get(8) {
        fields.set("extra_keys", slot);
    }
    let mut tail = slots.get(9..).unwrap_or_default();
    if let Some(first @ Value::Array(_)) = tail.first() {
        fields.set("block_mm_infos", first);
        tail = &tail[1..];
    }
    name_tail(&mut fields, tail, Tag::Stored);
    fields
}

fn removed_tuple<'v, 'a>(slots: &'v [Value<'a>]) -> Fields<'v, 'a> {
    let mut fields = Fields::default();
    fields.set("block_hashes", &slots[1]);
    if let Some(medium) = slots.get(2) {
        fields.set("medium", medium);
    }
    name_tail(&mut fields, slots.get(3..).unwrap_or_default(), Tag::Removed);
    fields
}

fn cleared_tuple<'v, 'a>(slots: &'v [Value<'a>]) -> Fields<'v, 'a> {
    let mut fields = Fields::default();
    if let Some(slot) = slots.get(1).filter(|slot| slot.text() == Some(b"kvcr")) {
        fields.set("ownership", slot);
    }
    fields
}

fn name_tail<'v, 'a>(fields: &mut Fields<'v, 'a>, tail: &'v [Value<'a>], tag: Tag) {
    let is_u32 = |value: &Value<'_>| value.u32().is_some();
    let is_text = |value: &Value<'_>| value.text().is_some();
    let layout: [(&str, bool); 5] = [
        ("group_idx", false),
        ("kv_cache_spec_kind", true),
        ("kv_cache_spec_sliding_window", false),
        ("locality", true),
        ("ownership", true),
    ];
    let fits = |(slot, (_, wants_text)): (&Value<'_>, &(&str, bool))| {
        slot.is_nil() || if *wants_text { is_text(slot) } else { is_u32(slot) }
    };
    if tail.iter().zip(&layout).all(fits) {
        for (value, (name, _)) in tail.iter().zip(&layout) {
            fields.set(name, value);
        }
        return;
    }
    let mut numbers = tail.iter().filter(|value| is_u32(value));
    for name in ["group_idx", "kv_cache_spec_sliding_window"] {
        if let Some(value) = numbers.next() {
            fields.set(name, value);
        }
    }
    if let Some(kind) = tail.iter().rfind(|value| is_text(value)) {
        fields.set("kv_cache_spec_kind", kind);
    }
    let infos = tail.iter().rfind(|value| value.array().is_some());
    if let (Tag::Stored, Some(infos)) = (tag, infos) {
        fields.set("block_mm_infos", infos);
    }
}
