//! Per block: identifiers, salt and digests (`extra_keys`, vLLM ≥ 0.17.1) or multimodal objects
//! (`block_mm_infos`, Dynamo), as views, of whatever shape. Checked once, then read without errors.

use super::cursor::Cursor;
use super::error::{EventError, EventErrorKind, Field};
use super::marker::Kind;
use super::simd::Kernels;
use super::skip::skip_value;
use super::sound;

/// One item of a block's extra keys that can identify the block. Strings are given as the bytes they are, checked once to
/// be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtraKey<'a> {
    /// A plain string: LoRA name, identifier or salt.
    Text(&'a [u8]),
    /// The identifier of an `[identifier, offset]` item (vLLM ≥ 0.19.1).
    Identifier(&'a [u8]),
    /// Raw bytes: a prompt-embedding digest.
    Digest(&'a [u8]),
}

/// The extra keys of an event, one entry per block.
#[derive(Clone, Copy, Debug)]
pub struct ExtraKeys<'a> {
    entries: Option<Cursor<'a>>,
    kernels: Kernels,
}

impl<'a> ExtraKeys<'a> {
    /// Checks the list whose header is next.
    #[inline]
    pub(super) fn check(list: Option<Cursor<'a>>, kernels: Kernels) -> Result<Self, EventError> {
        match list {
            None => Ok(Self { entries: None, kernels }),
            Some(list) => Self::check_entries(list, kernels),
        }
    }

    fn check_entries(mut cursor: Cursor<'a>, kernels: Kernels) -> Result<Self, EventError> {
        let this = Self { entries: Some(cursor), kernels };
        for _ in 0..open(&mut cursor, Field::ExtraKeys)?.unwrap_or_default() {
            for _ in 0..open(&mut cursor, Field::ExtraKeys)?.unwrap_or_default() {
                match item(&mut cursor, kernels) {
                    Some((at, ExtraKey::Text(text) | ExtraKey::Identifier(text))) if !is_text(text) => {
                        return Err(EventError::new(at, EventErrorKind::BadUtf8, Field::ExtraKeys));
                    }
                    _ => {}
                }
            }
        }
        Ok(this)
    }

    /// Whether the event has no such list.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_none()
    }

    /// Calls `each` with every identifying item, and the index of its block.
    pub fn for_each(&self, mut each: impl FnMut(usize, ExtraKey<'a>)) {
        let Some(mut cursor) = self.entries else { return };
        let blocks = open(&mut cursor, Field::ExtraKeys).ok().flatten().unwrap_or_default();
        for block in 0..blocks {
            for _ in 0..open(&mut cursor, Field::ExtraKeys).ok().flatten().unwrap_or_default() {
                if let Some((_, key)) = item(&mut cursor, self.kernels) {
                    each(block, key);
                }
            }
        }
    }
}

/// The multimodal objects of an event, one entry per block.
#[derive(Clone, Copy, Debug)]
pub struct BlockMmInfos<'a> {
    entries: Cursor<'a>,
    kernels: Kernels,
}

impl<'a> BlockMmInfos<'a> {
    pub(super) fn check(list: Cursor<'a>, kernels: Kernels) -> Result<Self, EventError> {
        let this = Self { entries: list, kernels };
        this.read(|_, _| ())?;
        Ok(this)
    }

    /// Calls `each` with every `mm_hash`, and the index of its block.
    pub fn for_each(&self, each: impl FnMut(usize, u64)) {
        let checked = self.read(each);
        debug_assert!(checked.is_ok(), "checked before");
    }

    fn read(&self, mut each: impl FnMut(usize, u64)) -> Result<(), EventError> {
        let mut cursor = self.entries;
        for block in 0..open(&mut cursor, Field::BlockMmInfos)?.unwrap_or_default() {
            let Some(mut objects) = self.member(&mut cursor, b"mm_objects")? else { continue };
            for _ in 0..open(&mut objects, Field::BlockMmInfos)?.unwrap_or_default() {
                let at = objects.offset_u32();
                let hash = self.member(&mut objects, b"mm_hash")?;
                let hash = hash.and_then(|mut hash| sound(hash.read_int())).and_then(|hash| match hash {
                    super::cursor::Int::NonNegative(hash) => Some(hash),
                    super::cursor::Int::Negative(_) => None,
                });
                each(block, hash.ok_or_else(|| wrong(at, Field::BlockMmInfos))?);
            }
        }
        Ok(())
    }

    /// Steps over a record written as map or as array; gives the value of its only used member, which is the
    /// first of an array and the last of that name in a map.
    fn member(&self, cursor: &mut Cursor<'a>, name: &[u8]) -> Result<Option<Cursor<'a>>, EventError> {
        let at = cursor.offset_u32();
        let mut found = None;
        match cursor.peek_kind() {
            Ok(Kind::Nil) => skip(cursor, self.kernels),
            Ok(Kind::Array) => {
                let elements = sound(cursor.read_array()).unwrap_or_default();
                found = (elements > 0).then_some(*cursor);
                (0..elements).for_each(|_| skip(cursor, self.kernels));
            }
            Ok(Kind::Map) => {
                for _ in 0..sound(cursor.read_map()).unwrap_or_default() {
                    let key = sound(cursor.read_text());
                    if key.is_none() {
                        skip(cursor, self.kernels);
                    }
                    if key == Some(name) {
                        found = Some(*cursor);
                    }
                    skip(cursor, self.kernels);
                }
            }
            _ => return Err(wrong(at, Field::BlockMmInfos)),
        }
        Ok(found)
    }
}

/// Opens an array; nil is an empty one.
fn open(cursor: &mut Cursor<'_>, field: Field) -> Result<Option<usize>, EventError> {
    let at = cursor.offset_u32();
    if let Some(count) = sound(cursor.read_array()) {
        return Ok(Some(count));
    }
    if cursor.peek_kind() != Ok(Kind::Nil) || cursor.advance(1).is_err() {
        return Err(wrong(at, field));
    }
    Ok(None)
}

/// Steps over one item; gives it and where it is, if it identifies something.
fn item<'a>(cursor: &mut Cursor<'a>, kernels: Kernels) -> Option<(u32, ExtraKey<'a>)> {
    let at = cursor.offset_u32();
    match cursor.peek_kind() {
        Ok(Kind::Str) => sound(cursor.read_text()).map(|text| (at, ExtraKey::Text(text))),
        Ok(Kind::Bin) => sound(cursor.read_text()).map(|bytes| (at, ExtraKey::Digest(bytes))),
        Ok(Kind::Array) => {
            let count = sound(cursor.read_array()).unwrap_or_default();
            let at = cursor.offset_u32();
            let named = count > 0 && cursor.peek_kind() == Ok(Kind::Str);
            let identifier = if named { sound(cursor.read_text()) } else { None };
            for _ in usize::from(named)..count {
                skip(cursor, kernels);
            }
            identifier.map(|text| (at, ExtraKey::Identifier(text)))
        }
        _ => {
            skip(cursor, kernels);
            None
        }
    }
}

/// Identifiers are hardly ever anything but ASCII, which is checked many bytes at a time.
fn is_text(bytes: &[u8]) -> bool {
    bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()
}

fn skip(cursor: &mut Cursor<'_>, kernels: Kernels) {
    let skipped = skip_value(cursor, 1, kernels);
    debug_assert!(skipped.is_ok(), "structure was checked");
}

fn wrong(offset: u32, field: Field) -> EventError {
    EventError::new(offset, EventErrorKind::WrongType, field)
}
