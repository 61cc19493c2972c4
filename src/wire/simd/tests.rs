//! One table of cases and one property run, over every kernel this CPU has, against the obvious decoder.
//!
//! `KVTAP_SIMD_CASES` sets how many random and mutated arrays are compared (default 20 000).

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::{Kernels, SimdLevel};
use crate::ids::EngineHash;

/// Miri takes a thousand times as long, and looks at memory, not at answers.
const STEP: usize = if cfg!(miri) { 13 } else { 1 };

fn kernels() -> impl Iterator<Item = Kernels> {
    SimdLevel::ALL.into_iter().filter_map(Kernels::force)
}

/// The answers by the definition, element by element.
mod naive {
    use super::EngineHash;

    /// Value and length of the token id at the front.
    pub(super) fn token(bytes: &[u8]) -> Option<(u32, usize)> {
        let len = match bytes.first()? {
            0..=0x7f => return Some((bytes[0].into(), 1)),
            0xcc => 2,
            0xcd => 3,
            0xce => 5,
            _ => return None,
        };
        let payload = bytes.get(1..len)?;
        Some((payload.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)), len))
    }

    pub(super) fn tokens(bytes: &[u8], count: usize) -> Option<(Vec<u32>, usize)> {
        let (mut values, mut at) = (Vec::new(), 0);
        for _ in 0..count {
            let (value, len) = token(&bytes[at..])?;
            values.push(value);
            at += len;
        }
        Some((values, at))
    }

    pub(super) fn pairs(bytes: &[u8], count: usize) -> Option<(Vec<u32>, usize)> {
        let (mut values, mut at) = (Vec::new(), 0);
        for _ in 0..count {
            if *bytes.get(at)? != 0x92 {
                return None;
            }
            let (pair, len) = tokens(&bytes[at + 1..], 2)?;
            if let Some(last) = values.pop()
                && last != pair[0]
            {
                return None;
            }
            values.extend(pair);
            at += 1 + len;
        }
        Some((values, at))
    }

    pub(super) fn hashes(bytes: &[u8], count: usize) -> Option<(Vec<EngineHash>, usize)> {
        let (mut values, mut at) = (Vec::new(), 0);
        for _ in 0..count {
            let tag = *bytes.get(at)?;
            let (len, signed) = match tag {
                0..=0x7f | 0xe0..=0xff => (0, false),
                0xcc..=0xcf => (1 << (tag - 0xcc), false),
                0xd0..=0xd3 => (1 << (tag - 0xd0), true),
                _ => return None,
            };
            let payload = bytes.get(at + 1..at + 1 + len)?;
            let start = if signed && payload[0] >= 0x80 { u64::MAX } else { 0 };
            values.push(EngineHash(match tag {
                0..=0x7f => tag.into(),
                0xe0..=0xff => 0xffff_ffff_ffff_ff00 | u64::from(tag),
                _ => payload.iter().fold(start, |value, &byte| value << 8 | u64::from(byte)),
            }));
            at += 1 + len;
        }
        Some((values, at))
    }
}

/// Checks everything every kernel says about these bytes, with values before it in the vectors.
#[track_caller]
fn check(bytes: &[u8], count: usize) {
    for kernel in kernels() {
        let level = kernel.level();
        let shown = || format!("{level:?}, {count} of {bytes:02x?}");
        let mut out = vec![7];
        let used = kernel.read_tokens(bytes, count, &mut out);
        let expected = naive::tokens(bytes, count);
        assert_eq!(used, expected.as_ref().map(|e| e.1), "tokens: {}", shown());
        assert_eq!(out[1..], expected.map_or(vec![], |e| e.0), "tokens: {}", shown());
        assert_eq!(kernel.skip_tokens(bytes, count), used, "skip: {}", shown());

        let mut out = vec![7];
        let expected = naive::pairs(bytes, count);
        assert_eq!(
            kernel.read_pairs(bytes, count, &mut out),
            expected.as_ref().map(|e| e.1),
            "pairs: {}",
            shown()
        );
        assert_eq!(out[1..], expected.map_or(vec![], |e| e.0), "pairs: {}", shown());

        let mut out = vec![EngineHash(7)];
        let expected = naive::hashes(bytes, count);
        assert_eq!(
            kernel.read_hashes(bytes, count, &mut out),
            expected.as_ref().map(|e| e.1),
            "hashes: {}",
            shown()
        );
        assert_eq!(out[1..], expected.map_or(vec![], |e| e.0), "hashes: {}", shown());
    }
}

