//! Runs of msgpack integers, as many at a time as the CPU can: token ids, EAGLE pairs, block hashes. Data plane.
//!
//! [`Kernels`] is the door: chosen once, kept by whoever decodes. Every kernel reads the same language, the one block
//! hashes and token ids are written in by every encoder seen; anything else is answered with `None` and left to the
//! caller's general path. No kernel reads outside the bytes it is given, and room is reserved only for as many values
//! as there are bytes.
//!
//! | level | needs | how |
//! | --- | --- | --- |
//! | scalar | nothing | eight bytes per word, no unsafe code |
//! | ssse3 | SSSE3, POPCNT | 16-byte compares, a table of shuffles |
//! | avx512 | AVX-512 F, BW, VBMI, VBMI2; BMI1, BMI2, POPCNT | 64-byte windows, byte permutes |
//! | neon | aarch64 | as ssse3 |
//!
//! Under Miri only the scalar kernels run: they are the twin that the others are compared with.

#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets below 128 and tables as long as their index is wide; the naive twin in the tests is the proof"
)]

use std::mem::MaybeUninit;

use crate::ids::EngineHash;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod neon;
mod scalar;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod shuffles;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod ssse3;
mod starts;
#[cfg(test)]
mod tests;

/// The environment variable that makes [`Kernels::detect`] take a lower level, by label.
pub(crate) const LEVEL_VARIABLE: &str = "KVTAP_SIMD";

/// Which kernels run; on any one machine, a later level is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SimdLevel {
    /// Portable code on 64-bit words.
    Scalar,
    /// x86-64 with SSSE3 and POPCNT.
    Ssse3,
    /// x86-64 with AVX-512 VBMI2 and BMI2.
    Avx512,
    /// aarch64.
    Neon,
}

impl SimdLevel {
    /// Every level, of every architecture.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Ssse3, Self::Avx512, Self::Neon];

    /// The levels this CPU runs, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|&level| Kernels::force(level).is_some())
    }

    /// Its name on the command line, in the environment and in reports.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Ssse3 => "ssse3",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// The level with this label.
    #[must_use]
    pub fn parse(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.label() == label)
    }
}

/// Kernels proven to run on this CPU: having a value is the check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels(Chosen);

#[derive(Clone, Copy, Debug)]
enum Chosen {
    Scalar(scalar::Scalar),
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Ssse3(ssse3::Ssse3),
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512(avx512::Avx512),
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    Neon(neon::Neon),
}

impl Kernels {
    /// The fastest kernels this CPU runs, unless the environment ([`LEVEL_VARIABLE`]) names others that it runs too.
    /// An unknown or unavailable name is ignored; [`Self::force`] refuses it. Control plane: call once.
    #[must_use]
    pub(crate) fn detect() -> Self {
        let named = std::env::var(LEVEL_VARIABLE).ok().and_then(|label| SimdLevel::parse(&label));
        named.and_then(Self::force).unwrap_or_else(|| {
            let best = SimdLevel::ALL.into_iter().rev().find_map(Self::force);
            best.unwrap_or(Self(Chosen::Scalar(scalar::Scalar)))
        })
    }

    /// The kernels of exactly this level; `None` if this CPU cannot run them.
    #[must_use]
    pub(crate) fn force(level: SimdLevel) -> Option<Self> {
        let chosen = match level {
            SimdLevel::Scalar => Some(Chosen::Scalar(scalar::Scalar)),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            SimdLevel::Ssse3 => ssse3::Ssse3::detect().map(Chosen::Ssse3),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            SimdLevel::Avx512 => avx512::Avx512::detect().map(Chosen::Avx512),
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            SimdLevel::Neon => neon::Neon::detect().map(Chosen::Neon),
            #[cfg(any(not(target_arch = "x86_64"), miri))]
            SimdLevel::Ssse3 | SimdLevel::Avx512 => None,
            #[cfg(any(not(target_arch = "aarch64"), miri))]
            SimdLevel::Neon => None,
        };
        chosen.map(Self)
    }

    /// Which kernels these are.
    #[cfg(test)]
    pub(crate) const fn level(self) -> SimdLevel {
        match self.0 {
            Chosen::Scalar(_) => SimdLevel::Scalar,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Chosen::Ssse3(_) => SimdLevel::Ssse3,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Chosen::Avx512(_) => SimdLevel::Avx512,
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            Chosen::Neon(_) => SimdLevel::Neon,
        }
    }

    /// Reads `count` token ids from the front of `bytes`, appends them to `out` and returns how many bytes they took.
    ///
    /// A token id is a positive fixint, cc, cd or ce, in any form that holds it. `None` if there are fewer or another
    /// value is among them: it may still be a legal one (a wider or signed form), so ask the general path. `out` then
    /// holds what it held before.
    #[must_use]
    pub(crate) fn read_tokens(self, bytes: &[u8], count: usize, out: &mut Vec<u32>) -> Option<usize> {
        self.read_values::<false>(bytes, count, out)
    }

