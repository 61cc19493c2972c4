//! Tagged tuples: fixed slots, then a tail told apart by msgpack type.
//!
//! Sent by vLLM ≤ 0.23.0 and SGLang ≤ 0.5.19. Stored: tag, hashes, parent, tokens, block size, lora id, medium,
//! lora name (SGLang 0.5.18–0.5.19: a map with `cache_salt`), extra keys, tail. Removed: tag, hashes, medium, tail.

use std::ops::Range;

use super::cursor::Cursor;
use super::error::{Field, WireError};
use super::marker::{Kind, kind};
use super::table::{RawDrift, RawEvent, Shape, Tag, mark};
use super::tails::Place;
use super::walk::{FIELD_DEPTH, NIL, Walk};

/// Elements a tuple needs, tag included.
const STORED_MIN: usize = 5;
const REMOVED_MIN: usize = 2;

/// Elements up to and including the token list.
const STORED_TOKENS: usize = 4;

/// Index of the first element of the tail.
const STORED_TAIL: usize = 9;
const REMOVED_TAIL: usize = 3;

/// Layout of a tail; the first three are vLLM 0.20.2–0.23.0's, the last two Dynamo's decoder knows too.
const TAIL: [Field; 5] =
    [Field::GroupIdx, Field::SpecKind, Field::SlidingWindow, Field::Locality, Field::Ownership];

/// Walks a tuple event of `count` elements, header already read.
#[inline]
pub(super) fn walk(
    walk: &mut Walk<'_, '_>,
    at: usize,
    raw: &mut RawEvent,
    count: usize,
) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    raw.shape = Shape::Tuple(mark(count));
    let Some(rest) = count.checked_sub(1) else { return Ok(at.offset()) };
    let start = at.offset_u32();
    let Some(name) = at.read_text()? else {
        return skip_elements(walk, at.offset(), count);
    };
    raw.set(Field::Type, start);
    raw.tag = Tag::of(name);
    match raw.tag {
        Tag::Stored if count < STORED_MIN => raw.tag = Tag::Short,
        Tag::Removed if count < REMOVED_MIN => raw.tag = Tag::Short,
        Tag::Stored => return stored(walk, at.offset(), raw, count),
        Tag::Removed => return removed(walk, at.offset(), raw, count),
        Tag::Cleared => return cleared(walk, at.offset(), raw, count),
        Tag::Unknown | Tag::Broken | Tag::NotAnEvent | Tag::Short => {}
    }
    skip_elements(walk, at.offset(), rest)
}

#[cold]
fn skip_elements(walk: &Walk<'_, '_>, at: usize, count: usize) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    for _ in 0..count {
        walk.skip(&mut at, FIELD_DEPTH)?;
    }
    Ok(at.offset())
}

#[inline]
fn stored(walk: &mut Walk<'_, '_>, at: usize, raw: &mut RawEvent, count: usize) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    walk.block_hashes(&mut at, raw)?;
    walk.field(&mut at, raw, Field::ParentBlockHash)?;
    walk.token_ids(&mut at, raw)?;
    let place = Place { named: false, left: count.saturating_sub(STORED_TOKENS), present: raw.present };
    if let Some(end) = walk.known_tail(at.offset(), place, raw) {
        return Ok(end);
    }
    let start = at.offset();
    walk.field(&mut at, raw, Field::BlockSize)?;
    for slot in STORED_MIN..count.min(STORED_TAIL) {
        match slot {
            5 => walk.field(&mut at, raw, Field::LoraId)?,
            6 => walk.field(&mut at, raw, Field::Medium)?,
            7 if at.peek_kind()? == Kind::Map => at.go(metadata(walk, at.offset(), raw)?),
            7 => walk.field(&mut at, raw, Field::LoraName)?,
            _ => walk.field(&mut at, raw, Field::ExtraKeys)?,
        }
    }
    if count > STORED_TAIL {
        at.go(tail(walk, at.offset(), raw, STORED_TAIL..count)?);
    }
    walk.learn_tail(start..at.offset(), place, raw);
    Ok(at.offset())
}

#[inline]
fn removed(walk: &mut Walk<'_, '_>, at: usize, raw: &mut RawEvent, count: usize) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    walk.block_hashes(&mut at, raw)?;
    if count > REMOVED_MIN {
        walk.field(&mut at, raw, Field::Medium)?;
    }
    if count > REMOVED_TAIL { tail(walk, at.offset(), raw, REMOVED_TAIL..count) } else { Ok(at.offset()) }
}

