//! AVX-512 (VBMI, VBMI2) with BMI2: one 64-byte window per step, values by byte permutes. Data plane.
//!
//! ```text
//! v       = 64 bytes; at the array's end a masked load: bytes beyond it are not touched and read as 0
//! starts  = where no payload is                                          // super::starts, on 64-bit masks
//! ends    = compress(0..64, the byte before each start but the first)    // list of last payload bytes
//! 16 at a time:
//!     at  = each of 16 ends four times, minus 0, 1, 2, 3                  // big-endian on the wire, reversed here
//!     out = v[at], its upper bytes cleared where the element is narrower  // pext of the classes by starts
//! ```
//!
//! The mask work runs on the integer ports beside the permutes; nothing but a compare passes from window to window.
//! Short arrays end in the masked load: one window for the 16 tokens of a usual block, no scalar remainder.
//!
//! Tried and lost: clearing by byte masks made with pdep (10 % slower: constants and port 1). Counted and not tried:
//! `compress` then `expand` of the payload (7 shuffle-port steps per 16 values instead of 3).

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::scalar;
use super::starts::{Classes, OWN, SLACK, STRIDE};

#[expect(clippy::cast_possible_truncation, reason = "below 64")]
const fn iota() -> [u8; 64] {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = i as u8;
        i += 1;
    }
    table
}

/// Byte `16 * group + i`, four times, for lane `i`.
#[expect(clippy::cast_possible_truncation, reason = "below 64")]
const fn spread(group: usize) -> [u8; 64] {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (16 * group + i / 4) as u8;
        i += 1;
    }
    table
}

static IOTA: [u8; 64] = iota();
static SPREAD: [[u8; 64]; 4] = [spread(0), spread(1), spread(2), spread(3)];

/// Byte `7 - j` of the payload of nine-byte element `i`, for byte `8 * i + j`; the eighth lane is of no use.
#[expect(clippy::cast_possible_truncation, reason = "below 64")]
static HASH_BYTES: [u8; 64] = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 56 {
        table[i] = (9 * (i / 8) + 8 - i % 8) as u8;
        i += 1;
    }
    table
};

/// Where the tags of seven nine-byte elements are.
const HASH_TAGS: u64 = 1 | 1 << 9 | 1 << 18 | 1 << 27 | 1 << 36 | 1 << 45 | 1 << 54;

/// Hashes that may be written past the last one of a run.
pub(super) const HASH_SLACK: usize = 8;

/// Which of a window's elements must be marks, by the number of elements since the last one.
static MARKS: [u64; 3] = [EVERY_THIRD, EVERY_THIRD << 2, EVERY_THIRD << 1];
const EVERY_THIRD: u64 = 0x9249_2492_4924_9249;

/// How far ahead to prefetch. From a payload that has left the first caches, 1.4 times faster at decoding; from one
/// that has not, no slower.
const AHEAD: usize = 1024;

