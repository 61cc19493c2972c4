//! Checked forward reads over a payload: the only code that moves a position.
//!
//! Hot loops keep a cursor of their own, in registers; everything they call with it is inlined or takes it by value.

use super::error::{WireError, WireErrorKind};
use super::marker::{self, Kind};

/// A position in a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    payload: &'a [u8],
    /// `at <= payload.len()`.
    at: usize,
}

/// An integer of any width, before it meets its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Int {
    NonNegative(u64),
    Negative(i64),
}

impl Int {
    /// The same 64 bits, two's complement.
    pub(super) const fn bits(self) -> u64 {
        match self {
            Self::NonNegative(value) => value,
            Self::Negative(value) => value.cast_unsigned(),
        }
    }

    pub(super) fn to_u32(self) -> Option<u32> {
        match self {
            Self::NonNegative(value) => u32::try_from(value).ok(),
            Self::Negative(_) => None,
        }
    }
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    pub(super) const fn new(payload: &'a [u8], at: usize) -> Self {
        Self { payload, at }
    }

    #[inline(always)]
    pub(super) const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// What is left.
    #[inline(always)]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.payload.get(self.at..).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    /// The offset as stored in event tables; payloads of 4 GiB and more are refused at the door.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "payload length fits u32, checked at the door")]
    pub(super) const fn offset_u32(&self) -> u32 {
        self.at as u32
    }

    /// Goes to an offset found before.
    #[inline(always)]
    pub(super) const fn go(&mut self, at: usize) {
        self.at = at;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.at >= self.payload.len()
    }

    /// The error of what is here. Inlined down to two numbers: a position whose address is taken would not stay in
    /// registers.
    #[inline(always)]
    pub(super) fn fail(&self, kind: WireErrorKind) -> WireError {
        WireError::new(self.at, kind)
    }

    #[inline(always)]
    pub(super) fn peek(&self) -> Result<u8, WireError> {
        match self.payload.get(self.at) {
            Some(&marker) => Ok(marker),
            None => Err(self.fail(WireErrorKind::Truncated)),
        }
    }

    /// Steps over `bytes`; on failure the position stays, so that it names the value cut short.
    #[inline(always)]
    pub(super) fn advance(&mut self, bytes: usize) -> Result<(), WireError> {
        match self.at.checked_add(bytes) {
            Some(end) if end <= self.payload.len() => {
                self.at = end;
                Ok(())
            }
            _ => Err(self.fail(WireErrorKind::Truncated)),
        }
    }

    /// Big-endian length of `N` bytes behind the marker; position unchanged.
    #[inline(always)]
    fn peek_length<const N: usize>(&self) -> Result<usize, WireError> {
        let Some(bytes) = self.rest().get(1..).and_then(<[u8]>::first_chunk::<N>) else {
            return Err(self.fail(WireErrorKind::Truncated));
        };
        Ok(bytes.iter().fold(0, |length, &byte| (length << 8) | usize::from(byte)))
    }

    /// Reads the header of an array, giving its element count; `None` (position unchanged) if it is none.
    /// A count beyond the bytes left is refused at once, as every element takes at least one.
    #[inline(always)]
    pub(super) fn read_array(&mut self) -> Result<Option<usize>, WireError> {
        let (count, header) = match self.peek()? {
            marker @ 0x90..=0x9f => (usize::from(marker & 0x0f), 1),
            0xdc => (self.peek_length::<2>()?, 3),
            0xdd => (self.peek_length::<4>()?, 5),
            _ => return Ok(None),
        };
        self.open(count, header)
    }

    /// Reads the header of a map, giving its pair count; as `read_array` otherwise.
    #[inline(always)]
    pub(super) fn read_map(&mut self) -> Result<Option<usize>, WireError> {
        let (pairs, header) = match self.peek()? {
            marker @ 0x80..=0x8f => (usize::from(marker & 0x0f), 1),
            0xde => (self.peek_length::<2>()?, 3),
            0xdf => (self.peek_length::<4>()?, 5),
            _ => return Ok(None),
        };
        self.open(pairs.saturating_mul(2), header).map(|elements| elements.map(|elements| elements / 2))
    }

