//! Payload scope: structure and envelope. The payload is refused whole, at the byte that broke it.

use kvtap::wire::WireErrorKind;
use rmpv::Value;

use crate::place::{Place, places};
use crate::support::source::{Event, list, pack, payload, remove, store};
use crate::{accepted, counts, refused, source, with_refusal};

/// Where the offset of an error counts from.
#[derive(Clone, Copy)]
enum At {
    /// The payload's start.
    Start(usize),
    /// The byte behind the event list.
    Behind(usize),
}

/// Envelopes: bytes before and behind the event list.
const ENVELOPES: &[(&[u8], &[u8], WireErrorKind, At)] = {
    use At::{Behind, Start};
    use WireErrorKind::{BadEvents, BadRank, BadTimestamp, ReservedMarker, TrailingBytes};
    &[
        // The timestamp of an array.
        (b"\x92\xc0", b"", BadTimestamp, Start(1)),
        (b"\x92\xa3now", b"", BadTimestamp, Start(1)),
        (b"\x93\xc3", b"\x00", BadTimestamp, Start(1)),
        (b"\x93\x91\x01", b"\x00", BadTimestamp, Start(1)),
        (b"\x93\x80", b"\x00", BadTimestamp, Start(1)),
        (b"\x93\xd6\xff\0\0\0\0", b"\x00", BadTimestamp, Start(1)),
        (b"\x93\xc1", b"\x00", ReservedMarker, Start(1)),
        // The list of events comes late.
        (b"\x93\x01\xc0", b"", BadEvents, Start(2)),
        (b"\x93\x01\x80", b"", BadEvents, Start(2)),
        (b"\x93\x01\x05", b"", BadEvents, Start(2)),
        (b"\x93\x01\xa1x", b"", BadEvents, Start(2)),
        (b"\x93\x01\xc4\x01\x90", b"", BadEvents, Start(2)),
        // The rank.
        (b"\x93\x01", b"\xa10", BadRank, Behind(0)),
        (b"\x93\x01", b"\xca\0\0\0\0", BadRank, Behind(0)),
        (b"\x93\x01", b"\xcb\0\0\0\0\0\0\0\0", BadRank, Behind(0)),
        (b"\x93\x01", b"\xc2", BadRank, Behind(0)),
        (b"\x93\x01", b"\x90", BadRank, Behind(0)),
        (b"\x93\x01", b"\xc4\x01\x00", BadRank, Behind(0)),
        (b"\x93\x01", b"\xcf\0\0\0\x01\0\0\0\0", BadRank, Behind(0)),
        (b"\x94\x01", b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x01", BadRank, Behind(0)),
        // Maps.
        (b"\x81\xa6events", b"", BadTimestamp, Start(0)),
        (b"\x82\xa6events", b"\xa2ts\xa1x", BadTimestamp, Behind(3)),
        (b"\x82\xa6events", b"\xa2ts\xc0", BadTimestamp, Behind(3)),
        (b"\x82\xa3abc", b"\xa2ts\x01", BadEvents, Start(0)),
        (b"\x82\xa6Events", b"\xa2ts\x01", BadEvents, Start(0)),
        (b"\x83\xa2ts\x01\xa6events", b"\xa7dp_rank\xa10", BadRank, Behind(8)),
        (b"\x83\xa2ts\x01\xa6events", b"\xb2data_parallel_rank\xc3", BadRank, Behind(19)),
        (b"\x83\xa2ts\x01\xa6events", b"\xacattn_dp_rank\xca\0\0\0\0", BadRank, Behind(13)),
        // The last of a key counts.
        (b"\x83\xa2ts\x01\xa6events", b"\xa6events\x05", BadEvents, Behind(7)),
        (b"\x83\xa2ts\x01\xa6events", b"\xa2ts\xa1x", BadTimestamp, Behind(3)),
        // Bytes behind the batch.
        (b"\x92\x01", b"\xc0", TrailingBytes, Behind(0)),
        (b"\x93\x01", b"\xc0\x00", TrailingBytes, Behind(1)),
        (b"\x93\x01", b"\x00\xc1", TrailingBytes, Behind(1)),
        (b"\x93\x01", b"\x00\x93\x01\x90\x00", TrailingBytes, Behind(1)),
        (b"\x82\xa2ts\x01\xa6events", b"\x00", TrailingBytes, Behind(0)),
    ]
};

/// Envelopes that want more than there is: bytes before and behind the event list.
const UNFINISHED: &[(&[u8], &[u8], usize)] = &[
    (b"\x93\x01", b"", 0),
    (b"\x94\x01", b"\x00", 1),
    (b"\x83\xa2ts\x01\xa6events", b"", 0),
    (b"\x83\xa2ts\x01\xa6events", b"\xa7dp_rank", 8),
    (b"\x83\xa2ts\x01\xa6events", b"\xa7dp_ra", 0),
];

/// Where too few bytes are left even for empty values, the count itself is what is wrong.
#[test]
fn an_envelope_that_wants_more_than_there_is_names_the_end_or_its_own_count() {
    let mut source = source();
    let list = [&[0x91][..], &pack(&store(&[7, 8], None, 1..=8).into())].concat();
    for &(before, behind, offset) in UNFINISHED {
        let at = before.len() + list.len() + offset;
        refused(&mut source, &[before, &list, behind].concat(), (WireErrorKind::Truncated, at), "unfinished");
    }
    refused(&mut source, b"\x93\x01\x90", (WireErrorKind::Truncated, 0), "three elements in two bytes");
    refused(&mut source, b"\x82\xa2ts", (WireErrorKind::Truncated, 0), "two pairs in three bytes");
}

#[test]
fn a_wrong_envelope_refuses_the_payload_whatever_its_events() {
    let mut source = source();
    let sound = [pack(&store(&[7, 8], None, 1..=8).into()), pack(&remove(&[7]).into())];
    let lists = [vec![0x90], [&[0x92][..], &sound[0], &sound[1]].concat()];
    for (line, &(before, behind, kind, at)) in ENVELOPES.iter().enumerate() {
        for list in &lists {
            let offset = match at {
                At::Start(offset) => offset,
                At::Behind(offset) => before.len() + list.len() + offset,
            };
            refused(&mut source, &[before, list, behind].concat(), (kind, offset), &format!("line {line}"));
        }
    }
}

#[test]
fn what_is_no_batch_at_all_is_refused_at_its_first_byte() {
    let no_batch: [&[u8]; 14] = [
        b"\x90",
        b"\x91\x01",
        b"\x91\x90",
        b"\xdc\x00\x01\x05",
        b"\xdd\x00\x00\x00\x00",
        b"\x05",
        b"\xc0",
        b"\xc3",
        b"\xa5hello",
        b"\xc4\x02\x92\x90",
        b"\xcb\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xd4\x01\x02",
        b"\xe0",
        b"\xcf\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    let mut source = source();
    for bytes in no_batch {
        refused(&mut source, bytes, (WireErrorKind::NotABatch, 0), "no batch");
    }
    refused(&mut source, b"\xc1", (WireErrorKind::ReservedMarker, 0), "reserved");
    refused(&mut source, b"", (WireErrorKind::Truncated, 0), "empty");
    refused(&mut source, b"\xcd\x01", (WireErrorKind::Truncated, 0), "a scalar cut short");
    refused(&mut source, b"\x80", (WireErrorKind::BadTimestamp, 0), "an empty map");
}

#[test]
fn the_reserved_marker_refuses_the_payload_wherever_it_stands() {
    let mut source = source();
    for place in places() {
        let at = place.before.len();
        refused(&mut source, &place.put(b"\xc1"), (WireErrorKind::ReservedMarker, at), &place.name);
        let nested = place.put(b"\x93\x01\x81\xa1k\xc1\x02");
        refused(&mut source, &nested, (WireErrorKind::ReservedMarker, at + 5), &place.name);
    }
}

/// Headers that declare four thousand million of something, or 65,535.
const LENGTHS: [&[u8]; 10] = [
    b"\xc6\xee\x6b\x28\x00",
    b"\xdb\xee\x6b\x28\x00",
    b"\xdd\xee\x6b\x28\x00",
    b"\xdf\xee\x6b\x28\x00",
    b"\xc9\xee\x6b\x28\x00\x01",
    b"\xc5\xff\xff",
    b"\xda\xff\xff",
    b"\xdc\xff\xff",
    b"\xde\xff\xff",
    b"\xc8\xff\xff\x01",
];

#[test]
fn a_declared_length_beyond_the_payload_is_refused_at_once_wherever_it_stands() {
    let mut source = source();
    for place in places() {
        let at = place.before.len();
        for header in LENGTHS {
            refused(&mut source, &place.put(header), (WireErrorKind::Truncated, at), &place.name);
        }
    }
    for header in LENGTHS {
        refused(&mut source, header, (WireErrorKind::Truncated, 0), "as the batch");
    }
}

/// A declared length just beyond the bytes there are, as far as one byte tells.
#[test]
fn a_length_one_too_long_is_refused_and_the_exact_one_accepted() {
    let mut source = source();
    let list = |count: u32| {
        let mut bytes = b"\x92\x01\xdd".to_vec();
        bytes.extend(count.to_be_bytes());
        bytes.extend([0xc0; 1000]);
        bytes
    };
    let seen = accepted(&mut source, &list(1000), "exact");
    assert_eq!(seen.verdicts.len(), 1000);
    refused(&mut source, &list(1001), (WireErrorKind::Truncated, 2), "one too many");
    refused(&mut source, &list(999), (WireErrorKind::TrailingBytes, 1006), "one too few");
    refused(&mut source, &list(u32::MAX), (WireErrorKind::Truncated, 2), "far too many");
}

/// Containers one in another, and the offset of each.
fn nest(containers: usize, wrap: impl Fn(usize) -> (&'static [u8], &'static [u8])) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    for level in 0..containers {
        offsets.push(bytes.len());
        bytes.extend(wrap(level).0);
    }
    bytes.push(0xc0);
    (0..containers).rev().for_each(|level| bytes.extend(wrap(level).1));
    (bytes, offsets)
}

/// Each container: what comes before its content, and behind.
type Shape = fn(usize) -> (&'static [u8], &'static [u8]);
const SHAPES: [(&str, Shape); 6] = [
    ("arrays", |_| (b"\x91", b"")),
    ("wide arrays", |_| (b"\xdd\0\0\0\x02\x05", b"")),
    ("map values", |_| (b"\x82\xa1k\x01\xa1l", b"")),
    ("map keys", |_| (b"\x81", b"\x05")),
    ("mixed", |level| if level % 2 == 0 { (b"\x93\x01", b"\xa1z") } else { (b"\xde\0\x01\xa1k", b"") }),
    ("mixed keys", |level| if level % 3 == 0 { (b"\x81", b"\xc3") } else { (b"\xdc\0\x02", b"\xa1z") }),
];

#[test]
fn depth_64_is_accepted_and_65_refused_wherever_a_value_may_stand() {
    let mut source = source();
    for place in places() {
        for (name, shape) in SHAPES {
            check_depth(&mut source, &place, name, shape);
        }
        // A run of integers long enough for a kernel, and an empty container, one level too deep.
        for last in [&b"\x9a\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"[..], b"\x90", b"\x80"] {
            let mut value = vec![0x91; 64 - place.depth];
            value.extend(last);
            if place.any_type {
                accepted(&mut source, &place.put(&value), &place.name);
            }
            value.insert(0, 0x91);
            let at = place.before.len() + value.len() - last.len();
            refused(&mut source, &place.put(&value), (WireErrorKind::TooDeep, at), &place.name);
        }
    }
}

fn check_depth(source: &mut crate::support::source::Source, place: &Place, name: &str, shape: Shape) {
    let what = format!("{name} in {}", place.name);
    let most = 65 - place.depth;
    let (value, _) = nest(most, shape);
    if place.any_type {
        accepted(source, &place.put(&value), &what);
    }
    for more in [1, 2, 1000] {
        let (value, offsets) = nest(most + more, shape);
        let at = place.before.len() + offsets[most];
        refused(source, &place.put(&value), (WireErrorKind::TooDeep, at), &what);
    }
}

#[test]
fn a_million_open_containers_are_refused_without_stack_or_memory() {
    let mut source = source();
    let mut bytes = b"\x92\x01\x91".to_vec();
    bytes.extend(vec![0x91; 1_000_000]);
    refused(&mut source, &bytes, (WireErrorKind::TooDeep, 2 + 63), "arrays");
    let mut bytes = b"\x92\x01\x91".to_vec();
    bytes.extend(vec![0x81; 1_000_000]);
    refused(&mut source, &bytes, (WireErrorKind::TooDeep, 2 + 63), "maps");
}

/// Payloads that use every field and every width.
fn rich() -> [Vec<u8>; 4] {
    let full = store(&[7, u64::MAX, 1 << 40], Some(3), 1..=12)
        .set("block_hashes", list![7, u64::MAX, Value::Binary(vec![0xab; 32])])
        .set("parent_block_hash", -3)
        .set("token_ids", list![1, 200, 60_000, 4_000_000_000_u32, 5, 6, 7, 8, 9, 10, 11, 12])
        .set("lora_id", 1)
        .set("medium", "GPU")
        .set("lora_name", "a name of more than thirty-one bytes, as str 8")
        .set(
            "extra_keys",
            list![list!["salt", list!["image", -5]], Value::Nil, list![Value::Binary(vec![1])]],
        )
        .set("group_idx", 0)
        .set("kv_cache_spec_kind", "full_attention")
        .set("kv_cache_spec_sliding_window", Value::Nil)
        .set("locality", "LOCAL")
        .set("session_id", "s")
        .set("cache_salt", "tenant")
        .set("lookahead_token_ids", list![list![1, 2]])
        .set("new", Value::Ext(5, vec![1; 70]))
        .set("float", list![1.5_f32, 2.5_f64, true]);
    let tuple = list![
        "BlockStored",
        list![1, -1],
        Value::Nil,
        list![list![1, 2], list![2, 3], list![3, 4], list![4, 5]],
        4,
        Value::Nil,
        "CPU",
        Value::Map(vec![(Value::from("cache_salt"), Value::from("x"))]),
        Value::Nil,
        list![Value::Nil],
        3,
        "mamba",
        Value::Nil
    ];
    let long = store(&[1], None, 1..=4000).set("block_size", 4000);
    let map = Value::Map(vec![
        (Value::from("events"), list![Value::from(remove(&[5])), tuple.clone()]),
        (Value::from("dp_rank"), Value::from(70_000)),
        (Value::from("ts"), Value::from(1_739_145_600_000_u64)),
    ]);
    [
        payload(
            [Value::from(full), Value::from(Event::new("AllBlocksCleared")), Value::from(remove(&[1]))],
            2,
        ),
        payload([tuple, list!["BlockRemoved", list![1], "GPU", 0], list!["Tomorrow", list![1]]], Value::Nil),
        payload([long, store(&[2], Some(1), 1..=4)], -1),
        pack(&map),
    ]
}

#[test]
fn a_payload_cut_at_any_byte_is_truncated_no_further_than_its_end() {
    let mut source = source();
    for payload in rich() {
        accepted(&mut source, &payload, "whole");
        for length in 0..payload.len() {
            let expected = with_refusal(source.ingest.counters(), WireErrorKind::Truncated, length);
            let error = source.try_apply(&payload[..length]).expect_err("cut short");
            assert_eq!(error.kind(), WireErrorKind::Truncated, "cut at {length}");
            assert!(error.offset() as usize <= length, "cut at {length}: {error}");
            assert_eq!(counts(source.ingest.counters()), expected);
        }
    }
}

/// A cut value is named by its marker, one that is missing altogether by the payload's end.
#[test]
fn the_offset_of_a_cut_names_the_value_cut_short() {
    let mut source = source();
    let cut: [(&[u8], usize); 8] = [
        (b"\x93\x01\x91\x97\xabBlockSto", 4),
        (b"\x93\x01\x91\x93\xacBlockRemoved\x91", 17),
        (b"\x93\x01\x91\x92\xacBlockRemoved\x91\xcf\x01\x02", 18),
        (b"\x93\x01\x91\x92\xacBlockRemoved\x92\xc4\x02\x01", 18),
        (b"\x93\x01\x91\x92\xacBlockRemoved\xdc\x00", 17),
        (b"\x93\x01\x91\x81\xa4type\xac", 9),
        (b"\x92\xcb\x01\x02", 1),
        (b"\x93\x01\x90\xce\x01", 3),
    ];
    for (bytes, offset) in cut {
        refused(&mut source, bytes, (WireErrorKind::Truncated, offset), "cut");
    }
}

#[test]
fn errors_say_where() {
    let error = source().try_apply(b"\x92\x01\xc0").expect_err("no events");
    assert_eq!(error.to_string(), "the event list is missing or not an array at byte 2");
    assert_eq!(error.kind().label(), "bad_events");
}
