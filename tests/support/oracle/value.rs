//! Payload bytes to a tree, by plain recursion. Only structure is judged here.
//!
//! The tree keeps what a ready-made reader may lose: repeated map keys in order, text that is not UTF-8, and
//! the depth at which a container stands (rmpv counts depth otherwise, so it cannot express our limit).

/// The deepest container allowed; the batch itself is at depth 1.
const DEPTH_MAX: usize = 64;

/// One msgpack value, borrowing its text and bytes from the payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Nil,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'a [u8]),
    Bin(&'a [u8]),
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Ext(u8, &'a [u8]),
}

/// Why a payload is refused whole, and near which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Bytes read when the rule broke; a hint, not part of the contract between oracle and decoder.
    pub(crate) offset: usize,
    /// The rule.
    pub(crate) reason: &'static str,
}

impl<'a> Value<'a> {
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Value::Nil)
    }

    pub(crate) fn int(&self) -> Option<i128> {
        if let Value::Int(value) = self { Some(*value) } else { None }
    }

    pub(crate) fn u32(&self) -> Option<u32> {
        u32::try_from(self.int()?).ok()
    }

    /// Bytes of a str or a bin: producers use either for text.
    pub(crate) fn text(&self) -> Option<&'a [u8]> {
        if let Value::Str(bytes) | Value::Bin(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn array(&self) -> Option<&[Self]> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn map(&self) -> Option<&[(Self, Self)]> {
        if let Value::Map(pairs) = self { Some(pairs) } else { None }
    }

    /// The value under a text key of a map; of repeated keys the last one counts.
    pub(crate) fn key(&self, name: &str) -> Option<&Self> {
        let found = self.map()?.iter().rev().find(|(key, _)| key.text() == Some(name.as_bytes()));
        found.map(|(_, value)| value)
    }
}

/// Reads exactly one value that fills the payload.
pub(crate) fn read(payload: &[u8]) -> Result<Value<'_>, Rejection> {
    let mut reader = Reader { payload, at: 0 };
    let value = reader.value(1)?;
    if reader.at != payload.len() {
        return reader.reject("trailing bytes");
    }
    Ok(value)
}

struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn reject<T>(&self, reason: &'static str) -> Result<T, Rejection> {
        Err(Rejection { offset: self.at, reason })
    }

    fn bytes(&mut self, len: u64) -> Result<&'a [u8], Rejection> {
        let rest = &self.payload[self.at..];
        match usize::try_from(len) {
            Ok(len) if len <= rest.len() => {
                self.at += len;
                Ok(&rest[..len])
            }
            _ => self.reject("truncated"),
        }
    }

    /// A big-endian unsigned number of `width` bytes.
    fn unsigned(&mut self, width: u64) -> Result<u64, Rejection> {
        Ok(self.bytes(width)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    fn signed(&mut self, width: u64) -> Result<Value<'a>, Rejection> {
        let number = i128::from(self.unsigned(width)?);
        let bits = u32::try_from(width * 8).expect("at most 64");
        let negative = number >= 1 << (bits - 1);
        Ok(Value::Int(if negative { number - (1 << bits) } else { number }))
    }

    /// Reads a value; `depth` is where it would stand if it is a container.
    fn value(&mut self, depth: usize) -> Result<Value<'a>, Rejection> {
        let marker = u8::try_from(self.unsigned(1)?).expect("one byte");
        match marker {
            0x00..=0x7f => Ok(Value::Int(i128::from(marker))),
            0x80..=0x8f => self.map(u64::from(marker & 0x0f), depth),
            0x90..=0x9f => self.array(u64::from(marker & 0x0f), depth),
            0xa0..=0xbf => Ok(Value::Str(self.bytes(u64::from(marker & 0x1f))?)),
            0xc0 => Ok(Value::Nil),
            0xc1 => self.reject("reserved marker"),
            0xc2 => Ok(Value::Bool(false)),
            0xc3 => Ok(Value::Bool(true)),
            0xc4..=0xc6 => {
                let len = self.unsigned(1 << (marker - 0xc4))?;
                Ok(Value::Bin(self.bytes(len)?))
            }
            0xc7..=0xc9 => {
                let len = self.unsigned(1 << (marker - 0xc7))?;
                self.ext(len)
            }
            0xca => {
                let bits = u32::try_from(self.unsigned(4)?).expect("four bytes");
                Ok(Value::Float(f64::from(f32::from_bits(bits))))
            }
            0xcb => Ok(Value::Float(f64::from_bits(self.unsigned(8)?))),
            0xcc..=0xcf => Ok(Value::Int(i128::from(self.unsigned(1 << (marker - 0xcc))?))),
            0xd0..=0xd3 => self.signed(1 << (marker - 0xd0)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4)),
            0xd9..=0xdb => {
                let len = self.unsigned(1 << (marker - 0xd9))?;
                Ok(Value::Str(self.bytes(len)?))
            }
            0xdc..=0xdd => {
                let count = self.unsigned(2 << (marker - 0xdc))?;
                self.array(count, depth)
            }
            0xde..=0xdf => {
                let count = self.unsigned(2 << (marker - 0xde))?;
                self.map(count, depth)
            }
            0xe0..=0xff => Ok(Value::Int(i128::from(marker) - 256)),
        }
    }

    fn ext(&mut self, len: u64) -> Result<Value<'a>, Rejection> {
        let tag = u8::try_from(self.unsigned(1)?).expect("one byte");
        Ok(Value::Ext(tag, self.bytes(len)?))
    }

    // Nothing is reserved by `count`: a false one runs into the end of the payload.
    fn array(&mut self, count: u64, depth: usize) -> Result<Value<'a>, Rejection> {
        if depth > DEPTH_MAX {
            return self.reject("nested too deep");
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Value<'a>, Rejection> {
        if depth > DEPTH_MAX {
            return self.reject("nested too deep");
        }
        let mut pairs = Vec::new();
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            pairs.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(pairs))
    }
}