/// The four encodings, with payloads that look like tags, like fixints and like nothing.
const ELEMENTS: [&[u8]; 16] = [
    &[0x00],
    &[0x7f],
    &[0x05],
    &[0xcc, 0x80],
    &[0xcc, 0xff],
    &[0xcc, 0xcc],
    &[0xcc, 0x92],
    &[0xcd, 0x01, 0x00],
    &[0xcd, 0xff, 0xff],
    &[0xcd, 0xcd, 0xcd],
    &[0xcd, 0x00, 0xce],
    &[0xce, 0x00, 0x00, 0x00, 0x05],
    &[0xce, 0x00, 0x01, 0x00, 0x00],
    &[0xce, 0x80, 0x00, 0x00, 0x00],
    &[0xce, 0xff, 0xff, 0xff, 0xff],
    &[0xce, 0xce, 0xcd, 0xcc, 0xce],
];

/// What may come after an array in a payload, and what looks like more of it.
const TAILS: [&[u8]; 5] = [&[], &[0x10, 0xc0, 0xa3, b'G', b'P', b'U'], &[0xce], &[0xcd; 90], &[0x05; 90]];

#[test]
fn every_width_reads_at_every_alignment() {
    for element in ELEMENTS {
        for before in (0..70).step_by(STEP) {
            for after in [0, 1, 2, 40] {
                let mut bytes = vec![1; before];
                bytes.extend(element);
                bytes.extend(vec![2; after]);
                check(&bytes, before + 1 + after);
                check(&bytes, before + 1);
            }
        }
    }
}

#[test]
fn runs_of_one_width_read_at_every_length_whatever_follows() {
    for element in ELEMENTS {
        for count in (0..70).step_by(STEP) {
            for tail in TAILS {
                let bytes = [element.repeat(count), tail.to_vec()].concat();
                check(&bytes, count);
            }
        }
    }
}

#[test]
fn a_cut_at_any_byte_is_refused() {
    let bytes = ELEMENTS.concat().repeat(4);
    for end in (0..bytes.len()).step_by(STEP) {
        check(&bytes[..end], 64);
    }
    for element in ELEMENTS {
        let bytes = element.repeat(65);
        for end in (0..bytes.len()).step_by(STEP) {
            check(&bytes[..end], 65);
        }
    }
}

#[test]
fn a_foreign_marker_at_any_element_is_refused() {
    for marker in
        [0x80, 0x90, 0x92, 0xa1, 0xc0, 0xc1, 0xc4, 0xca, 0xcb, 0xcf, 0xd0, 0xd3, 0xd9, 0xdc, 0xe0, 0xff]
    {
        for element in [&[9][..], &[0xcc, 0xc0], &[0xcd, 1, 2], &[0xce, 0, 1, 2, 3]] {
            for at in (0..45).step_by(STEP) {
                let mut bytes = element.repeat(at);
                bytes.push(marker);
                bytes.extend(element.repeat(45 - at));
                // With the marker as the last element, the first beyond, and in the middle.
                check(&bytes, at);
                check(&bytes, at + 1);
                check(&bytes, 46);
            }
        }
    }
}

#[test]
fn every_byte_value_alone_and_in_a_row() {
    for value in (0..=255_u8).step_by(STEP) {
        for len in [1, 2, 9, 10, 100] {
            for count in [1, 2, 10] {
                check(&vec![value; len], count);
            }
        }
    }
}

