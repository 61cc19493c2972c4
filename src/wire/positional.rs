//! Tagged tuples: fixed slots, then a tail told apart by msgpack type.
//!
//! Sent by vLLM ≤ 0.23.0 and SGLang ≤ 0.5.19. Stored: tag, hashes, parent, tokens, block size, lora id, medium,
//! lora name (SGLang 0.5.18–0.5.19: a map with `cache_salt`), extra keys, tail. Removed: tag, hashes, medium, tail.

use super::cursor::Cursor;
use super::error::{Field, WireError};
use super::marker::Kind;
use super::table::{RawDrift, RawEvent, Shape, Tag, mark};
use super::walk::{FIELD_DEPTH, Walk};

/// Elements a tuple needs, tag included.
const STORED_MIN: usize = 5;
const REMOVED_MIN: usize = 2;

/// Index of the first element of the tail.
const STORED_TAIL: usize = 9;
const REMOVED_TAIL: usize = 3;

/// Layout of a tail; the first three are vLLM 0.20.2–0.23.0's, the last two Dynamo's decoder knows too.
const TAIL: [Field; 5] =
    [Field::GroupIdx, Field::SpecKind, Field::SlidingWindow, Field::Locality, Field::Ownership];

/// Walks a tuple event of `count` elements, header already read.
pub(super) fn walk(walk: &mut Walk<'_, '_>, raw: &mut RawEvent, count: usize) -> Result<(), WireError> {
    raw.shape = Shape::Tuple(mark(count));
    let Some(rest) = count.checked_sub(1) else { return Ok(()) };
    let at = walk.cursor.offset_u32();
    let Some(name) = walk.cursor.read_text()? else {
        return skip_elements(walk, count);
    };
    raw.set(Field::Type, at);
    raw.tag = Tag::of(name);
    match raw.tag {
        Tag::Stored if count < STORED_MIN => raw.tag = Tag::Short,
        Tag::Removed if count < REMOVED_MIN => raw.tag = Tag::Short,
        Tag::Stored => return stored(walk, raw, count),
        Tag::Removed => return removed(walk, raw, count),
        Tag::Cleared => return cleared(walk, raw, count),
        Tag::Unknown | Tag::Broken | Tag::NotAnEvent | Tag::Short => {}
    }
    skip_elements(walk, rest)
}

fn skip_elements(walk: &mut Walk<'_, '_>, count: usize) -> Result<(), WireError> {
    for _ in 0..count {
        walk.skip(FIELD_DEPTH)?;
    }
    Ok(())
}

fn stored(walk: &mut Walk<'_, '_>, raw: &mut RawEvent, count: usize) -> Result<(), WireError> {
    walk.block_hashes(raw)?;
    walk.field(raw, Field::ParentBlockHash)?;
    walk.token_ids(raw)?;
    walk.field(raw, Field::BlockSize)?;
    for slot in STORED_MIN..count.min(STORED_TAIL) {
        match slot {
            5 => walk.field(raw, Field::LoraId)?,
            6 => walk.field(raw, Field::Medium)?,
            7 if walk.cursor.peek_kind()? == Kind::Map => metadata(walk, raw)?,
            7 => walk.field(raw, Field::LoraName)?,
            _ => walk.field(raw, Field::ExtraKeys)?,
        }
    }
    if count > STORED_TAIL { tail(walk, raw, STORED_TAIL..count) } else { Ok(()) }
}

fn removed(walk: &mut Walk<'_, '_>, raw: &mut RawEvent, count: usize) -> Result<(), WireError> {
    walk.block_hashes(raw)?;
    if count > REMOVED_MIN {
        walk.field(raw, Field::Medium)?;
    }
    if count > REMOVED_TAIL { tail(walk, raw, REMOVED_TAIL..count) } else { Ok(()) }
}

