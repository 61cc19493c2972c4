//! Byte shuffles from start bits, for 16-byte table look-ups (`pshufb`, `tbl`). Data plane.
//!
//! Eight bytes of a window and the start bits of twelve say everything about the elements which start in the eight:
//! an element ends where the next one starts, at most four bytes further on. Its length says which bytes are payload.

/// Shuffles by twelve start bits: lane `i` takes the value of the `i`-th element that starts in the first eight bytes,
/// from 16 bytes loaded at the first; later lanes, and upper bytes, read as zero. Ordinary token ids use some 200 of
/// the 4096 rows (64 KiB).
pub(super) static SHUFFLES: [[u8; 16]; 4096] = {
    let mut rows = [[0x80; 16]; 4096];
    let mut bits = 0;
    while bits < rows.len() {
        rows[bits] = row(bits);
        bits += 1;
    }
    rows
};

#[expect(clippy::cast_possible_truncation, reason = "below 12")]
const fn row(bits: usize) -> [u8; 16] {
    let mut row = [0x80; 16];
    let (mut start, mut lane) = (0, 0);
    while start < 8 && lane < 4 {
        if bits >> start & 1 == 1 {
            let mut end = start + 1;
            while end < 12 && bits >> end & 1 == 0 {
                end += 1;
            }
            // A fixint is its own payload. Lengths other than 1, 2, 3 and 5 do not happen.
            let mut size = end - start - 1;
            if size == 0 {
                size = 1;
            }
            let mut byte = 0;
            while byte < size && byte < 4 {
                row[4 * lane + byte] = (end - 1 - byte) as u8;
                byte += 1;
            }
            lane += 1;
        }
        start += 1;
    }
    row
}

/// `bits` without its four lowest.
#[inline(always)]
pub(super) fn without_four(mut bits: usize) -> usize {
    for _ in 0..4 {
        bits &= bits.wrapping_sub(1);
    }
    bits
}

/// The twelve start bits from byte `8 * part` on, times 16: the offset of their row. Past the window's end everything
/// counts as a start: an element that starts in the last part ends there at the latest.
#[inline(always)]
pub(super) fn part_row(starts: u64, part: usize) -> usize {
    let bits = match part {
        0 => starts << 4,
        7 => starts >> 52 | 0xf000,
        _ => starts >> (8 * part - 4),
    };
    (bits & 0xfff0) as usize
}