/// Proof that this CPU runs the kernels of this file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt"))
        .then_some(Self(()))
    }

    /// As `starts::walk`.
    #[inline]
    pub(super) fn walk<const PAIRS: bool, const EMIT: bool>(
        self,
        bytes: &[u8],
        elements: usize,
        out: &mut [MaybeUninit<u32>],
    ) -> Option<usize> {
        // SAFETY: a value of this type exists only where `detect` saw every feature.
        unsafe { walk::<PAIRS, EMIT>(bytes, elements, out) }
    }

    /// Writes `count` block hashes to the front of `out`, which has room for [`HASH_SLACK`] more.
    #[inline]
    pub(super) fn read_hashes(
        self,
        bytes: &[u8],
        count: usize,
        out: &mut [MaybeUninit<u64>],
    ) -> Option<usize> {
        // SAFETY: a value of this type exists only where `detect` saw every feature.
        unsafe { read_hashes(bytes, count, out) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference is to 64 readable bytes, and the load asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// The first 64 bytes; zero beyond the end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn load_front(bytes: &[u8]) -> __m512i {
    match bytes.first_chunk::<64>() {
        Some(chunk) => load(chunk),
        None => {
            let mask = !(u64::MAX << bytes.len());
            // SAFETY: `mask` has one bit for each byte of the slice; bytes without a bit are not accessed.
            unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn byte(value: u8) -> __m512i {
    _mm512_set1_epi8(value.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn classify<const PAIRS: bool>(v: __m512i) -> Classes {
    let tags = _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, byte(0xcc)), byte(2));
    let quad = _mm512_cmpeq_epi8_mask(v, byte(0xce));
    let wide = _mm512_cmpeq_epi8_mask(v, byte(0xcd)) | quad;
    let marks = if PAIRS { _mm512_cmpeq_epi8_mask(v, byte(0x92)) } else { 0 };
    let foreign = _mm512_movepi8_mask(v) & !tags & !marks;
    Classes { tags, wide, quad, foreign, marks }
}

/// Values of the first `take` of the elements that start at `starts`, marks included.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn emit(v: __m512i, classes: &Classes, starts: u64, take: usize, out: &mut [MaybeUninit<u32>; SLACK]) {
    let ends = (starts & starts.wrapping_sub(1)) >> 1 | 1 << 63;
    let ends = _mm512_maskz_compress_epi8(ends, load(&IOTA));
    let mut narrow = _pext_u64(!classes.wide, starts);
    let mut short = _pext_u64(!classes.quad, starts);
    let mut left = take;
    for (group, spread) in out.as_chunks_mut::<16>().0.iter_mut().zip(&SPREAD) {
        let at = _mm512_permutexvar_epi8(load(spread), ends);
        let at = _mm512_sub_epi8(at, _mm512_set1_epi32(0x0302_0100));
        let values = _mm512_permutexvar_epi8(at, v);
        let values = _mm512_mask_and_epi32(values, low16(short), values, _mm512_set1_epi32(0xffff));
        let values = _mm512_mask_and_epi32(values, low16(narrow), values, _mm512_set1_epi32(0xff));
        // SAFETY: the reference is to room for 16 values of 4 bytes.
        unsafe { _mm512_storeu_si512(group.as_mut_ptr().cast(), values) };
        if left <= 16 {
            break;
        }
        left -= 16;
        narrow >>= 16;
        short >>= 16;
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low16(mask: u64) -> u16 {
    mask as u16
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn walk<const PAIRS: bool, const EMIT: bool>(
    bytes: &[u8],
    elements: usize,
    mut out: &mut [MaybeUninit<u32>],
) -> Option<usize> {
    let (mut rest, mut left, mut carried, mut phase) = (bytes, elements, 0, 0);
    while left > 0 {
        if rest.is_empty() {
            return None;
        }
        // A hint: it neither reads nor faults, whatever lies there.
        _mm_prefetch::<_MM_HINT_T0>(rest.as_ptr().wrapping_add(AHEAD).cast());
        let v = load_front(rest);
        let classes = classify::<PAIRS>(v);
        let covered = classes.covered(carried);
        let starts = !covered & OWN;
        let count = starts.count_ones() as usize;
        let take = count.min(left);
        if PAIRS {
            let ours = !(u64::MAX << take);
            if (_pext_u64(classes.marks, starts) ^ MARKS[phase]) & ours != 0 {
                return None;
            }
            phase = (phase + take) % 3;
        }
        if EMIT {
            emit(v, &classes, !covered, take, out.first_chunk_mut()?);
        }
        if count >= left {
            // The run ends here. What follows is not ours and may look like anything.
            let last = _pdep_u64(1 << (left - 1), starts);
            let until = last | (last - 1);
            let end = (!covered & !until).trailing_zeros() as usize;
            let fits = classes.foreign & starts & until == 0 && end <= rest.len();
            return fits.then(|| bytes.len() - rest.len() + end);
        }
        if classes.foreign & starts != 0 {
            return None;
        }
        if EMIT {
            out = out.get_mut(count..)?;
        }
        left -= count;
        carried = covered >> STRIDE;
        rest = rest.get(STRIDE..)?;
    }
    Some(0)
}

/// Seven nine-byte hashes per load; whatever else comes, one by one.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn read_hashes(bytes: &[u8], count: usize, mut out: &mut [MaybeUninit<u64>]) -> Option<usize> {
    if count < 4 {
        // Too few to pay for the vector's way in and out.
        return scalar::read_hashes(bytes, count, out);
    }
    let (mut rest, mut left) = (bytes, count);
    while left > 0 {
        _mm_prefetch::<_MM_HINT_T0>(rest.as_ptr().wrapping_add(AHEAD).cast());
        let seven = left.min(7);
        let v = load_front(rest);
        let tags = _mm512_cmpeq_epi8_mask(v, byte(0xcf)) | _mm512_cmpeq_epi8_mask(v, byte(0xd3));
        let wanted = HASH_TAGS & !(u64::MAX << (9 * seven));
        let (hashes, len);
        if tags & wanted == wanted {
            let values = _mm512_permutexvar_epi8(load(&HASH_BYTES), v);
            let eight: &mut [MaybeUninit<u64>; HASH_SLACK] = out.first_chunk_mut()?;
            // SAFETY: the reference is to room for 8 values of 8 bytes.
            unsafe { _mm512_storeu_si512(eight.as_mut_ptr().cast(), values) };
            (hashes, len) = (seven, 9 * seven);
        } else {
            let (hash, hash_len) = scalar::read_hash(rest)?;
            out.first_mut()?.write(hash);
            (hashes, len) = (1, hash_len);
        }
        out = out.get_mut(hashes..)?;
        // Refuses a last element that is cut, as the load read zeros there.
        rest = rest.get(len..)?;
        left -= hashes;
    }
    Some(bytes.len() - rest.len())
}
