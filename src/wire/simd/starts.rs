//! Finds where the elements of a run start, and walks a run window by window. Data plane; shared by all kernels.
//!
//! The naive loop is serial: each element's place hangs on the length of the one before.
//!
//! ```text
//! at = 0; repeat count times: at += 1 + payload(bytes[at])    // payload: cc 1, cd 2, ce 4, positive fixint 0
//! ```
//!
//! Turn it round: say which bytes are *payload*; every other byte starts an element. One bit per byte:
//!
//! ```text
//! tags    = bytes equal to cc, cd or ce                     // may include payload bytes that look like tags
//! covered = tags << 1 | (cd|ce) << 2 | ce << 3 | ce << 4    // the payload those tags would have
//! tags'   = tags outside covered, and round again until nothing changes
//! ```
//!
//! *Why it ends at the truth.* `T = tags & !(cover(T) | carried)` has one solution: whether a byte is a true tag
//! hangs only on true tags before it, so by induction from the left there is no choice. Each round settles at least
//! one more tag from the left, so there are at most [`STRIDE`] rounds, whatever the bytes.
//!
//! Departures from that sketch, and what each buys:
//! * Three rounds run without a branch. In 24 % of the windows of ordinary token ids a payload byte looks like a tag,
//!   a coin that branch predictors lose; after three rounds 1.3 % need more. One round fewer: 1.3 times slower.
//!   One more: slower too, it moves nothing but the 1.3 %.
//! * Those rounds ignore what the window before carries in. The check after them refuses their result only if a
//!   carried-in byte looks like a tag (1 %), so windows overlap in the pipeline instead of queueing.
//! * A window is 64 bytes but advances by 60: an element that starts in the first 60 ends in the window. All shifts
//!   stay in one word, and one vector holds every payload byte.
//!
//! Tried and lost: jump tables (each byte's next start, squared by permutes; 2.1 times slower at skipping and needs
//! byte permutes). Known cost: ids whose payload bytes are all tags (cd cd cd ...) take one round per half element,
//! 4.7 ns per token, like a plain scalar loop.

use std::mem::MaybeUninit;

/// Bytes from one window to the next: the longest element that starts before this offset ends within 64.
pub(super) const STRIDE: usize = 60;

/// The offsets at which a window's own elements may start.
pub(super) const OWN: u64 = (1 << STRIDE) - 1;

/// Values which [`walk`] and the kernels may write past the last one of a run.
pub(super) const SLACK: usize = 64;

/// Bytes from a window's start within which no kernel's load has to be moved.
const WHOLE: usize = 72;

/// The widest load of any kernel.
const LOAD_MAX: usize = 16;

/// Where to load from for `offset`: there, or, near the end of `bytes`, as far back as keeps the load inside. Kernels
/// work out what they meant from the distance moved; so a short array needs neither padding nor a copy (which costs
/// 12 ns: stores do not forward to loads across two of them).
#[inline(always)]
pub(super) fn inside<const WHOLE: bool, const LOAD: usize>(bytes: &[u8], offset: usize) -> usize {
    if WHOLE { offset } else { offset.min(bytes.len().saturating_sub(LOAD)) }
}

/// What the 64 bytes of a window look like, one bit per byte, bit 0 first. True and false tags alike.
#[derive(Clone, Copy)]
pub(super) struct Classes {
    /// cc, cd or ce.
    pub(super) tags: u64,
    /// cd or ce: at least two bytes of payload.
    pub(super) wide: u64,
    /// ce: four bytes of payload.
    pub(super) quad: u64,
    /// Bytes that cannot start an element of the run.
    pub(super) foreign: u64,
    /// 92, the head of a pair, where pairs are read; else 0.
    pub(super) marks: u64,
}

impl Classes {
    /// The bytes which are payload, given those that the window before `carried` in (bits 0 to 3). Bits from
    /// [`STRIDE`] on are payload of the window's own elements; shifted down, they are the next window's `carried`.
    #[inline(always)]
    pub(super) fn covered(&self, carried: u64) -> u64 {
        let tags = self.tags & OWN;
        let first = tags & !cover(tags, self.wide, self.quad);
        let second = tags & !cover(first, self.wide, self.quad);
        let covered = cover(second, self.wide, self.quad) | carried;
        if tags & !covered == second {
            return covered;
        }
        settle(tags, self.wide, self.quad, second, carried)
    }
}

/// The payload bytes of the `tags` given.
#[inline(always)]
fn cover(tags: u64, wide: u64, quad: u64) -> u64 {
    let quad = tags & quad;
    (tags << 1) | ((tags & wide) << 2) | (quad << 3) | (quad << 4)
}

/// More rounds, from `guess` on, until nothing changes. By value: the classes stay in registers.
#[cold]
#[inline(never)]
fn settle(tags: u64, wide: u64, quad: u64, mut guess: u64, carried: u64) -> u64 {
    for _ in 0..=STRIDE {
        let covered = cover(guess, wide, quad) | carried;
        let next = tags & !covered;
        if next == guess {
            return covered;
        }
        guess = next;
    }
    debug_assert!(false, "each round settles a tag");
    u64::MAX
}