/// `kvcr` in slot 1 is the ownership; anything else there, and more, is tolerated.
#[cold]
fn cleared(walk: &mut Walk<'_, '_>, at: usize, raw: &mut RawEvent, count: usize) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    for slot in 1..count {
        let mut ahead = at;
        if slot == 1 && ahead.read_text()? == Some(b"kvcr") {
            walk.field(&mut at, raw, Field::Ownership)?;
        } else {
            walk.drift(RawDrift::Slot(mark(slot)));
            walk.skip(&mut at, FIELD_DEPTH)?;
        }
    }
    Ok(at.offset())
}

/// SGLang's metadata map: its `cache_salt` counts, its other keys are ignored.
fn metadata(walk: &Walk<'_, '_>, at: usize, raw: &mut RawEvent) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    let pairs = at.read_map()?.unwrap_or_default();
    let depth = FIELD_DEPTH.saturating_add(1);
    for _ in 0..pairs {
        match at.read_text()? {
            Some(b"cache_salt") => {
                raw.set(Field::CacheSalt, if at.peek()? == NIL { 0 } else { at.offset_u32() });
            }
            Some(_) => {}
            None => walk.skip(&mut at, depth)?,
        }
        walk.skip(&mut at, depth)?;
    }
    Ok(at.offset())
}

/// Walks the tail, whose elements have these indexes, and decides its layout.
fn tail(
    walk: &mut Walk<'_, '_>,
    at: usize,
    raw: &mut RawEvent,
    mut slots: Range<usize>,
) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    if raw.tag == Tag::Stored && at.peek_kind()? == Kind::Array {
        walk.field(&mut at, raw, Field::BlockMmInfos)?;
        slots.next();
    }
    // First assume the layout; fall back to types at the first element that does not fit.
    let (start, present) = (at.offset(), raw.present);
    let fits = 'layout: {
        macro_rules! element {
            ($position:literal, $fits:ident) => {
                if slots.len() > $position {
                    if !$fits(at)? {
                        break 'layout false;
                    }
                    walk.field(&mut at, raw, const { TAIL[$position] })?;
                }
            };
        }
        element!(0, is_nil_or_u32);
        element!(1, is_nil_or_text);
        element!(2, is_nil_or_u32);
        element!(3, is_nil_or_text);
        element!(4, is_nil_or_text);
        true
    };
    if !fits {
        TAIL.iter().for_each(|&field| raw.set(field, 0));
        raw.present = present;
        return by_type(walk, start, raw, slots);
    }
    for slot in slots.skip(TAIL.len()) {
        walk.drift(RawDrift::Slot(mark(slot)));
        walk.skip(&mut at, FIELD_DEPTH)?;
    }
    Ok(at.offset())
}

#[inline(always)]
fn is_nil_or_u32(at: Cursor<'_>) -> Result<bool, WireError> {
    let marker = at.peek()?;
    // Any small number is one byte.
    Ok(marker < 0x80 || marker == NIL || is_u32(at)?)
}

#[inline(always)]
fn is_nil_or_text(at: Cursor<'_>) -> Result<bool, WireError> {
    let marker = at.peek()?;
    Ok(marker == NIL || matches!(kind(marker), Kind::Str | Kind::Bin))
}

#[inline]
fn is_u32(mut at: Cursor<'_>) -> Result<bool, WireError> {
    Ok(at.read_int()?.is_some_and(|int| int.to_u32().is_some()))
}

/// First u32 = group, second = window, last string = kind, array = multimodal infos; the rest is drift.
#[cold]
fn by_type(
    walk: &mut Walk<'_, '_>,
    at: usize,
    raw: &mut RawEvent,
    slots: Range<usize>,
) -> Result<usize, WireError> {
    let mut at = walk.cursor(at);
    for slot in slots {
        let found = at.peek_kind()?;
        let field = match found {
            Kind::Str | Kind::Bin => Some(Field::SpecKind),
            Kind::Array if raw.tag == Tag::Stored => Some(Field::BlockMmInfos),
            Kind::Int if is_u32(at)? => {
                [Field::GroupIdx, Field::SlidingWindow].into_iter().find(|&field| raw.field(field).is_none())
            }
            Kind::Nil | Kind::Bool | Kind::Int | Kind::Float | Kind::Array | Kind::Map => None,
            Kind::Ext | Kind::Reserved => None,
        };
        match field {
            Some(field) => walk.field(&mut at, raw, field)?,
            None => {
                if found != Kind::Nil {
                    walk.drift(RawDrift::Slot(mark(slot)));
                }
                walk.skip(&mut at, FIELD_DEPTH)?;
            }
        }
    }
    Ok(at.offset())
}
