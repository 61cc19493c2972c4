//! Runs of integers (interim scalar kernels).
use std::fmt;
/// Kernels.
#[derive(Clone, Copy)]
pub struct Kernels(());
impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernels")
    }
}
impl Kernels {
    pub(crate) fn detect() -> Self {
        Self(())
    }
    fn one(bytes: &[u8]) -> Option<(u32, &[u8])> {
        Some(match bytes {
            [t @ 0..=0x7f, r @ ..] => (u32::from(*t), r),
            [0xcc, a, r @ ..] => (u32::from(*a), r),
            [0xcd, a, b, r @ ..] => (u32::from(u16::from_be_bytes([*a, *b])), r),
            [0xce, a, b, c, d, r @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]), r),
            _ => return None,
        })
    }
    pub(crate) fn read_tokens(self, bytes: &[u8], count: usize, out: &mut Vec<u32>) -> Option<usize> {
        let old = out.len();
        let mut rest = bytes;
        for _ in 0..count {
            let Some((v, r)) = Self::one(rest) else {
                out.truncate(old);
                return None;
            };
            out.push(v);
            rest = r;
        }
        Some(bytes.len() - rest.len())
    }
    pub(crate) fn skip_tokens(self, bytes: &[u8], count: usize) -> Option<usize> {
        let mut rest = bytes;
        for _ in 0..count {
            rest = Self::one(rest)?.1;
        }
        Some(bytes.len() - rest.len())
    }
    pub(crate) fn read_pairs(self, bytes: &[u8], count: usize, out: &mut Vec<u32>) -> Option<usize> {
        let old = out.len();
        let mut rest = bytes;
        let mut last: Option<u32> = None;
        let mut go = || {
            for _ in 0..count {
                let [0x92, r @ ..] = rest else { return None };
                let (a, r) = Self::one(r)?;
                let (b, r) = Self::one(r)?;
                match last {
                    None => out.push(a),
                    Some(l) if l == a => {}
                    _ => return None,
                }
                out.push(b);
                last = Some(b);
                rest = r;
            }
            Some(bytes.len() - rest.len())
        };
        let r = go();
        if r.is_none() {
            out.truncate(old);
        }
        r
    }
    pub(crate) fn read_hashes(
        self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<crate::ids::EngineHash>,
    ) -> Option<usize> {
        let old = out.len();
        let mut rest = bytes;
        for _ in 0..count {
            let (v, r) = match rest {
                [t @ 0..=0x7f, r @ ..] => (u64::from(*t), r),
                [0xcf | 0xd3, a, b, c, d, e, f, g, h, r @ ..] => {
                    (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), r)
                }
                _ => {
                    out.truncate(old);
                    return None;
                }
            };
            out.push(crate::ids::EngineHash(v));
            rest = r;
        }
        Some(bytes.len() - rest.len())
    }
}