/// A kernel's two halves of the work on one window, whose bytes begin at `bytes` and may go on after it. `bytes` has at
/// least 16 bytes; `WHOLE`: as many as no load comes near the end of, so that [`inside`] need not move any.
pub(super) trait Kernel: Copy {
    /// Sorts the first 64 bytes, those beyond the end as zeros. `PAIRS`: 92 is a mark, not foreign.
    fn classify<const PAIRS: bool, const WHOLE: bool>(self, bytes: &[u8]) -> Classes;

    /// Writes the values of the elements that start at `starts`, in order, to the front of `values`, at least until
    /// there are `take` of them; anything may be written after, and for elements not wholly in `bytes`. Bits from
    /// [`STRIDE`] on are not the window's own starts but end the element before.
    fn emit<const WHOLE: bool>(
        self,
        bytes: &[u8],
        starts: u64,
        take: usize,
        values: &mut [MaybeUninit<u32>; SLACK],
    );
}

/// Walks `elements` elements from the front of `bytes` and returns how many bytes they take; `None` if they do not fit
/// or another value is among them. `PAIRS`: every third element is a mark, beginning with the first. `EMIT`: writes
/// one value per element, marks included, to the front of `out`, which has room for [`SLACK`] more.
#[inline(always)]
pub(super) fn walk<K: Kernel, const PAIRS: bool, const EMIT: bool>(
    kernel: K,
    bytes: &[u8],
    elements: usize,
    mut out: &mut [MaybeUninit<u32>],
) -> Option<usize> {
    let (mut rest, mut left, mut carried, mut phase) = (bytes, elements, 0, 0);
    let mut copy: [u8; LOAD_MAX];
    while left > 0 {
        let mut window = rest;
        if rest.len() < LOAD_MAX {
            if rest.is_empty() {
                return None;
            }
            copy = [0; LOAD_MAX];
            copy.get_mut(..rest.len())?.copy_from_slice(rest);
            window = &copy;
        }
        // An array's length is known to the compiler, so the kernels' bounds checks go.
        let whole = window.first_chunk::<WHOLE>();
        let classes = match whole {
            Some(whole) => kernel.classify::<PAIRS, true>(whole),
            None => kernel.classify::<PAIRS, false>(window),
        };
        let covered = classes.covered(carried);
        let starts = !covered & OWN;
        let count = starts.count_ones() as usize;
        if EMIT {
            let values = out.first_chunk_mut()?;
            match whole {
                Some(whole) => kernel.emit::<true>(whole, !covered, left, values),
                None => kernel.emit::<false>(window, !covered, left, values),
            }
        }
        if count >= left {
            let last = nth_bit(starts, left - 1);
            let ours = starts & (last | (last - 1));
            let end = (!covered & !(last | (last - 1))).trailing_zeros() as usize;
            let fits = classes.foreign & ours == 0 && (!PAIRS || marked(ours, classes.marks, phase));
            return (fits && end <= rest.len()).then(|| bytes.len() - rest.len() + end);
        }
        if classes.foreign & starts != 0 || (PAIRS && !marked(starts, classes.marks, phase)) {
            return None;
        }
        if EMIT {
            out = out.get_mut(count..)?;
        }
        phase = (phase + count) % 3;
        left -= count;
        carried = covered >> STRIDE;
        rest = rest.get(STRIDE..)?;
    }
    Some(0)
}

/// The `n`-th set bit of `bits` (from 0), alone. There must be more than `n`.
///
/// Without a branch: a loop to the 16th start of the commonest block ends unpredictably. Twice the same step: find the
/// first of eight bytes whose running sum of bits exceeds `n`; then spread that byte's bits over eight bytes.
#[inline(always)]
fn nth_bit(bits: u64, n: usize) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x80 * ONES;
    // Sums are at most 64 and `n` less: the top bit of each difference stays where the sum does not exceed `n`.
    let past = |sums: u64, n: u64| ((((n * ONES) | TOPS) - sums) & TOPS).count_ones();
    let pairs = bits - (bits >> 1 & (0x55 * ONES));
    let fours = (pairs & (0x33 * ONES)) + (pairs >> 2 & (0x33 * ONES));
    let sums = ((fours + (fours >> 4)) & (0x0f * ONES)).wrapping_mul(ONES);
    let shift = (8 * past(sums, n as u64)) & 63;
    let n = n as u64 - (sums << 8 >> shift & 0xff);
    let spread = ((bits >> shift & 0xff) * ONES) & 0x8040_2010_0804_0201;
    let sums = (((spread + 0x7f * ONES) | spread) >> 7 & ONES).wrapping_mul(ONES);
    1 << ((shift + past(sums, n)) & 63)
}

/// Whether of the elements at `starts` exactly every third is a mark, `phase` elements after the last one.
#[inline(always)]
fn marked(mut starts: u64, marks: u64, phase: usize) -> bool {
    let mut left = starts & marks;
    for _ in 0..(3 - phase) % 3 {
        starts &= starts.wrapping_sub(1);
    }
    while starts != 0 {
        let first = starts & starts.wrapping_neg();
        if left & first == 0 {
            return false;
        }
        left ^= first;
        for _ in 0..3 {
            starts &= starts.wrapping_sub(1);
        }
    }
    left == 0
}
