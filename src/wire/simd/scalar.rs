//! The portable twin: safe code, 64-bit words. Data plane.
//!
//! The same windows and start bits as the vector kernels, with the byte compares done on eight bytes at a time in a
//! word. Values come by one big-endian load per element, without a branch on its width.
//!
//! Decoding takes 2.3 ns per token, skipping 1.1. Tried and lost: a `match` per element (2.7 to 4.3 ns: one mispredicted
//! width in four), a table of lengths (4 ns, skipping 2.9: each load waits for the last).

use std::mem::MaybeUninit;

use super::starts::{Classes, Kernel, OWN, SLACK, inside, walk};

/// Runs everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar;

impl Scalar {
    /// As `walk`.
    pub(super) fn walk<const PAIRS: bool, const EMIT: bool>(
        self,
        bytes: &[u8],
        elements: usize,
        out: &mut [MaybeUninit<u32>],
    ) -> Option<usize> {
        walk::<_, PAIRS, EMIT>(self, bytes, elements, out)
    }
}

/// `byte`, eight times.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The top bits of the eight bytes, in order, as the lowest eight bits.
#[inline(always)]
fn mask(word: u64) -> u64 {
    // The product's top byte: bit 8i + 7 comes to bit 56 + i, and no two terms meet.
    (word & all(0x80)).wrapping_mul(0x0002_0408_1020_4081) >> 56
}

/// By an element's first byte: how far to shift down the eight big-endian bytes from there on.
static SHIFT: [u8; 256] = {
    let mut table = [56; 256];
    table[0xcc] = 48;
    table[0xcd] = 40;
    table[0xce] = 24;
    table
};

/// By an element's first byte: which bits then are its value. A table of its own: an `and` with memory.
static KEEP: [u32; 256] = {
    let mut table = [0xff; 256];
    table[0xcd] = 0xffff;
    table[0xce] = 0xffff_ffff;
    table
};

impl Kernel for Scalar {
    #[inline(always)]
    fn classify<const PAIRS: bool, const WHOLE: bool>(self, bytes: &[u8]) -> Classes {
        let (mut high, mut wide, mut even, mut marks) = (0, 0, 0, 0);
        for part in 0..8 {
            // A load moved back sees bytes again that are already in the masks, in the same bits.
            let at = inside::<WHOLE, 8>(bytes, 8 * part);
            let word = load(bytes, at).map_or(0, |eight| u64::from_le_bytes(*eight));
            // cc, cd and ce differ from cc by 0, 1 and 2: then neither the byte nor its low part + 7d has the top bit.
            let off = word ^ all(0xcc);
            let tags = !(((off & all(0x7f)) + all(0x7d)) | off) & all(0x80);
            let (bit0, bit1) = (word << 7, word << 6);
            high |= mask(word) << at;
            wide |= mask(tags & (bit0 | bit1)) << at;
            even |= mask(tags & !bit0) << at; // cc and ce
            if PAIRS {
                let off = word ^ all(0x92);
                marks |= mask(!(((off & all(0x7f)) + all(0x7f)) | off)) << at;
            }
        }
        let tags = wide | even;
        Classes { tags, wide, quad: wide & even, foreign: high & !(tags | marks), marks }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "values and masks are 32 bits wide")]
    fn emit<const WHOLE: bool>(
        self,
        bytes: &[u8],
        starts: u64,
        take: usize,
        values: &mut [MaybeUninit<u32>; SLACK],
    ) {
        let take = take.min((starts & OWN).count_ones() as usize);
        let (mut left, mut written) = (starts, 0);
        for eight in values.as_chunks_mut::<8>().0 {
            // Eight at a time whether there or not: a branch per element would cost more.
            for slot in eight {
                let start = (left | 1 << 63).trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                let at = inside::<WHOLE, 8>(bytes, start);
                let word = load(bytes, at).map_or(0, |eight| u64::from_be_bytes(*eight));
                let word = if WHOLE { word } else { word << ((8 * (start - at)) & 63) };
                let tag = (word >> 56) as usize;
                slot.write((word >> (SHIFT[tag] & 63)) as u32 & KEEP[tag]);
            }
            written += 8;
            if written >= take {
                return;
            }
        }
    }
}

#[inline(always)]
fn load(bytes: &[u8], at: usize) -> Option<&[u8; 8]> {
    bytes.get(at..)?.first_chunk()
}

/// Reads one block hash: any integer, two's complement folded to 64 bits; and its length.
#[inline]
pub(super) fn read_hash(bytes: &[u8]) -> Option<(u64, usize)> {
    let value = match *bytes {
        [0xcf | 0xd3, a, b, c, d, e, f, g, h, ..] => {
            return Some((u64::from_be_bytes([a, b, c, d, e, f, g, h]), 9));
        }
        [fixint @ 0..=0x7f, ..] => (fixint.into(), 1),
        [fixint @ 0xe0..=0xff, ..] => (fold(fixint.cast_signed()), 1),
        [0xcc, a, ..] => (a.into(), 2),
        [0xcd, a, b, ..] => (u16::from_be_bytes([a, b]).into(), 3),
        [0xce, a, b, c, d, ..] => (u32::from_be_bytes([a, b, c, d]).into(), 5),
        [0xd0, a, ..] => (fold(a.cast_signed()), 2),
        [0xd1, a, b, ..] => (fold(i16::from_be_bytes([a, b])), 3),
        [0xd2, a, b, c, d, ..] => (fold(i32::from_be_bytes([a, b, c, d])), 5),
        _ => return None,
    };
    Some(value)
}

fn fold(value: impl Into<i64>) -> u64 {
    value.into().cast_unsigned()
}

/// Writes `count` block hashes to the front of `out`.
pub(super) fn read_hashes(bytes: &[u8], count: usize, out: &mut [MaybeUninit<u64>]) -> Option<usize> {
    let mut rest = bytes;
    let (fours, last) = out.get_mut(..count)?.as_chunks_mut::<4>();
    for slots in fours {
        // Four of nine bytes, as nearly always: one check of length and one of tags for all.
        if let Some(four) = rest.first_chunk::<36>()
            && four.as_chunks::<9>().0.iter().all(|[tag, ..]| matches!(tag, 0xcf | 0xd3))
        {
            for (slot, [_, hash @ ..]) in slots.iter_mut().zip(four.as_chunks::<9>().0) {
                slot.write(u64::from_be_bytes(*hash));
            }
            rest = rest.get(36..)?;
            continue;
        }
        rest = read_each(rest, slots)?;
    }
    rest = read_each(rest, last)?;
    Some(bytes.len() - rest.len())
}

/// Reads a hash for each slot and returns what is left.
#[inline]
fn read_each<'a>(mut rest: &'a [u8], slots: &mut [MaybeUninit<u64>]) -> Option<&'a [u8]> {
    for slot in slots {
        let (hash, len) = read_hash(rest)?;
        slot.write(hash);
        rest = rest.get(len..)?;
    }
    Some(rest)
}
