//! Token lists of any legal form, with exact errors: what the kernels pass on.

use super::cursor::Cursor;
use super::error::{EventError, EventErrorKind, Field};
use super::simd::Kernels;
use super::sound;

/// Reads a list whose header is next, appending single tokens to `out`; says whether they came as pairs.
pub(super) fn read_list(
    cursor: &mut Cursor<'_>,
    kernels: Kernels,
    out: &mut Vec<u32>,
) -> Result<bool, EventError> {
    let Some(count) = sound(cursor.read_array()) else { return Err(wrong(cursor)) };
    if kernels.read_tokens(cursor.rest(), count, out).is_some() {
        return Ok(false);
    }
    let mut ahead = *cursor;
    if matches!(ahead.read_array(), Ok(Some(_))) {
        read_pairs(cursor, count, out)?;
        return Ok(true);
    }
    for _ in 0..count {
        let token = read_token(cursor)?;
        out.push(token);
    }
    Ok(false)
}

/// EAGLE pairs `(t[i], t[i+1])` as the tokens `t[0]..=t[count]` (SGLang, `engine-sglang-0.5.23-radix16-eagle`).
fn read_pairs(cursor: &mut Cursor<'_>, count: usize, out: &mut Vec<u32>) -> Result<(), EventError> {
    let mut last = None;
    for _ in 0..count {
        let at = cursor.offset_u32();
        if sound(cursor.read_array()) != Some(2) {
            return Err(EventError::new(at, EventErrorKind::WrongType, Field::TokenIds));
        }
        let (first, second) = (read_token(cursor)?, read_token(cursor)?);
        match last {
            None => out.push(first),
            Some(last) if last == first => {}
            Some(_) => return Err(EventError::new(at, EventErrorKind::BrokenPairs, Field::TokenIds)),
        }
        out.push(second);
        last = Some(second);
    }
    Ok(())
}

fn read_token(cursor: &mut Cursor<'_>) -> Result<u32, EventError> {
    let at = cursor.offset_u32();
    let Some(int) = sound(cursor.read_int()) else { return Err(wrong(cursor)) };
    int.to_u32().ok_or_else(|| EventError::new(at, EventErrorKind::OutOfRange, Field::TokenIds))
}

fn wrong(cursor: &Cursor<'_>) -> EventError {
    EventError::new(cursor.offset_u32(), EventErrorKind::WrongType, Field::TokenIds)
}
