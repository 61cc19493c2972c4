//! Block hashes: any integer, or digest bytes, → `EngineHash`.

use super::cursor::Cursor;
use super::error::{EventError, EventErrorKind, Field};
use super::marker::Kind;
use super::sound;
use crate::ids::EngineHash;

/// Which 64 bits of a digest name the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a number has two ends")]
pub enum DigestHalf {
    /// The last 8 bytes, big-endian, as vLLM truncates.
    #[default]
    Low,
    /// The first 8 bytes, as SGLang and TensorRT-LLM do.
    High,
}

impl DigestHalf {
    /// Digests shorter than 8 bytes are padded on the left.
    fn of(self, digest: &[u8]) -> EngineHash {
        let half = match self {
            Self::Low => digest.last_chunk::<8>().map_or(digest, |half| half),
            Self::High => digest.first_chunk::<8>().map_or(digest, |half| half),
        };
        EngineHash(half.iter().fold(0, |hash, &byte| (hash << 8) | u64::from(byte)))
    }
}

/// The hash here.
#[inline]
pub(super) fn read_one(
    cursor: Cursor<'_>,
    digest: DigestHalf,
    field: Field,
) -> Result<EngineHash, EventError> {
    // Nearly every hash is a full-width integer.
    if let Some((&[0xcf | 0xd3, hash @ ..], _)) = cursor.rest().split_first_chunk::<9>() {
        return Ok(EngineHash(u64::from_be_bytes(hash)));
    }
    let mut cursor = cursor;
    read(&mut cursor, digest, field)
}

/// Reads one hash.
#[inline(never)]
fn read(cursor: &mut Cursor<'_>, digest: DigestHalf, field: Field) -> Result<EngineHash, EventError> {
    if let Some(int) = sound(cursor.read_int()) {
        return Ok(EngineHash(int.bits()));
    }
    let offset = cursor.offset_u32();
    if cursor.peek_kind() != Ok(Kind::Bin) {
        return Err(EventError::new(offset, EventErrorKind::WrongType, field));
    }
    match sound(cursor.read_text()) {
        Some(bytes) if !bytes.is_empty() => Ok(digest.of(bytes)),
        _ => Err(EventError::new(offset, EventErrorKind::EmptyDigest, field)),
    }
}

/// Reads a list of hashes of any form, appending to `out`.
pub(super) fn read_list(
    cursor: &mut Cursor<'_>,
    digest: DigestHalf,
    out: &mut Vec<EngineHash>,
) -> Result<(), EventError> {
    let field = Field::BlockHashes;
    let Some(count) = sound(cursor.read_array()) else {
        return Err(EventError::new(cursor.offset_u32(), EventErrorKind::WrongType, field));
    };
    for _ in 0..count {
        out.push(read(cursor, digest, field)?);
    }
    Ok(())
}
