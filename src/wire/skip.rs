//! Steps over one value of any shape, iteratively, to the depth limit: the structure check.

use super::cursor::Cursor;
use super::error::{WireError, WireErrorKind};
use super::marker::{Kind, fixed_bytes};
use super::simd::Kernels;

/// Containers may nest this deep, the batch being the first.
pub(super) const DEPTH_MAX: usize = 64;

/// Runs shorter than this are not worth a kernel call.
const RUN_MIN: usize = 8;

/// Steps over one value. `depth` is the depth a container here would have.
#[inline(always)]
pub(super) fn skip_value(cursor: &mut Cursor<'_>, depth: usize, kernels: Kernels) -> Result<(), WireError> {
    let marker = cursor.peek()?;
    // Compared rather than looked up: where the branch is predicted, the next value is read before this marker has
    // arrived. A walk is a chain of such steps, and waiting at each costs more than all its instructions.
    if marker < 0x80 || marker == 0xc0 {
        return cursor.advance(1);
    }
    if marker == 0xcf || marker == 0xd3 {
        return cursor.advance(9);
    }
    if let 0xa0..=0xbf = marker {
        return cursor.advance(usize::from(marker & 0x1f).wrapping_add(1));
    }
    match fixed_bytes(marker) {
        0 => {
            cursor.go(skip_long(cursor.payload(), cursor.offset(), depth, kernels)?);
            Ok(())
        }
        bytes => cursor.advance(bytes),
    }
}

/// Steps over the value at `at`; gives where it ends.
#[inline(never)]
fn skip_long(payload: &[u8], at: usize, depth: usize, kernels: Kernels) -> Result<usize, WireError> {
    let mut cursor = Cursor::new(payload, at);
    match step(&mut cursor, depth, kernels)? {
        0 => Ok(cursor.offset()),
        inside => skip_nested(cursor, depth, inside, kernels),
    }
}

/// Steps over what is left of a container at `depth` of which `inside` values are to come.
#[inline(never)]
fn skip_nested(
    mut cursor: Cursor<'_>,
    depth: usize,
    inside: usize,
    kernels: Kernels,
) -> Result<usize, WireError> {
    // Values left in each open container, outermost first; `0 < open[i]` for all `i < level`.
    let mut open = [0_usize; DEPTH_MAX];
    let mut level = 0_usize;
    let mut inside = inside;
    loop {
        if inside > 0 {
            // `step` refuses containers deeper than DEPTH_MAX, so there is always room.
            if let Some(slot) = open.get_mut(level) {
                *slot = inside;
            }
            level = level.saturating_add(1);
        } else {
            // A value has ended, and with it every container of which it was the last.
            loop {
                let Some(top) = level.checked_sub(1) else { return Ok(cursor.offset()) };
                let Some(left) = open.get_mut(top) else { return Ok(cursor.offset()) };
                *left = left.saturating_sub(1);
                if *left > 0 {
                    break;
                }
                level = top;
            }
        }
        inside = step(&mut cursor, depth.saturating_add(level), kernels)?;
    }
}

/// Steps over a scalar or a container's header; gives how many values the container still holds.
#[inline]
fn step(cursor: &mut Cursor<'_>, depth: usize, kernels: Kernels) -> Result<usize, WireError> {
    let fixed = fixed_bytes(cursor.peek()?);
    if fixed > 0 {
        cursor.advance(fixed)?;
        return Ok(0);
    }
    let start = *cursor;
    let inside = match cursor.peek_kind()? {
        Kind::Str | Kind::Bin => {
            cursor.read_text()?;
            return Ok(0);
        }
        Kind::Ext => {
            skip_ext(cursor)?;
            return Ok(0);
        }
        Kind::Array => {
            let count = cursor.read_array()?.unwrap_or_default();
            if count >= RUN_MIN
                && depth <= DEPTH_MAX
                && let Some(bytes) = kernels.skip_tokens(cursor.rest(), count)
            {
                cursor.advance(bytes)?;
                return Ok(0);
            }
            count
        }
        Kind::Map => cursor.read_map()?.unwrap_or_default().saturating_mul(2),
        // All fixed-size kinds were stepped over above.
        Kind::Reserved | Kind::Nil | Kind::Bool | Kind::Int | Kind::Float => {
            return Err(start.fail(WireErrorKind::ReservedMarker));
        }
    };
    if depth > DEPTH_MAX {
        return Err(start.fail(WireErrorKind::TooDeep));
    }
    Ok(inside)
}

/// Ext values with a length: marker, length of 1, 2 or 4 bytes, type byte, body.
fn skip_ext(cursor: &mut Cursor<'_>) -> Result<(), WireError> {
    let (header, length) = match *cursor.rest() {
        [0xc7, a, ..] => (3_usize, usize::from(a)),
        [0xc8, a, b, ..] => (4, usize::from(u16::from_be_bytes([a, b]))),
        [0xc9, a, b, c, d, ..] => (6, u32::from_be_bytes([a, b, c, d]) as usize),
        _ => return Err(cursor.fail(WireErrorKind::Truncated)),
    };
    cursor.advance(header.saturating_add(length))
}
