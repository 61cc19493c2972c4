//! SSSE3: compares to 64-bit masks, values by `pshufb` through a table of shuffles. Data plane.
//!
//! ```text
//! masks  = pcmpeqb, pmovmskb over four times 16 bytes                      // super::starts does the rest
//! for each 8 bytes of the window, their start bits (and four more) as a row number:
//!     out = pshufb(16 bytes, SHUFFLES[row])                               // up to four values; popcount moves on
//!     more than four starts (mostly fixints): the row without the first four, once more
//! ```
//!
//! Tried and lost: AVX2 with BMI (32-byte compares, this emission): decoding 3 to 6 % faster, skipping 18 %, not worth
//! a third x86 level; a loop over single starts, as in `scalar` (twice as slow).

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::shuffles::{SHUFFLES, part_row, without_four};
use super::starts::{Classes, Kernel, SLACK, inside, walk};

/// How far ahead to prefetch, as for AVX-512.
const AHEAD: usize = 1024;

/// Proof that this CPU runs the kernels of this file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ssse3(());

impl Ssse3 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("popcnt")).then_some(Self(()))
    }

    /// As `walk`.
    #[inline]
    pub(super) fn walk<const PAIRS: bool, const EMIT: bool>(
        self,
        bytes: &[u8],
        elements: usize,
        out: &mut [MaybeUninit<u32>],
    ) -> Option<usize> {
        // SAFETY: a value of this type exists only where `detect` saw both features.
        unsafe { walk_ssse3::<PAIRS, EMIT>(self, bytes, elements, out) }
    }
}

#[target_feature(enable = "ssse3,popcnt")]
fn walk_ssse3<const PAIRS: bool, const EMIT: bool>(
    kernel: Ssse3,
    bytes: &[u8],
    elements: usize,
    out: &mut [MaybeUninit<u32>],
) -> Option<usize> {
    walk::<_, PAIRS, EMIT>(kernel, bytes, elements, out)
}

impl Kernel for Ssse3 {
    #[inline(always)]
    fn classify<const PAIRS: bool, const WHOLE: bool>(self, bytes: &[u8]) -> Classes {
        // SAFETY: a value of this type exists only where `detect` saw both features.
        unsafe { classify::<PAIRS, WHOLE>(bytes) }
    }

    #[inline(always)]
    fn emit<const WHOLE: bool>(
        self,
        bytes: &[u8],
        starts: u64,
        take: usize,
        values: &mut [MaybeUninit<u32>; SLACK],
    ) {
        // SAFETY: a value of this type exists only where `detect` saw both features.
        unsafe { emit::<WHOLE>(bytes, starts, take, values) }
    }
}

#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn classify<const PAIRS: bool, const WHOLE: bool>(bytes: &[u8]) -> Classes {
    // A hint: it neither reads nor faults, whatever lies there.
    _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(AHEAD).cast());
    let (mut high, mut wide, mut even, mut marks) = (0, 0, 0, 0);
    for part in 0..4 {
        // A load moved back sees bytes again that are already in the masks, in the same bits.
        let at = inside::<WHOLE, 16>(bytes, 16 * part);
        let v = load_at(bytes, at);
        high |= mask(v) << at;
        wide |= mask(_mm_or_si128(_mm_cmpeq_epi8(v, set(0xcd)), _mm_cmpeq_epi8(v, set(0xce)))) << at;
        // cc or ce: three masks tell the four kinds apart, and moving masks out is what this costs.
        even |= mask(_mm_cmpeq_epi8(_mm_or_si128(v, set(2)), set(0xce))) << at;
        if PAIRS {
            marks |= mask(_mm_cmpeq_epi8(v, set(0x92))) << at;
        }
    }
    let tags = wide | even;
    Classes { tags, wide, quad: wide & even, foreign: high & !(tags | marks), marks }
}

#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn emit<const WHOLE: bool>(bytes: &[u8], starts: u64, take: usize, values: &mut [MaybeUninit<u32>; SLACK]) {
    let mut written = 0;
    for part in 0..8 {
        let at = inside::<WHOLE, 16>(bytes, 8 * part);
        let v = load_at(bytes, at);
        let moved = if WHOLE { 0 } else { low8(8 * part - at) };
        let row = part_row(starts, part);
        let count = (row & 0xff0).count_ones() as usize;
        put(v, row, moved, values, written);
        if count > 4 {
            put(v, without_four(row), moved, values, written + 4);
        }
        written += count;
        if written >= take {
            return;
        }
    }
}

/// The first four values of the row at this offset, from bytes loaded `moved` before the part.
#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn put(v: __m128i, row: usize, moved: u8, values: &mut [MaybeUninit<u32>; SLACK], at: usize) {
    // Bytes past 15 do not happen in an element wholly in `bytes`; a lane that reads as zero stays one: 80 + 56 < 100.
    let row = _mm_add_epi8(load(&SHUFFLES[(row / 16) & 0xfff]), set(moved));
    let x = _mm_shuffle_epi8(v, row);
    if let Some(four) = values.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        // SAFETY: the reference is to room for 4 values of 4 bytes.
        unsafe { _mm_storeu_si128(four.as_mut_ptr().cast(), x) };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 56")]
#[inline(always)]
fn low8(moved: usize) -> u8 {
    moved as u8
}

/// 16 bytes from `at` on; zeros if they are not there.
#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn load_at(bytes: &[u8], at: usize) -> __m128i {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(_mm_setzero_si128(), |chunk| load(chunk))
}

#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn set(byte: u8) -> __m128i {
    _mm_set1_epi8(byte.cast_signed())
}

#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn mask(v: __m128i) -> u64 {
    u64::from(_mm_movemask_epi8(v).cast_unsigned())
}

#[inline]
#[target_feature(enable = "ssse3,popcnt")]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference is to 16 readable bytes, and the load asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}
