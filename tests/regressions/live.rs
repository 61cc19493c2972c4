//! Cases about live sources, as far as they show without a socket: the shapes of frames, and a source that starts over.

use kvtap::{Message, ReplayReply};

use crate::support::source::{Source, payload, remove, store};

const SEQUENCE: [u8; 8] = 41_u64.to_be_bytes();

/// B32, B54
#[test]
fn replay_replies_of_three_and_four_frames_say_the_same() {
    let batch = payload([store(&[1], None, 1..=4)], 0);
    let shapes: [&[&[u8]]; 4] = [
        &[b"", &SEQUENCE, &batch],
        &[b"", b"kv@p@m", &SEQUENCE, &batch],
        &[&SEQUENCE, &batch],
        &[b"kv@p@m", &SEQUENCE, &batch],
    ];
    for frames in shapes {
        let reply = ReplayReply::read(frames).expect("a reply");
        let ReplayReply::Batch(message) = reply else { panic!("{reply:?}") };
        assert_eq!((message.sequence, message.payload), (41, &batch[..]));
        let mut source = Source::new();
        source.try_apply(message.payload).expect("a sound payload");
        assert_eq!(source.depths(1..=4), [1; 4]);
    }
}

/// B32, B37: what ends a replay has no sequence that anyone could take for a cursor.
#[test]
fn the_end_of_a_replay_has_no_sequence() {
    let end = [0xff; 8];
    let shapes: [&[&[u8]]; 3] = [&[b"", &end, b""], &[b"", b"", &end, b""], &[&end, b""]];
    for frames in shapes {
        assert_eq!(ReplayReply::read(frames), Ok(ReplayReply::End));
    }
    Message::read(&[&b"topic"[..], &end, b"\x92\x01\x90"]).expect_err("no live batch has it either");
}

/// B65
#[test]
fn topics_are_whole_so_that_a_prefix_can_be_told_from_a_match() {
    for topic in ["kv-events", "kv-events-2", "kv", ""] {
        let frames = [topic.as_bytes(), &SEQUENCE, b"\x92\x01\x90"];
        assert_eq!(Message::read(&frames).expect("a message").topic, topic.as_bytes());
    }
}

/// B35: what a restart amounts to once it is recognised.
#[test]
fn a_source_that_starts_over_keeps_nothing_of_its_first_life() {
    let mut source = Source::new();
    source.apply([store(&[1, 2], None, 1..=8)]);
    assert_eq!(source.depths(1..=8), [2; 4]);
    source.ingest = source.engine.ingest(source.config.clone()).expect("a good source");
    assert_eq!(source.matches(1..=8), []);
    source.apply([store(&[20], None, 21..=24), remove(&[1])]);
    assert_eq!(source.depths(21..=24), [1; 4]);
    assert_eq!(source.counts().filtered, [("unknown_block", 1)]);
}

/// B38: a batch after a loss is applied; what it builds on is missing, and counted.
#[test]
fn batches_after_a_loss_are_applied() {
    let mut source = Source::new();
    source.apply([store(&[1], None, 1..=4)]);
    source.apply([store(&[2], Some(1), 5..=8)]);
    // Lost: the store of 3 after 2, and of 4 after 3.
    source.apply([store(&[5], Some(4), 17..=20), store(&[6], Some(2), 9..=12)]);
    assert_eq!(source.depths(1..=12), [3; 4]);
    assert_eq!(source.counts().filtered, [("unknown_parent", 1)]);
}
