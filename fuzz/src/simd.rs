//! Every SIMD level this CPU runs against the scalar one, on payloads and on arrays of every kind of integer, through the
//! decoder.
//!
//! Input: a byte that says what the rest is, then a payload, or the elements of one array.

use kvtap::wire::{Body, Decoder, Event};
use kvtap::{DigestHalf, SimdLevel};

/// Decodes at each level and compares.
pub fn run(data: &[u8]) {
    let Some((&shape, rest)) = data.split_first() else { return };
    // In a block of its own size, so that reading past its end is seen.
    let payload = payload(shape, rest).into_boxed_slice();
    let mut levels = SimdLevel::available();
    let scalar = decode(levels.next().expect("scalar code runs anywhere"), &payload);
    for level in levels {
        assert_eq!(decode(level, &payload), scalar, "{} and scalar differ on {payload:02x?}", level.label());
    }
}

fn payload(shape: u8, rest: &[u8]) -> Vec<u8> {
    let name = match shape & 3 {
        0 => return rest.to_vec(),
        1 => "token_ids",
        2 => "block_hashes",
        _ => return pairs(shape, rest),
    };
    let (count, len) = elements(rest);
    event(shape, name, count, &rest[..len])
}

/// Pairs that chain, made of the token ids in `rest`.
fn pairs(shape: u8, rest: &[u8]) -> Vec<u8> {
    let (mut array, mut count, mut at) = (Vec::new(), 0, 0);
    let mut before: Option<&[u8]> = None;
    while let Some(len) = element(&rest[at..]) {
        let token = &rest[at..at + len];
        if let Some(before) = before {
            array.push(0x92);
            array.extend(before);
            array.extend(token);
            count += 1;
        }
        before = Some(token);
        at += len;
    }
    event(shape, "token_ids", count, &array)
}

/// A batch of one store with such an array, at the end of the payload or before other fields; its count may lie by one.
fn event(shape: u8, name: &str, count: usize, array: &[u8]) -> Vec<u8> {
    let count = match shape >> 2 & 7 {
        0 => count + 1,
        1 => count.saturating_sub(1),
        _ => count,
    };
    let mut array = [&[0xdd], &u32::try_from(count).expect("an input's").to_be_bytes()[..], array].concat();
    let one = vec![0x91, 0x05];
    let mut fields = vec![("type", [&[0xab], &b"BlockStored"[..]].concat()), ("block_size", vec![0x04])];
    fields.extend(
        ["token_ids", "block_hashes"]
            .into_iter()
            .filter(|other| *other != name)
            .map(|other| (other, one.clone())),
    );
    if shape & 32 == 0 {
        fields.push((name, array));
    } else {
        array.push(0xa9); // the next key
        array.extend(b"lora_name\xc0");
        fields.push((name, array));
    }
    let pairs = 4 + u8::from(shape & 32 != 0);
    let mut out = vec![0x92, 0x01, 0x91, 0x80 | pairs];
    for (name, value) in fields {
        out.push(0xa0 | u8::try_from(name.len()).expect("short"));
        out.extend(name.as_bytes());
        out.extend(value);
    }
    out
}

/// The integers at the front: how many, and their bytes.
fn elements(bytes: &[u8]) -> (usize, usize) {
    let (mut count, mut at) = (0, 0);
    while let Some(len) = element(&bytes[at..]) {
        count += 1;
        at += len;
    }
    (count, at)
}

/// The length of the value at the front, if it is whole and may stand in an array of integers.
fn element(bytes: &[u8]) -> Option<usize> {
    let len = match *bytes.first()? {
        0xcc | 0xd0 => 2,
        0xcd | 0xd1 => 3,
        0xce | 0xd2 | 0xca => 5,
        0xcf | 0xd3 | 0xcb => 9,
        0xc4 => 2 + usize::from(*bytes.get(1)?),
        0x00..=0x7f | 0xe0..=0xff | 0xc0 => 1,
        _ => return None,
    };
    (len <= bytes.len()).then_some(len)
}

/// All that one level says, in three passes: tokens are decoded ahead in the first, passed over at the end of the second and
/// in the third.
fn decode(level: SimdLevel, payload: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::with_simd(DigestHalf::Low, level).expect("available");
    [true, false, true].into_iter().map(|bodies| pass(&mut decoder, payload, bodies)).collect()
}

fn pass(decoder: &mut Decoder, payload: &[u8], bodies: bool) -> String {
    let mut batch = match decoder.read(payload) {
        Ok(batch) => batch,
        Err(error) => {
            assert!(error.offset() as usize <= payload.len(), "{error}");
            return format!("{error:?}");
        }
    };
    let mut said = format!("{:?} {:?}", batch.timestamp().to_bits(), batch.dp_rank());
    while let Some(mut event) = batch.next_event() {
        said += &match &mut event {
            Event::Stored(stored) if bodies => {
                format!("{:?} {:?}", stored.gate(), stored.body().map(|body| whole(&body)))
            }
            Event::Stored(stored) => format!("{:?}", stored.gate()),
            Event::Removed(removed) if bodies => format!("{:?}", removed.block_hashes()),
            Event::Removed(removed) => format!("{:?}", removed.gate()),
            Event::Cleared(cleared) => format!("{:?}", cleared.ownership()),
            other => format!("{other:?}"),
        };
    }
    said
}

/// All that a body says.
fn whole(body: &Body<'_>) -> String {
    let (mut keys, mut infos) = (Vec::new(), Vec::new());
    body.extra_keys.for_each(|block, key| keys.push((block, key)));
    if let Some(mm_infos) = &body.block_mm_infos {
        mm_infos.for_each(|block, hash| infos.push((block, hash)));
    }
    let Body { block_hashes, parent_block_hash, token_ids, bigram, block_size, .. } = body;
    let names = (body.lora_name, body.cache_salt, body.session_id);
    let numbers = (block_hashes, parent_block_hash, token_ids, bigram, block_size);
    format!("{numbers:?} {names:?} {keys:?} {infos:?} {}", body.token_count())
}