#[test]
fn pairs_chain_or_are_refused() {
    for element in ELEMENTS {
        let pair = [&[0x92], element, element].concat();
        for count in (0..40).step_by(STEP) {
            let mut bytes = pair.repeat(count);
            check(&bytes, count);
            bytes.extend([0x92, 5, 6]);
            check(&bytes, count);
            check(&bytes, count + 1);
            for end in bytes.len().saturating_sub(12)..bytes.len() {
                check(&bytes[..end], count);
            }
        }
    }
    // A mark as a value, a value as a mark.
    check(&[0x92, 0xcc, 0x92, 0xcc, 0x92], 1);
    check(&[0xcc, 0x92, 0x92, 0x05], 1);
    check(&[0xcc, 0x92, 0x05, 0x92], 1);
}

#[test]
fn hashes_read_in_every_form() {
    let forms: [&[u8]; 8] = [
        &[0xcf, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xd3, 0xff, 2, 3, 4, 5, 6, 7, 0xcf],
        &[0x7f],
        &[0xff],
        &[0xd0, 0x80],
        &[0xd1, 0x80, 0],
        &[0xd2, 0x80, 0, 0, 1],
        &[0xce, 0x80, 0, 0, 1],
    ];
    for count in (1..30).step_by(STEP) {
        for odd in 0..count {
            for form in forms {
                let bytes: Vec<u8> =
                    (0..count).flat_map(|i| if i == odd { form } else { forms[i % 2] }).copied().collect();
                check(&bytes, count);
                check(&bytes[..bytes.len() - 1], count);
            }
        }
    }
}

#[test]
fn more_elements_than_bytes_reserve_nothing() {
    for kernel in kernels() {
        let (mut tokens, mut hashes) = (Vec::new(), Vec::new());
        for count in [10, usize::MAX / 3, usize::MAX] {
            assert_eq!(kernel.read_tokens(&[1; 9], count, &mut tokens), None);
            assert_eq!(kernel.skip_tokens(&[1; 9], count), None);
            assert_eq!(kernel.read_pairs(&[0x92; 9], count, &mut tokens), None);
            assert_eq!(kernel.read_hashes(&[1; 9], count, &mut hashes), None);
        }
        assert_eq!((tokens.capacity(), hashes.capacity()), (0, 0));
    }
}

#[test]
fn labels_name_their_level() {
    for level in SimdLevel::ALL {
        assert_eq!(SimdLevel::parse(level.label()), Some(level));
    }
    assert_eq!(SimdLevel::parse("best"), None);
    assert!(Kernels::force(SimdLevel::Scalar).is_some());
    for kernel in kernels() {
        assert!(kernel.level() <= Kernels::detect().level() || std::env::var(super::LEVEL_VARIABLE).is_ok());
    }
}

struct Random(TestRng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound as u64).unwrap()
    }

    /// An array of one of several flavours, something after it, and perhaps a few bytes wrong.
    fn array(&mut self) -> (Vec<u8>, usize) {
        let (flavour, count) = (self.below(6), [3, 20, 50, 300][self.below(4)]);
        let count = self.below(count);
        let mut bytes = Vec::new();
        let mut last = ELEMENTS[self.below(16)];
        for _ in 0..count {
            let value = self.0.next_u64().to_be_bytes();
            match flavour {
                0 => bytes.extend(ELEMENTS[self.below(16)]),
                1 => bytes.extend([&[0xcd], &value[..2]].concat()),
                2 => bytes.extend([&[0xce, 0, value[0] & 3], &value[1..3]].concat()),
                3 => {
                    let next = ELEMENTS[self.below(16)];
                    bytes.extend([&[0x92], last, next].concat());
                    last = next;
                }
                4 => bytes.extend([&[0xcf | value[0] & 4], &value[..]].concat()),
                _ => match value[0] % 8 {
                    0 => bytes.push(value[1] & 0x7f),
                    1 => bytes.extend([0xcc, value[1]]),
                    2 => bytes.extend([&[0xce, 0], &value[1..4]].concat()),
                    _ => bytes.extend([&[0xcd], &value[1..3]].concat()),
                },
            }
        }
        match self.below(4) {
            0 => {}
            1 => bytes.extend(TAILS[self.below(5)]),
            2 => (0..self.below(90)).for_each(|_| bytes.push(self.0.next_u32().to_be_bytes()[0])),
            _ => bytes.truncate(bytes.len().saturating_sub(self.below(7))),
        }
        if self.below(2) == 0 && !bytes.is_empty() {
            for _ in 0..self.below(3) {
                let at = self.below(bytes.len());
                bytes[at] = [0xcc, 0xcd, 0xce, 0xcf, 0x92, 0xc0, 0x00, self.0.next_u32().to_be_bytes()[0]]
                    [self.below(8)];
            }
        }
        let count = (count + self.below(3)).saturating_sub(1);
        (bytes, count)
    }
}