    #[inline(always)]
    fn open(&mut self, elements: usize, header: usize) -> Result<Option<usize>, WireError> {
        // `header` is at most 5, and `at` within a slice.
        let body = self.at.wrapping_add(header);
        if self.payload.len().checked_sub(body).is_some_and(|left| elements <= left) {
            self.at = body;
            Ok(Some(elements))
        } else {
            Err(self.fail(WireErrorKind::Truncated))
        }
    }

    /// Reads the bytes of a str or bin value; `None` (position unchanged) if it is neither.
    #[inline(always)]
    pub(super) fn read_text(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        let (length, header) = match self.peek()? {
            marker @ 0xa0..=0xbf => (usize::from(marker & 0x1f), 1),
            0xd9 | 0xc4 => (self.peek_length::<1>()?, 2),
            0xda | 0xc5 => (self.peek_length::<2>()?, 3),
            0xdb | 0xc6 => (self.peek_length::<4>()?, 5),
            _ => return Ok(None),
        };
        // `header` is at most 5, `length` below 2^32, and `at` within a slice.
        let start = self.at.wrapping_add(header);
        let end = start.saturating_add(length);
        match self.payload.get(start..end) {
            Some(text) => {
                self.at = end;
                Ok(Some(text))
            }
            None => Err(self.fail(WireErrorKind::Truncated)),
        }
    }

    /// Reads an integer of any width and sign; `None` (position unchanged) if it is none.
    #[inline(always)]
    pub(super) fn read_int(&mut self) -> Result<Option<Int>, WireError> {
        let marker = self.peek()?;
        let value = match marker {
            0x00..=0x7f => Int::NonNegative(u64::from(marker)),
            0xe0..=0xff => Int::Negative(i64::from(marker.cast_signed())),
            0xcc => Int::NonNegative(u64::from(u8::from_be_bytes(self.peek_body()?))),
            0xcd => Int::NonNegative(u64::from(u16::from_be_bytes(self.peek_body()?))),
            0xce => Int::NonNegative(u64::from(u32::from_be_bytes(self.peek_body()?))),
            0xcf => Int::NonNegative(u64::from_be_bytes(self.peek_body()?)),
            0xd0 => signed(i64::from(i8::from_be_bytes(self.peek_body()?))),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.peek_body()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.peek_body()?))),
            0xd3 => signed(i64::from_be_bytes(self.peek_body()?)),
            _ => return Ok(None),
        };
        self.advance(marker::fixed_bytes(marker))?;
        Ok(Some(value))
    }

    /// Reads a number as f64; `None` (position unchanged) if it is none.
    pub(super) fn read_number(&mut self) -> Result<Option<f64>, WireError> {
        match self.peek()? {
            0xca => {
                let value = f32::from_be_bytes(self.peek_body()?);
                self.advance(5)?;
                Ok(Some(f64::from(value)))
            }
            0xcb => {
                let value = f64::from_be_bytes(self.peek_body()?);
                self.advance(9)?;
                Ok(Some(value))
            }
            _ => Ok(self.read_int()?.map(|value| match value {
                #[expect(clippy::cast_precision_loss, reason = "timestamps need milliseconds, not 64 bits")]
                Int::NonNegative(value) => value as f64,
                #[expect(clippy::cast_precision_loss, reason = "timestamps need milliseconds, not 64 bits")]
                Int::Negative(value) => value as f64,
            })),
        }
    }

    #[inline(always)]
    fn peek_body<const N: usize>(&self) -> Result<[u8; N], WireError> {
        match self.rest().get(1..).and_then(<[u8]>::first_chunk::<N>) {
            Some(body) => Ok(*body),
            None => Err(self.fail(WireErrorKind::Truncated)),
        }
    }

    /// Type of the value here.
    pub(super) fn peek_kind(&self) -> Result<Kind, WireError> {
        self.peek().map(marker::kind)
    }
}

const fn signed(value: i64) -> Int {
    if value < 0 { Int::Negative(value) } else { Int::NonNegative(value.cast_unsigned()) }
}