/// `kvcr` in slot 1 is the ownership; anything else there, and more, is tolerated.
fn cleared(walk: &mut Walk<'_, '_>, raw: &mut RawEvent, count: usize) -> Result<(), WireError> {
    for slot in 1..count {
        let mut ahead = walk.cursor;
        if slot == 1 && ahead.read_text()? == Some(b"kvcr") {
            walk.field(raw, Field::Ownership)?;
        } else {
            walk.drift(RawDrift::Slot(mark(slot)));
            walk.skip(FIELD_DEPTH)?;
        }
    }
    Ok(())
}

/// SGLang's metadata map: its `cache_salt` counts, its other keys are ignored.
fn metadata(walk: &mut Walk<'_, '_>, raw: &mut RawEvent) -> Result<(), WireError> {
    let pairs = walk.cursor.read_map()?.unwrap_or_default();
    let depth = FIELD_DEPTH.saturating_add(1);
    for _ in 0..pairs {
        match walk.cursor.read_text()? {
            Some(b"cache_salt") => walk.field_at(raw, Field::CacheSalt, depth)?,
            Some(_) => walk.skip(depth)?,
            None => {
                walk.skip(depth)?;
                walk.skip(depth)?;
            }
        }
    }
    Ok(())
}

/// Walks the tail, whose elements have these indexes, and decides its layout.
fn tail(walk: &mut Walk<'_, '_>, raw: &mut RawEvent, slots: std::ops::Range<usize>) -> Result<(), WireError> {
    let mut slots = slots;
    if raw.tag == Tag::Stored && walk.cursor.peek_kind()? == Kind::Array {
        walk.field(raw, Field::BlockMmInfos)?;
        slots.next();
    }
    let (start, drift) = (walk.cursor, walk.table.drift.len());
    // First assume the layout; fall back to types at the first element that does not fit.
    let mut layout = *raw;
    let mut fits = true;
    for (position, slot) in slots.clone().enumerate() {
        match TAIL.get(position) {
            Some(&field) if fits_slot(&walk.cursor, field)? => walk.field(&mut layout, field)?,
            Some(_) => {
                fits = false;
                break;
            }
            None => {
                walk.drift(RawDrift::Slot(mark(slot)));
                walk.skip(FIELD_DEPTH)?;
            }
        }
    }
    if fits {
        *raw = layout;
        return Ok(());
    }
    walk.cursor = start;
    walk.table.drift.truncate(drift);
    by_type(walk, raw, slots)
}

fn fits_slot(cursor: &Cursor<'_>, field: Field) -> Result<bool, WireError> {
    let kind = cursor.peek_kind()?;
    if matches!(field, Field::GroupIdx | Field::SlidingWindow) {
        return Ok(kind == Kind::Nil || is_u32(cursor)?);
    }
    Ok(matches!(kind, Kind::Nil | Kind::Str | Kind::Bin))
}

fn is_u32(cursor: &Cursor<'_>) -> Result<bool, WireError> {
    let mut ahead = *cursor;
    Ok(ahead.read_int()?.is_some_and(|int| int.to_u32().is_some()))
}

/// First u32 = group, second = window, last string = kind, array = multimodal infos; the rest is drift.
fn by_type(
    walk: &mut Walk<'_, '_>,
    raw: &mut RawEvent,
    slots: std::ops::Range<usize>,
) -> Result<(), WireError> {
    for slot in slots {
        let kind = walk.cursor.peek_kind()?;
        let field = match kind {
            Kind::Str | Kind::Bin => Some(Field::SpecKind),
            Kind::Array if raw.tag == Tag::Stored => Some(Field::BlockMmInfos),
            Kind::Int if is_u32(&walk.cursor)? => {
                [Field::GroupIdx, Field::SlidingWindow].into_iter().find(|&f| raw.field(f).is_none())
            }
            Kind::Nil
            | Kind::Bool
            | Kind::Int
            | Kind::Float
            | Kind::Array
            | Kind::Map
            | Kind::Ext
            | Kind::Reserved => None,
        };
        match field {
            Some(field) => walk.field(raw, field)?,
            None => {
                if kind != Kind::Nil {
                    walk.drift(RawDrift::Slot(mark(slot)));
                }
                walk.skip(FIELD_DEPTH)?;
            }
        }
    }
    Ok(())
}
