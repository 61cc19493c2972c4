//! NEON: as `ssse3`, with bit weights and pairwise sums for the masks and `tbl` for the values. Data plane.
//!
//! For little-endian aarch64. The tests passed on an emulation of these intrinsics; no aarch64 machine has run or timed
//! this yet. Masks cost more than on x86 (no `pmovmskb`), so 64 bytes are summed up at once.

use std::arch::aarch64::*;
use std::mem::MaybeUninit;

use super::shuffles::{SHUFFLES, part_row, without_four};
use super::starts::{Classes, Kernel, SLACK, inside, walk};

/// Proof that this CPU runs the kernels of this file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        (cfg!(target_endian = "little") && std::arch::is_aarch64_feature_detected!("neon"))
            .then_some(Self(()))
    }

    /// As `walk`.
    #[inline]
    pub(super) fn walk<const PAIRS: bool, const EMIT: bool>(
        self,
        bytes: &[u8],
        elements: usize,
        out: &mut [MaybeUninit<u32>],
    ) -> Option<usize> {
        walk::<_, PAIRS, EMIT>(self, bytes, elements, out)
    }
}

impl Kernel for Neon {
    #[inline(always)]
    fn classify<const PAIRS: bool, const WHOLE: bool>(self, bytes: &[u8]) -> Classes {
        // SAFETY: a value of this type exists only where `detect` saw NEON.
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
        // SAFETY: a value of this type exists only where `detect` saw NEON.
        unsafe { emit::<WHOLE>(bytes, starts, take, values) }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn classify<const PAIRS: bool, const WHOLE: bool>(bytes: &[u8]) -> Classes {
    // 64 bytes at once; where there are fewer, each 16 alone, as a load moved back sets the same bits again.
    let (mut high, mut wide, mut even, mut marks) = (0, 0, 0, 0);
    let mut sort = |parts: [uint8x16_t; 4], at: usize| {
        let tops = parts.map(|v| vcgeq_u8(v, vdupq_n_u8(0x80)));
        let wides = parts.map(|v| vorrq_u8(vceqq_u8(v, vdupq_n_u8(0xcd)), vceqq_u8(v, vdupq_n_u8(0xce))));
        let evens = parts.map(|v| vceqq_u8(vorrq_u8(v, vdupq_n_u8(2)), vdupq_n_u8(0xce)));
        high |= mask(tops) << at;
        wide |= mask(wides) << at;
        even |= mask(evens) << at;
        if PAIRS {
            marks |= mask(parts.map(|v| vceqq_u8(v, vdupq_n_u8(0x92)))) << at;
        }
    };
    if WHOLE {
        sort([load_at(bytes, 0), load_at(bytes, 16), load_at(bytes, 32), load_at(bytes, 48)], 0);
    } else {
        for part in 0..4 {
            let at = inside::<WHOLE, 16>(bytes, 16 * part);
            let none = vdupq_n_u8(0);
            sort([load_at(bytes, at), none, none, none], at);
        }
    }
    let tags = wide | even;
    Classes { tags, wide, quad: wide & even, foreign: high & !(tags | marks), marks }
}

/// One bit per byte of four vectors of 00 and ff.
#[inline]
#[target_feature(enable = "neon")]
fn mask(parts: [uint8x16_t; 4]) -> u64 {
    let weights = load(&[1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
    let [a, b, c, d] = parts.map(|v| vandq_u8(v, weights));
    // Three pairwise sums bring the eight weights of each half vector into one byte, in order.
    let halves = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(halves, halves)))
}

#[inline]
#[target_feature(enable = "neon")]
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
#[target_feature(enable = "neon")]
fn put(v: uint8x16_t, row: usize, moved: u8, values: &mut [MaybeUninit<u32>; SLACK], at: usize) {
    // `tbl` reads zero for any index past 15: 80 and up stay zero, and an element wholly in `bytes` has none.
    let row = vaddq_u8(load(&SHUFFLES[(row / 16) & 0xfff]), vdupq_n_u8(moved));
    let x = vqtbl1q_u8(v, row);
    if let Some(four) = values.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        // SAFETY: the reference is to room for 4 values of 4 bytes, and the store asks for no alignment.
        unsafe { vst1q_u8(four.as_mut_ptr().cast(), x) };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 56")]
#[inline(always)]
fn low8(moved: usize) -> u8 {
    moved as u8
}

/// 16 bytes from `at` on; zeros if they are not there.
#[inline]
#[target_feature(enable = "neon")]
fn load_at(bytes: &[u8], at: usize) -> uint8x16_t {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(vdupq_n_u8(0), |chunk| load(chunk))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the reference is to 16 readable bytes, and the load asks for no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}
