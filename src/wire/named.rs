//! Tagged maps: keys in any order, unknown ones noted as drift.
//!
//! Sent by vLLM ≥ 0.24.0, SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo and Dynamo's mocker.

use super::error::{Field, WireError};
use super::table::{RawDrift, RawEvent, Shape, Tag};
use super::walk::{FIELD_DEPTH, Walk};

/// The field a key names. Every comparison is with a constant of the key's length: a load or two, no call.
#[inline]
fn field_of(key: &[u8]) -> Option<Field> {
    macro_rules! known {
        ($($length:literal => $($field:ident)*,)*) => {
            match key.len() {
                $($length => $(
                    if key == const { Field::$field.label().as_bytes() } { Some(Field::$field) } else
                )* { None },)*
                _ => None,
            }
        };
    }
    known! {
        4 => Type,
        6 => Medium,
        7 => LoraId,
        8 => Locality,
        9 => TokenIds LoraName GroupIdx Ownership,
        10 => BlockSize ExtraKeys CacheSalt SessionId,
        12 => BlockHashes,
        14 => BlockMmInfos,
        17 => ParentBlockHash,
        18 => SpecKind,
        19 => LookaheadTokenIds,
        28 => SlidingWindow,
    }
}

/// Walks a map event of `pairs` pairs, header already read.
#[inline]
pub(super) fn walk(
    walk: &mut Walk<'_, '_>,
    at: usize,
    raw: &mut RawEvent,
    pairs: usize,
) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    for _ in 0..pairs {
        let start = at.offset_u32();
        let Some(key) = at.read_text()? else {
            walk.drift(RawDrift::Key(start));
            walk.skip(&mut at, FIELD_DEPTH)?;
            walk.skip(&mut at, FIELD_DEPTH)?;
            continue;
        };
        match field_of(key) {
            Some(Field::Type) => {
                raw.present.insert(Field::Type);
                raw.set(Field::Type, at.offset_u32());
                raw.tag = match at.read_text()? {
                    Some(name) => Tag::of(name),
                    None => {
                        walk.skip(&mut at, FIELD_DEPTH)?;
                        Tag::Broken
                    }
                };
            }
            Some(Field::BlockHashes) => walk.block_hashes(&mut at, raw)?,
            Some(Field::TokenIds) => walk.token_ids(&mut at, raw)?,
            Some(field) => walk.field(&mut at, raw, field)?,
            None => {
                walk.drift(RawDrift::Key(start));
                walk.skip(&mut at, FIELD_DEPTH)?;
            }
        }
    }
    raw.shape = Shape::Map(raw.present);
    Ok(at.offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_names_its_field_and_nothing_else_does() {
        for field in Field::ALL {
            let label = field.label().as_bytes();
            assert_eq!(field_of(label), Some(field));
            let mut other = label.to_vec();
            *other.last_mut().expect("not empty") ^= 1;
            assert_eq!(field_of(&other), None);
            other.push(b'x');
            assert_eq!(field_of(&other), None);
        }
        assert_eq!(field_of(b""), None);
    }
}
