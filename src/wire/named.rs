//! Tagged maps: keys in any order, unknown ones noted as drift.
//!
//! Sent by vLLM ≥ 0.24.0, SGLang ≥ 0.5.20, TensorRT-LLM through Dynamo and Dynamo's mocker.

use super::cursor::Cursor;
use super::error::{Field, WireError};
use super::table::{RawDrift, RawEvent, Shape, Tag};
use super::tails::Place;
use super::walk::{FIELD_DEPTH, Walk};

/// The field a key names. Every comparison is with a constant of the key's length: a load or two, no call.
#[inline(always)]
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
    let mut tail = None;
    for pair in 1..=pairs {
        let start = at.offset();
        let marker = at.peek()?;
        let length = usize::from(marker & 0x1f);
        let body = start.wrapping_add(1);
        let key = match marker {
            0xa0..=0xbf => at.payload().get(body..body.wrapping_add(length)),
            _ => None,
        };
        // Each key has code of its own, in which its length is a constant: as in `skip_value`, no waiting.
        macro_rules! arms {
            ($($field:ident: $step:expr,)*) => {
                match key.and_then(field_of) {
                    $(Some(Field::$field) => {
                        at.go(body.wrapping_add(const { Field::$field.label().len() }));
                        $step;
                    })*
                    None => at.go(unusual(walk, start, raw)?),
                }
            };
        }
        arms! {
            Type: tag(walk, &mut at, raw)?,
            BlockHashes: walk.block_hashes(&mut at, raw)?,
            TokenIds: {
                walk.token_ids(&mut at, raw)?;
                let place = Place { named: true, left: pairs.saturating_sub(pair), present: raw.present };
                if let Some(end) = walk.known_tail(at.offset(), place, raw) {
                    raw.shape = Shape::Map(raw.present);
                    return Ok(end);
                }
                tail = Some((at.offset(), place));
            },
            ParentBlockHash: walk.field(&mut at, raw, Field::ParentBlockHash)?,
            BlockSize: walk.field(&mut at, raw, Field::BlockSize)?,
            LoraId: walk.field(&mut at, raw, Field::LoraId)?,
            Medium: walk.field(&mut at, raw, Field::Medium)?,
            LoraName: walk.field(&mut at, raw, Field::LoraName)?,
            ExtraKeys: walk.field(&mut at, raw, Field::ExtraKeys)?,
            BlockMmInfos: walk.field(&mut at, raw, Field::BlockMmInfos)?,
            GroupIdx: walk.field(&mut at, raw, Field::GroupIdx)?,
            SpecKind: walk.field(&mut at, raw, Field::SpecKind)?,
            SlidingWindow: walk.field(&mut at, raw, Field::SlidingWindow)?,
            Locality: walk.field(&mut at, raw, Field::Locality)?,
            Ownership: walk.field(&mut at, raw, Field::Ownership)?,
            SessionId: walk.field(&mut at, raw, Field::SessionId)?,
            CacheSalt: walk.field(&mut at, raw, Field::CacheSalt)?,
            LookaheadTokenIds: walk.field(&mut at, raw, Field::LookaheadTokenIds)?,
        }
    }
    raw.shape = Shape::Map(raw.present);
    if let Some((start, place)) = tail {
        walk.learn_tail(start..at.offset(), place, raw);
    }
    Ok(at.offset())
}

/// A pair whose key is unknown, no text, or written with a longer header than it needs.
#[inline(never)]
fn unusual(walk: &mut Walk<'_, '_>, at: usize, raw: &mut RawEvent) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    let start = at.offset_u32();
    let field = match at.read_text()? {
        Some(key) => field_of(key),
        None => {
            walk.skip(&mut at, FIELD_DEPTH)?;
            None
        }
    };
    match field {
        Some(Field::Type) => tag(walk, &mut at, raw)?,
        Some(Field::BlockHashes) => walk.block_hashes(&mut at, raw)?,
        Some(Field::TokenIds) => walk.token_ids(&mut at, raw)?,
        Some(field) => walk.field(&mut at, raw, field)?,
        None => {
            walk.drift(RawDrift::Key(start));
            walk.skip(&mut at, FIELD_DEPTH)?;
        }
    }
    Ok(at.offset())
}

#[inline(always)]
fn tag(walk: &Walk<'_, '_>, at: &mut Cursor<'_>, raw: &mut RawEvent) -> Result<(), WireError> {
    raw.present.insert(Field::Type);
    raw.set(Field::Type, at.offset_u32());
    raw.tag = match at.read_text()? {
        Some(name) => Tag::of(name),
        None => {
            walk.skip(at, FIELD_DEPTH)?;
            Tag::Broken
        }
    };
    Ok(())
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
