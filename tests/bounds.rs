//! What one payload may cost: oddities without number, payloads beyond the limit, wrong block sizes of many kinds.

use kvtap::wire::WireErrorKind;
use kvtap::{Config, Engine, Ingest, SourceConfig};

fn ingest(set: impl FnOnce(&mut SourceConfig)) -> Ingest {
    let mut source = SourceConfig::new(0);
    source.block_size = 4;
    set(&mut source);
    Engine::new(Config::default()).expect("a good configuration").ingest(source).expect("a good source")
}

/// `[1, [["AllBlocksCleared", nil...]], 0]`
fn cleared_with_slots(slots: u32) -> Vec<u8> {
    let mut payload = b"\x93\x01\x91\xdd".to_vec();
    payload.extend((slots + 1).to_be_bytes());
    payload.extend(b"\xb0AllBlocksCleared");
    payload.extend(std::iter::repeat_n(0xc0, slots as usize));
    payload.push(0);
    payload
}

#[test]
fn oddities_without_number_are_counted_but_not_kept() {
    let mut source = ingest(|_| ());
    source.apply(&cleared_with_slots(100_000)).expect("sound");
    assert_eq!(source.counters().cleared_events, 1);
    let counted: u64 = source.drift().map(|(_, count)| count).sum();
    assert_eq!(counted, 100_000);
    assert!(source.drift().count() < 70, "names are bounded");
}

#[test]
fn a_payload_beyond_the_limit_is_refused_and_the_next_one_is_not() {
    let payload = cleared_with_slots(0);
    let mut source = ingest(|source| source.payload_max = u32::try_from(payload.len()).expect("short"));
    let error = source.apply(&cleared_with_slots(1)).expect_err("one byte more");
    assert_eq!((error.kind(), error.offset()), (WireErrorKind::TooLong, 0));
    source.apply(&payload).expect("just as long");
    assert_eq!((source.counters().malformed_batches, source.counters().cleared_events), (1, 1));
}

#[test]
fn the_most_frequent_wrong_block_size_is_reported() {
    let mut source = ingest(|_| ());
    let stored = |size: u8| {
        let tokens: Vec<u8> = (0..size).collect();
        [&b"\x93\x01\x91\x95\xabBlockStored\x91"[..], &[size], b"\xc0\xdc\x00", &[size], &tokens, &[size, 0]]
            .concat()
    };
    for size in [32, 32, 32, 64, 32, 7] {
        source.apply(&stored(size)).expect("sound");
    }
    let seen: Vec<_> = source.mismatched_block_sizes().map(|(_, size, events)| (size, events)).collect();
    assert_eq!(seen, [(32, 4)]);
}
