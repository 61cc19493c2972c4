//! Event scope: one event of a sound payload breaks a rule. It is counted, with field and offset; its neighbours count.

use kvtap::Verdict;
use kvtap::wire::{EventErrorKind, Field};
use rmpv::Value;

use crate::accepted;
use crate::support::source::{Counts, Event, Source, list, pack, remove, store};

/// Which event a line spoils.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Stored,
    Removed,
    Cleared,
}

/// One way to spoil a field: the value's bytes, where in it the fault is, and what is said of it.
type Line = (Of, Field, &'static [u8], usize, EventErrorKind);

/// One line of a table: event, field, bytes of its value, offset of the fault in them, error.
macro_rules! lines {
    ($name:ident: $($of:ident.$field:ident = $bytes:literal @ $offset:literal => $kind:ident;)*) => {
        const $name: &[Line] =
            &[$((Of::$of, Field::$field, $bytes, $offset, EventErrorKind::$kind)),*];
    };
}

lines! { STAGE_ONE:
    Stored.Ownership = b"\x01" @ 0 => WrongType;
    Stored.Ownership = b"\xc2" @ 0 => WrongType;
    Stored.Ownership = b"\x91\xa1x" @ 0 => WrongType;
    Stored.Ownership = b"\xa2\xc3\x28" @ 0 => BadUtf8;
    Stored.Locality = b"\xcb\0\0\0\0\0\0\0\0" @ 0 => WrongType;
    Stored.Locality = b"\x80" @ 0 => WrongType;
    Stored.Locality = b"\xc4\x01\xff" @ 0 => BadUtf8;
    Stored.Medium = b"\x05" @ 0 => WrongType;
    Stored.Medium = b"\x90" @ 0 => WrongType;
    Stored.Medium = b"\xd4\x01\x02" @ 0 => WrongType;
    Stored.Medium = b"\xd9\x03GP\x80" @ 0 => BadUtf8;
    Stored.GroupIdx = b"\xa10" @ 0 => WrongType;
    Stored.GroupIdx = b"\xca\0\0\0\0" @ 0 => WrongType;
    Stored.GroupIdx = b"\xc3" @ 0 => WrongType;
    Stored.GroupIdx = b"\xff" @ 0 => OutOfRange;
    Stored.GroupIdx = b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff" @ 0 => OutOfRange;
    Stored.GroupIdx = b"\xcf\0\0\0\x01\0\0\0\0" @ 0 => OutOfRange;
    Stored.SpecKind = b"\x00" @ 0 => WrongType;
    Stored.SpecKind = b"\x91\xa5mamba" @ 0 => WrongType;
    Stored.SpecKind = b"\xa4mam\xf0" @ 0 => BadUtf8;
    Stored.SlidingWindow = b"\xa4none" @ 0 => WrongType;
    Stored.SlidingWindow = b"\xd0\x80" @ 0 => OutOfRange;
    Stored.SlidingWindow = b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff" @ 0 => OutOfRange;
    Removed.Ownership = b"\x01" @ 0 => WrongType;
    Removed.Ownership = b"\xa1\xff" @ 0 => BadUtf8;
    Removed.Locality = b"\x92\x01\x02" @ 0 => WrongType;
    Removed.Medium = b"\x00" @ 0 => WrongType;
    Removed.Medium = b"\xa1\xfe" @ 0 => BadUtf8;
    Removed.GroupIdx = b"\xa10" @ 0 => WrongType;
    Removed.GroupIdx = b"\xe0" @ 0 => OutOfRange;
    Removed.SpecKind = b"\xc3" @ 0 => WrongType;
    Removed.SlidingWindow = b"\x81\x01\x02" @ 0 => WrongType;
    Cleared.Ownership = b"\x07" @ 0 => WrongType;
    Cleared.Ownership = b"\xa5kvcr\x80" @ 0 => BadUtf8;
}

lines! { STAGE_TWO:
    Stored.BlockHashes = b"\xa1x" @ 0 => WrongType;
    Stored.BlockHashes = b"\x05" @ 0 => WrongType;
    Stored.BlockHashes = b"\x81\x01\x02" @ 0 => WrongType;
    Stored.BlockHashes = b"\xc4\x01\x01" @ 0 => WrongType;
    Stored.BlockHashes = b"\x91\xa1x" @ 1 => WrongType;
    Stored.BlockHashes = b"\x91\xc0" @ 1 => WrongType;
    Stored.BlockHashes = b"\x92\x07\x91\x01" @ 2 => WrongType;
    Stored.BlockHashes = b"\x92\xcd\x01\x02\xc3" @ 4 => WrongType;
    Stored.BlockHashes = b"\x91\xcb\0\0\0\0\0\0\0\0" @ 1 => WrongType;
    Stored.BlockHashes = b"\x91\xc4\0" @ 1 => EmptyDigest;
    Stored.BlockHashes = b"\x93\x07\xc4\x01\x09\xc5\0\0" @ 5 => EmptyDigest;
    Stored.ParentBlockHash = b"\xa4root" @ 0 => WrongType;
    Stored.ParentBlockHash = b"\x91\x07" @ 0 => WrongType;
    Stored.ParentBlockHash = b"\xca\0\0\0\0" @ 0 => WrongType;
    Stored.ParentBlockHash = b"\xc2" @ 0 => WrongType;
    Stored.ParentBlockHash = b"\xc4\0" @ 0 => EmptyDigest;
    Stored.TokenIds = b"\xa41234" @ 0 => WrongType;
    Stored.TokenIds = b"\xc4\x04\x01\x02\x03\x04" @ 0 => WrongType;
    Stored.TokenIds = b"\x04" @ 0 => WrongType;
    Stored.TokenIds = b"\x82\x01\x02\x03\x04" @ 0 => WrongType;
    Stored.TokenIds = b"\x91\xa1x" @ 1 => WrongType;
    Stored.TokenIds = b"\x94\x01\x02\xa1x\x04" @ 3 => WrongType;
    Stored.TokenIds = b"\x92\x01\xc0" @ 2 => WrongType;
    Stored.TokenIds = b"\x92\xcc\x80\xca\0\0\0\0" @ 3 => WrongType;
    Stored.TokenIds = b"\x94\x01\x02\xff\x04" @ 3 => OutOfRange;
    Stored.TokenIds = b"\x91\xcf\0\0\0\x01\0\0\0\0" @ 1 => OutOfRange;
    Stored.TokenIds = b"\x92\x01\xd3\x80\0\0\0\0\0\0\0" @ 2 => OutOfRange;
    Stored.TokenIds = b"\xdc\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xa1x" @ 22 => WrongType;
    Stored.TokenIds = b"\xdc\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xe0" @ 22 => OutOfRange;
    Stored.TokenIds = b"\x92\x92\x01\x02\x92\x03\x04" @ 4 => BrokenPairs;
    Stored.TokenIds = b"\x93\x92\x01\x02\x92\x02\x03\x92\x04\x05" @ 7 => BrokenPairs;
    Stored.TokenIds = b"\x92\x92\x01\x02\x03" @ 4 => WrongType;
    Stored.TokenIds = b"\x92\x01\x92\x01\x02" @ 2 => WrongType;
    Stored.TokenIds = b"\x91\x91\x01" @ 1 => WrongType;
    Stored.TokenIds = b"\x91\x93\x01\x02\x03" @ 1 => WrongType;
    Stored.TokenIds = b"\x92\x92\x01\x02\x90" @ 4 => WrongType;
    Stored.TokenIds = b"\x91\x92\x01\xa1x" @ 3 => WrongType;
    Stored.TokenIds = b"\x91\x92\x01\xff" @ 3 => OutOfRange;
    Stored.TokenIds = b"\x91\x92\xcf\0\0\0\x01\0\0\0\0\x02" @ 2 => OutOfRange;
    Stored.BlockSize = b"\xa14" @ 0 => WrongType;
    Stored.BlockSize = b"\xca\x40\x80\0\0" @ 0 => WrongType;
    Stored.BlockSize = b"\x91\x04" @ 0 => WrongType;
    Stored.BlockSize = b"\xfc" @ 0 => OutOfRange;
    Stored.BlockSize = b"\xcf\0\0\0\x01\0\0\0\x04" @ 0 => OutOfRange;
    Stored.LoraName = b"\x07" @ 0 => WrongType;
    Stored.LoraName = b"\x91\xa1x" @ 0 => WrongType;
    Stored.LoraName = b"\xa2a\xff" @ 0 => BadUtf8;
    Stored.CacheSalt = b"\x00" @ 0 => WrongType;
    Stored.CacheSalt = b"\x80" @ 0 => WrongType;
    Stored.CacheSalt = b"\xa1\x80" @ 0 => BadUtf8;
    Stored.SessionId = b"\xcc\x80" @ 0 => WrongType;
    Stored.SessionId = b"\xa3\xed\xa0\x80" @ 0 => BadUtf8;
    Stored.ExtraKeys = b"\xa1x" @ 0 => WrongType;
    Stored.ExtraKeys = b"\x80" @ 0 => WrongType;
    Stored.ExtraKeys = b"\x07" @ 0 => WrongType;
    Stored.ExtraKeys = b"\x91\xa1x" @ 1 => WrongType;
    Stored.ExtraKeys = b"\x92\xc0\x07" @ 2 => WrongType;
    Stored.ExtraKeys = b"\x92\x90\x80" @ 2 => WrongType;
    Stored.ExtraKeys = b"\x91\x91\xa1\xff" @ 2 => BadUtf8;
    Stored.ExtraKeys = b"\x92\xc0\x92\x07\x92\xa1\xff\x01" @ 5 => BadUtf8;
    Stored.BlockMmInfos = b"\x07" @ 0 => WrongType;
    Stored.BlockMmInfos = b"\xa1x" @ 0 => WrongType;
    Stored.BlockMmInfos = b"\x80" @ 0 => WrongType;
    Stored.BlockMmInfos = b"\x92\xc0\x07" @ 2 => WrongType;
    Stored.BlockMmInfos = b"\x91\xa1x" @ 1 => WrongType;
    Stored.BlockMmInfos = b"\x91\x81\xaamm_objects\x07" @ 13 => WrongType;
    Stored.BlockMmInfos = b"\x91\x91\xa1x" @ 2 => WrongType;
    Stored.BlockMmInfos = b"\x91\x91\x91\x07" @ 3 => WrongType;
    Stored.BlockMmInfos = b"\x91\x91\x91\x80" @ 3 => WrongType;
    Stored.BlockMmInfos = b"\x91\x91\x91\x81\xa7mm_hash\xa1x" @ 3 => WrongType;
    Stored.BlockMmInfos = b"\x91\x91\x91\x91\xff" @ 3 => WrongType;
    Removed.BlockHashes = b"\xa1x" @ 0 => WrongType;
    Removed.BlockHashes = b"\x07" @ 0 => WrongType;
    Removed.BlockHashes = b"\x91\xc2" @ 1 => WrongType;
    Removed.BlockHashes = b"\x92\x07\xa1x" @ 2 => WrongType;
    Removed.BlockHashes = b"\x92\x07\xc4\0" @ 2 => EmptyDigest;
}

/// Values that fill the slots of a stored and of a removed tuple.
fn tuple_of(of: Of) -> Vec<Vec<u8>> {
    let values = match of {
        Of::Stored => {
            list![
                "BlockStored",
                list![7],
                Value::Nil,
                list![1, 2, 3, 4],
                4,
                Value::Nil,
                "GPU",
                Value::Nil,
                Value::Nil
            ]
        }
        Of::Removed => list!["BlockRemoved", list![7], "GPU"],
        Of::Cleared => list!["AllBlocksCleared"],
    };
    values.as_array().expect("a list").iter().map(pack).collect()
}

/// The slot of a field in a tuple, if the layout has one that is known by its position alone.
fn slot_of(of: Of, field: Field) -> Option<usize> {
    match (of, field) {
        (Of::Stored | Of::Removed, Field::BlockHashes) => Some(1),
        (Of::Stored, Field::ParentBlockHash) | (Of::Removed, Field::Medium) => Some(2),
        (Of::Stored, Field::TokenIds) => Some(3),
        (Of::Stored, Field::BlockSize) => Some(4),
        (Of::Stored, Field::Medium) => Some(6),
        (Of::Stored, Field::LoraName) => Some(7),
        (Of::Stored, Field::ExtraKeys) => Some(8),
        _ => None,
    }
}

/// A map event with one field spoilt; gives the offset of the field's value.
fn spoilt_map(of: Of, field: Field, bytes: &[u8], more: &[(&str, &str)]) -> (Vec<u8>, usize) {
    let event = match of {
        Of::Stored => store(&[7], None, 1..=4),
        Of::Removed => remove(&[7]),
        Of::Cleared => Event::new("AllBlocksCleared"),
    };
    let event = more.iter().fold(event, |event, &(key, value)| event.set(key, value));
    let event = Value::from(event.without(field.label()).set(field.label(), "(here)"));
    let packed = pack(&event);
    let at = packed.windows(7).position(|window| window == b"\xa6(here)").expect("the field");
    ([&packed[..at], bytes, &packed[at + 7..]].concat(), at)
}

fn spoilt_tuple(of: Of, field: Field, bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let slot = slot_of(of, field)?;
    let mut values = tuple_of(of);
    values[slot] = bytes.to_vec();
    let at = 1 + values[..slot].concat().len();
    let header = 0x90 | u8::try_from(values.len()).expect("few");
    Some(([vec![header], values.concat()].concat(), at))
}

/// What must be said of an event: kind, field, offset in the event.
type Said = (EventErrorKind, Field, usize);

/// Tries one malformed event alone, first, between and behind sound ones.
fn check(event: &[u8], said: Said, what: &str) {
    let first = pack(&store(&[101], None, 1..=4).into());
    let last = pack(&store(&[102], Some(101), 5..=8).into());
    for (before, behind) in [
        (vec![], vec![]),
        (vec![], vec![&first, &last]),
        (vec![&first], vec![&last]),
        (vec![&first, &last], vec![]),
    ] {
        let what = format!("{what}, after {} and before {}: {event:02x?}", before.len(), behind.len());
        let mut source = Source::new();
        let sound = before.len() + behind.len();
        let count = u8::try_from(sound).expect("few") + 1;
        let head =
            [&[0x93, 0x01, 0x90 | count][..], &before.iter().copied().flatten().copied().collect::<Vec<_>>()]
                .concat();
        let tail = behind.iter().copied().flatten().copied().collect::<Vec<_>>();
        let payload = [&head[..], event, &tail, &[0x00]].concat();
        let seen = accepted(&mut source, &payload, &what);
        let error = seen.error(before.len());
        let offset = error.offset() as usize - head.len();
        assert_eq!((error.kind(), error.field(), offset), said, "{what}");
        let placed = sound as u64;
        let counts = Counts { stored: placed, placed, malformed: 1, ..Counts::default() };
        assert_eq!(source.counts(), counts, "{what}");
        let depth = u32::try_from(sound).expect("few");
        assert_eq!(source.depths(1..=8), [depth; 4], "{what}: the neighbours count");
        assert_eq!(source.ingest.entries(), sound, "{what}");
    }
}

#[test]
fn a_spoilt_field_costs_its_event_and_is_named_with_its_offset() {
    for &(of, field, bytes, offset, kind) in STAGE_ONE.iter().chain(STAGE_TWO) {
        let what = format!("{of:?}.{field:?}");
        let (event, at) = spoilt_map(of, field, bytes, &[]);
        check(&event, (kind, field, at + offset), &what);
        if let Some((event, at)) = spoilt_tuple(of, field, bytes) {
            check(&event, (kind, field, at + offset), &what);
        }
    }
}

/// What is filtered by steps 1 to 4 is only looked at as far as they need.
#[test]
fn a_filtered_event_is_not_looked_into_further() {
    let filters =
        [("ownership", "kvcr"), ("locality", "REMOTE"), ("medium", "tape"), ("kv_cache_spec_kind", "mamba")];
    for &(of, field, bytes, ..) in STAGE_TWO {
        for filter in filters {
            let (event, _) = spoilt_map(of, field, bytes, &[filter]);
            let mut source = Source::new();
            let payload = [&[0x93, 0x01, 0x91][..], &event, &[0x00]].concat();
            let seen = accepted(&mut source, &payload, "filtered");
            assert!(
                matches!(seen.verdicts[..], [Verdict::Filter(_)]),
                "{of:?}.{field:?}: {:?}",
                seen.verdicts
            );
            assert_eq!(source.counts().malformed, 0);
        }
    }
    for &(of, field, bytes, offset, kind) in STAGE_ONE {
        let filter = if field == Field::Ownership { ("locality", "REMOTE") } else { ("ownership", "kvcr") };
        if of != Of::Cleared {
            let (event, at) = spoilt_map(of, field, bytes, &[filter]);
            check(&event, (kind, field, at + offset), "the gate is read whole");
        }
    }
}

#[test]
fn a_missing_field_is_named_with_the_offset_of_its_event() {
    let map = |event: Event| pack(&event.into());
    let stored = || store(&[7], None, 1..=4);
    let lines = [
        (map(stored().without("block_hashes")), Field::BlockHashes),
        (map(stored().set("block_hashes", Value::Nil)), Field::BlockHashes),
        (map(stored().without("token_ids")), Field::TokenIds),
        (map(stored().without("block_size")), Field::BlockSize),
        (map(stored().set("block_size", Value::Nil)), Field::BlockSize),
        (map(remove(&[7]).without("block_hashes")), Field::BlockHashes),
        (map(remove(&[7]).set("block_hashes", Value::Nil)), Field::BlockHashes),
        (map(stored().without("type")), Field::Type),
        (map(stored().set("type", Value::Nil)), Field::Type),
        (map(stored().set("type", 1)), Field::Type),
        (map(stored().set("type", list!["BlockStored"])), Field::Type),
        (pack(&list!["BlockStored", Value::Nil, Value::Nil, list![1, 2, 3, 4], 4]), Field::BlockHashes),
        (pack(&list!["BlockStored", list![7], Value::Nil, list![1, 2, 3, 4], Value::Nil]), Field::BlockSize),
        (pack(&list!["BlockRemoved", Value::Nil, "GPU"]), Field::BlockHashes),
        (pack(&list![Value::Nil, list![7]]), Field::Type),
        (pack(&list![list!["BlockRemoved", list![7]]]), Field::Type),
        (b"\x90".to_vec(), Field::Type),
        (b"\x80".to_vec(), Field::Type),
        (b"\x81\xa4TYPE\xacBlockRemoved".to_vec(), Field::Type),
    ];
    for (event, field) in lines {
        check(&event, (EventErrorKind::Missing, field, 0), "missing");
    }
}

#[test]
fn a_tuple_without_its_required_slots_is_too_short() {
    for event in [
        pack(&list!["BlockStored", list![7], Value::Nil, list![1, 2, 3, 4]]),
        pack(&list!["BlockStored"]),
        pack(&list!["BlockRemoved"]),
    ] {
        check(&event, (EventErrorKind::TooShort, Field::Type, 0), "too short");
    }
}

#[test]
fn what_is_neither_array_nor_map_is_no_event() {
    let values: [&[u8]; 8] = [
        b"\xc0",
        b"\x07",
        b"\xc3",
        b"\xb0AllBlocksCleared",
        b"\xc4\x10AllBlocksCleared",
        b"\xcb\0\0\0\0\0\0\0\0",
        b"\xc7\x03\x01abc",
        b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for bytes in values {
        check(bytes, (EventErrorKind::NotAnEvent, Field::Type, 0), "no event");
    }
}

#[test]
fn a_tag_that_is_not_utf8_is_malformed_and_no_unknown_name() {
    let tuple = b"\x92\xa3Bl\xff\x01";
    check(tuple, (EventErrorKind::BadUtf8, Field::Type, 1), "tuple");
    let map = b"\x82\xa1x\x01\xa4type\xa1\x80";
    check(map, (EventErrorKind::BadUtf8, Field::Type, 9), "map");
}

/// What is tolerated although it looks wrong: the event is placed.
#[test]
fn odd_but_sound_events_are_placed() {
    let nil = || Value::Nil;
    let stored = || store(&[7], None, 1..=4);
    let events = [
        stored().set("medium", Value::Binary(b"gpu".to_vec())),
        stored().set("lora_name", "").set("cache_salt", ""),
        stored().set("lora_id", list![1]).set("lookahead_token_ids", "no list"),
        stored().set("extra_keys", list![list![Value::Map(vec![]), 1, nil(), list![], list![1, "x"]]]),
        stored().set("block_mm_infos", list![nil(), Value::Map(vec![]), list![], list![list![list![9]]]]),
        stored().set("group_idx", nil()).set("ownership", nil()).set("medium", nil()),
        stored().set("parent_block_hash", nil()).without("parent_block_hash"),
    ];
    for event in events {
        let mut source = Source::new();
        let seen = source.apply([event]);
        assert_eq!(seen.verdicts, [Verdict::Place]);
        assert_eq!(source.ingest.entries(), 1);
    }
}

#[test]
fn errors_say_which_field_and_where() {
    let mut source = Source::new();
    let seen = source.apply([store(&[7], None, 1..=4).set("medium", 5)]);
    let error = seen.error(0);
    let expected = format!("medium has the wrong type at byte {}", error.offset());
    assert_eq!((error.to_string(), error.kind().label()), (expected, "wrong_type"));
}