    /// [`Self::read_tokens`] without the values.
    #[must_use]
    pub(crate) fn skip_tokens(self, bytes: &[u8], count: usize) -> Option<usize> {
        if count > bytes.len() {
            return None;
        }
        self.walk::<false, false>(bytes, count, &mut [])
    }

    /// Reads `count` EAGLE pairs, arrays of two token ids of which each begins with the second of the one before;
    /// appends the `count + 1` token ids they chain to `out` (none for no pairs) and returns how many bytes they took.
    /// `None` as in [`Self::read_tokens`], and for pairs that do not chain.
    #[must_use]
    pub(crate) fn read_pairs(self, bytes: &[u8], count: usize, out: &mut Vec<u32>) -> Option<usize> {
        // The least pair has three bytes and is walked as three elements: its mark and two values.
        if count == 0 || count > bytes.len() / 3 {
            return (count == 0).then_some(0);
        }
        let from = out.len();
        let used = self.read_values::<true>(bytes, 3 * count, out)?;
        let (chained, last) = chain(out.get_mut(from..)?);
        out.truncate(if chained { from + count } else { from });
        if !chained {
            return None;
        }
        out.push(last);
        Some(used)
    }

    /// Reads `count` block hashes from the front of `bytes`, appends them to `out` and returns how many bytes they took.
    /// A hash is any msgpack integer; a negative one counts as its two's complement. `None`, with `out` as before, if
    /// there are fewer or another value is among them.
    #[must_use]
    pub(crate) fn read_hashes(self, bytes: &[u8], count: usize, out: &mut Vec<EngineHash>) -> Option<usize> {
        if count > bytes.len() {
            return None;
        }
        out.reserve(count + HASH_SLACK);
        let spare = plain(out.spare_capacity_mut());
        let used = match self.0 {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Chosen::Avx512(kernel) => kernel.read_hashes(bytes, count, spare)?,
            // SSSE3, NEON: a load, a byte swap and a store per hash are as fast as two at a time by shuffles.
            _ => scalar::read_hashes(bytes, count, spare)?,
        };
        let len = out.len() + count;
        // SAFETY: every kernel that returns `Some` has written `count` hashes from the old length on.
        unsafe { out.set_len(len) };
        Some(used)
    }

    /// Appends the values of `elements` elements to `out`, of pairs with their marks.
    fn read_values<const PAIRS: bool>(
        self,
        bytes: &[u8],
        elements: usize,
        out: &mut Vec<u32>,
    ) -> Option<usize> {
        if elements > bytes.len() {
            return None;
        }
        out.reserve(elements + starts::SLACK);
        let used = self.walk::<PAIRS, true>(bytes, elements, out.spare_capacity_mut())?;
        let len = out.len() + elements;
        // SAFETY: every kernel that returns `Some` has written one value per element from the old length on.
        unsafe { out.set_len(len) };
        Some(used)
    }

    /// `starts::walk` by these kernels.
    #[inline]
    fn walk<const PAIRS: bool, const EMIT: bool>(
        self,
        bytes: &[u8],
        elements: usize,
        out: &mut [MaybeUninit<u32>],
    ) -> Option<usize> {
        match self.0 {
            Chosen::Scalar(kernel) => kernel.walk::<PAIRS, EMIT>(bytes, elements, out),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Chosen::Ssse3(kernel) => kernel.walk::<PAIRS, EMIT>(bytes, elements, out),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Chosen::Avx512(kernel) => kernel.walk::<PAIRS, EMIT>(bytes, elements, out),
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            Chosen::Neon(kernel) => kernel.walk::<PAIRS, EMIT>(bytes, elements, out),
        }
    }
}

/// Room for hashes as room for the numbers they are.
fn plain(room: &mut [MaybeUninit<EngineHash>]) -> &mut [MaybeUninit<u64>] {
    // SAFETY: `EngineHash` is a transparent `u64`, and the borrow of the room goes on in the result.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), room.len()) }
}

/// Hashes that kernels may write past the last one of a run.
const HASH_SLACK: usize = 8;

/// Moves the first of each pair (of three values: mark, first, second) to the front. Whether all pairs chain, and the
/// last second.
fn chain(values: &mut [u32]) -> (bool, u32) {
    let Some(&[_, mut next, _]) = values.first_chunk() else { return (true, 0) };
    let mut differ = 0;
    for i in 0..values.len() / 3 {
        let (first, second) = (values[3 * i + 1], values[3 * i + 2]);
        differ |= first ^ next;
        next = second;
        values[i] = first;
    }
    (differ == 0, next)
}
