//! Tagged maps: keys in any order, unknown ones noted as drift.
//!
//! Sent by vLLM ≥ 0.24.0, SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo and Dynamo's mocker.

use super::error::{Field, WireError};
use super::table::{RawDrift, RawEvent, Shape, Tag};
use super::walk::{FIELD_DEPTH, Walk};

/// The field a key names. Grouped by length, which is all that most wrong keys need.
#[inline]
pub(super) fn field_of(key: &[u8]) -> Option<Field> {
    let field = match key.len() {
        4 => Field::Type,
        6 => Field::Medium,
        7 => Field::LoraId,
        8 => Field::Locality,
        9 => match key {
            b"token_ids" => Field::TokenIds,
            b"lora_name" => Field::LoraName,
            b"group_idx" => Field::GroupIdx,
            _ => Field::Ownership,
        },
        10 => match key {
            b"block_size" => Field::BlockSize,
            b"extra_keys" => Field::ExtraKeys,
            b"cache_salt" => Field::CacheSalt,
            _ => Field::SessionId,
        },
        12 => Field::BlockHashes,
        14 => Field::BlockMmInfos,
        17 => Field::ParentBlockHash,
        18 => Field::SpecKind,
        19 => Field::LookaheadTokenIds,
        28 => Field::SlidingWindow,
        _ => return None,
    };
    (key == field.label().as_bytes()).then_some(field)
}

/// Walks a map event of `pairs` pairs, header already read.
pub(super) fn walk(walk: &mut Walk<'_, '_>, raw: &mut RawEvent, pairs: usize) -> Result<(), WireError> {
    for _ in 0..pairs {
        let at = walk.cursor.offset_u32();
        let Some(key) = walk.cursor.read_text()? else {
            walk.drift(RawDrift::Key(at));
            walk.skip(FIELD_DEPTH)?;
            walk.skip(FIELD_DEPTH)?;
            continue;
        };
        match field_of(key) {
            Some(Field::Type) => {
                raw.present.insert(Field::Type);
                raw.set(Field::Type, walk.cursor.offset_u32());
                raw.tag = match walk.cursor.read_text()? {
                    Some(name) => Tag::of(name),
                    None => {
                        walk.skip(FIELD_DEPTH)?;
                        Tag::Broken
                    }
                };
            }
            Some(field) => walk.field(raw, field)?,
            None => {
                walk.drift(RawDrift::Key(at));
                walk.skip(FIELD_DEPTH)?;
            }
        }
    }
    raw.shape = Shape::Map(raw.present);
    Ok(())
}