#[test]
fn random_and_mutated_arrays_agree() {
    let cases = std::env::var("KVTAP_SIMD_CASES").map_or(20_000, |n| n.parse().unwrap());
    let mut random = Random(TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (mut tokens, mut pairs, mut hashes) = (0, 0, 0);
    for _ in 0..cases {
        let (bytes, count) = random.array();
        check(&bytes, count);
        tokens += usize::from(count > 1 && naive::tokens(&bytes, count).is_some());
        pairs += usize::from(count > 1 && naive::pairs(&bytes, count).is_some());
        hashes += usize::from(count > 1 && naive::hashes(&bytes, count).is_some());
    }
    println!("{cases} arrays; valid: {tokens} of tokens, {pairs} of pairs, {hashes} of hashes");
    assert!(
        cases < 1000 || tokens.min(pairs).min(hashes) > cases / 100,
        "too few valid arrays to mean anything"
    );
}

#[cfg(all(unix, not(miri)))]
mod guarded {
    //! Arrays between two pages that cannot be read: one byte too far ends the test process.

    use super::{ELEMENTS, Random, RngAlgorithm, TestRng, check};

    const PAGE: usize = 1 << 16;

    struct Pages(*mut u8);

    impl Pages {
        #[expect(unsafe_code, reason = "memory that must not be read cannot be had otherwise")]
        fn new() -> Self {
            let (flags, access) =
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: a fresh private mapping at an address of the system's choice touches nobody's memory.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE, access, flags, -1, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            let start: *mut u8 = start.cast();
            for page in [start, start.wrapping_add(2 * PAGE)] {
                // SAFETY: both pages are in the mapping just made, and nothing refers to them.
                assert_eq!(unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_NONE) }, 0);
            }
            Self(start)
        }

        /// The page that can be read.
        #[expect(unsafe_code, reason = "as in `new`")]
        fn readable(&mut self) -> &mut [u8] {
            // SAFETY: the middle page is mapped, zeroed at first, and borrowed from `self` alone.
            unsafe { std::slice::from_raw_parts_mut(self.0.wrapping_add(PAGE), PAGE) }
        }

        /// Checks `bytes` where they end, and where they begin, at a page that cannot be read.
        fn check(&mut self, bytes: &[u8], count: usize) {
            let page = self.readable();
            let (at_end, len) = (PAGE - bytes.len(), bytes.len());
            page[at_end..].copy_from_slice(bytes);
            check(&page[at_end..], count);
            page[..len].copy_from_slice(bytes);
            check(&page[..len], count);
        }
    }

    impl Drop for Pages {
        #[expect(unsafe_code, reason = "as in `new`")]
        fn drop(&mut self) {
            // SAFETY: the mapping is ours and no borrow of it outlives `self`.
            unsafe { libc::munmap(self.0.cast(), 3 * PAGE) };
        }
    }

    #[test]
    fn nothing_outside_the_bytes_is_read() {
        let mut pages = Pages::new();
        for element in ELEMENTS {
            for count in 0..50 {
                let bytes = element.repeat(count);
                pages.check(&bytes, count);
                pages.check(&bytes, count + 1);
                pages.check(&bytes[..bytes.len().saturating_sub(1)], count);
            }
        }
        let mut random = Random(TestRng::deterministic_rng(RngAlgorithm::ChaCha));
        for _ in 0..3000 {
            let (bytes, count) = random.array();
            pages.check(&bytes, count);
        }
    }
}
