//! What one payload may cost: oddities without number, payloads beyond the limit, wrong block sizes of many kinds;
//! and what one publisher may.

mod support;

#[path = "bounds/hostile.rs"]
mod hostile;

use kvtap::wire::{Decoder, Event, WireErrorKind};
use kvtap::{Config, DigestHalf, Engine, Ingest, Prompt, SourceConfig};

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

/// One payload of `events` stores of one block each, every one the child of the one before.
fn long_chain(events: u32) -> Vec<u8> {
    let mut payload = b"\x93\x01\xdd".to_vec();
    payload.extend(events.to_be_bytes());
    for event in 0..events {
        payload.extend(b"\x95\xabBlockStored\x91\xce");
        payload.extend((event + 1).to_be_bytes());
        if event == 0 {
            payload.push(0xc0);
        } else {
            payload.push(0xce);
            payload.extend(event.to_be_bytes());
        }
        payload.push(0x94);
        for slot in 0..4 {
            payload.push(0xce);
            payload.extend((event * 4 + slot).to_be_bytes());
        }
        payload.push(4);
    }
    payload.push(0);
    payload
}

#[test]
fn a_payload_of_more_events_than_are_looked_at_at_a_time_is_applied_whole() {
    let events = 5_000;
    let engine = Engine::new(Config::default()).expect("a good configuration");
    let mut source = SourceConfig::new(0);
    source.block_size = 4;
    let mut ingest = engine.ingest(source).expect("a good source");
    let payload = long_chain(events);
    ingest.apply(&payload).expect("sound");
    ingest.flush();
    let tokens: Vec<u32> = (0..events * 4).collect();
    let mut matches = Vec::new();
    engine.reader().find_matches(&Prompt::new(&tokens, 4), &mut matches);
    assert_eq!(matches.iter().map(|found| found.depths).collect::<Vec<_>>(), [[events; 4]]);

    // The other way to look at events gives as many; cut short, the payload is refused before any of them.
    let mut decoder = Decoder::new(DigestHalf::Low);
    let mut batch = decoder.read(&payload).expect("sound");
    let mut stored = 0;
    while let Some(event) = batch.next_event() {
        stored += u32::from(matches!(event, Event::Stored(_)));
    }
    assert_eq!(stored, events);
    ingest.apply(&payload[..payload.len() - 2]).expect_err("cut short");
    assert_eq!(ingest.counters().stored_events, u64::from(events));
}
