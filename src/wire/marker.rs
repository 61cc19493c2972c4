//! The msgpack specification as one table: marker byte → what follows it.

/// Type of a value, by its marker alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nil,
    Bool,
    Int,
    Float,
    Str,
    Bin,
    Array,
    Map,
    Ext,
    Reserved,
}

/// Type of the value that starts with `marker`.
#[inline(always)]
pub(super) const fn kind(marker: u8) -> Kind {
    match marker {
        0x00..=0x7f | 0xcc..=0xd3 | 0xe0..=0xff => Kind::Int,
        0x80..=0x8f | 0xde | 0xdf => Kind::Map,
        0x90..=0x9f | 0xdc | 0xdd => Kind::Array,
        0xa0..=0xbf | 0xd9..=0xdb => Kind::Str,
        0xc0 => Kind::Nil,
        0xc1 => Kind::Reserved,
        0xc2 | 0xc3 => Kind::Bool,
        0xc4..=0xc6 => Kind::Bin,
        0xc7..=0xc9 | 0xd4..=0xd8 => Kind::Ext,
        0xca | 0xcb => Kind::Float,
    }
}

/// Bytes of the whole value where the marker alone tells; 0 where a length follows, for containers and for
/// the reserved marker.
#[inline]
#[expect(clippy::indexing_slicing, reason = "a byte cannot exceed a table of 256")]
pub(super) fn fixed_bytes(marker: u8) -> usize {
    usize::from(FIXED_BYTES[usize::from(marker)])
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "compile time, below 256")]
static FIXED_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut marker = 0;
    while marker < 256 {
        table[marker] = match marker as u8 {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 1,
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 | 0xd4 => 3,
            0xd5 => 4,
            0xca | 0xce | 0xd2 => 5,
            0xd6 => 6,
            0xcb | 0xcf | 0xd3 => 9,
            0xd7 => 10,
            0xd8 => 18,
            text @ 0xa0..=0xbf => text - 0xa0 + 1,
            _ => 0,
        };
        marker += 1;
    }
    table
};
