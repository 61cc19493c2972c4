//! Message frames and replay replies: every case of `frames.json`, and frames from a hostile peer.

mod support;

use kvtap::wire::WireErrorKind;
use kvtap::{FrameError, Message, ReplayReply};
use serde_json::Value as Json;
use support::source::Source;

const FF8: [u8; 8] = [0xff; 8];

/// The cases of one list: note, frames, what is expected of them.
fn cases(list: &str) -> Vec<(String, Vec<Vec<u8>>, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/frames.json");
    let text = std::fs::read_to_string(path).expect("frames.json");
    let cases: Json = serde_json::from_str(&text).expect("JSON");
    let texts = |value: &Json| value.as_str().expect("a string").to_owned();
    let cases = cases[list].as_array().expect("a list").iter();
    let cases: Vec<_> = cases
        .map(|case| {
            let frames = case["frames"].as_array().expect("frames");
            let frames = frames.iter().map(|frame| bytes(frame.as_str().expect("hex"))).collect();
            (texts(&case["note"]), frames, texts(&case["expect"]))
        })
        .collect();
    assert!(!cases.is_empty());
    cases
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

#[test]
fn every_subscriber_case_reads_as_expected() {
    for (note, frames, expect) in cases("subscriber") {
        let read = Message::read(&frames);
        match expect.as_str() {
            "drop, count, keep the connection" => {
                let expected = match &frames[..] {
                    [_, sequence, _] => FrameError::SequenceLength(sequence.len()),
                    _ => FrameError::FrameCount(frames.len()),
                };
                assert_eq!(read, Err(expected), "{note}");
            }
            "must not become the cursor" => assert_eq!(read, Err(FrameError::ReservedSequence), "{note}"),
            "reject the payload: truncated at 0" => {
                let error = Source::new().try_apply(read.expect(&note).payload).expect_err(&note);
                assert_eq!((error.kind(), error.offset()), (WireErrorKind::Truncated, 0), "{note}");
            }
            // What the sequence then means is not for the frames to say.
            "apply"
            | "apply (the topic is bytes) or filter by subscription"
            | "a gap of 2^56: count it, do not loop over or allocate for it"
            | "gap"
            | "late or duplicate unless its timestamp is newer" => {
                let message = read.expect(&note);
                assert_eq!(message.topic, frames[0], "{note}");
                assert_eq!(message.sequence.to_be_bytes(), frames[1][..], "{note}");
                assert_eq!(message.payload, frames[2], "{note}");
                let seen = Source::with(|config| config.block_size = 4).try_apply(message.payload);
                assert_eq!(seen.expect(&note).verdicts.len(), 1, "{note}");
            }
            other => panic!("{note}: nobody knows what `{other}` means"),
        }
    }
}

#[test]
fn every_replay_case_reads_as_expected() {
    for (note, frames, expect) in cases("replay_reply_after_identity") {
        let read = ReplayReply::read(&frames);
        match expect.as_str() {
            "apply"
            | "apply: three frames with a non-empty first one"
            | "apply; the missing ones are lost" => {
                let Ok(ReplayReply::Batch(message)) = read else { panic!("{note}: {read:?}") };
                let [before @ .., sequence, payload] = &frames[..] else { panic!("{note}") };
                assert_eq!(message.topic, before.last().map_or(&[][..], Vec::as_slice), "{note}");
                assert_eq!(message.sequence.to_be_bytes(), sequence[..], "{note}");
                assert_eq!(message.payload, payload, "{note}");
            }
            "end" => assert_eq!(read, Ok(ReplayReply::End), "{note}"),
            "drop, count" => {
                let expected = match &frames[..] {
                    [_, _, sequence, _] => FrameError::SequenceLength(sequence.len()),
                    _ => FrameError::FrameCount(frames.len()),
                };
                assert_eq!(read, Err(expected), "{note}");
            }
            other => panic!("{note}: nobody knows what `{other}` means"),
        }
    }
}

#[test]
fn the_sequence_is_unsigned_and_big_endian() {
    let read = |sequence: [u8; 8]| Message::read(&[&[][..], &sequence, b"x"]).map(|message| message.sequence);
    assert_eq!(read([0, 0, 0, 0, 0, 0, 1, 2]), Ok(258));
    assert_eq!(read([0x80, 0, 0, 0, 0, 0, 0, 0]), Ok(1 << 63));
    assert_eq!(read([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]), Ok(u64::MAX - 1));
    assert_eq!(read(FF8), Err(FrameError::ReservedSequence));
}

#[test]
fn no_number_of_frames_but_three_is_a_message() {
    for count in (0..100).filter(|&count| count != 3) {
        let frames = vec![vec![0; 8]; count];
        assert_eq!(Message::read(&frames), Err(FrameError::FrameCount(count)));
    }
}

#[test]
fn no_number_of_frames_but_two_to_four_is_a_replay_reply() {
    for count in (0..100).filter(|count| !(2..=4).contains(count)) {
        let frames = vec![Vec::<u8>::new(); count];
        assert_eq!(ReplayReply::read(&frames), Err(FrameError::FrameCount(count)));
    }
}

#[test]
fn a_sequence_of_any_other_length_is_refused_in_every_shape() {
    for length in (0..40).filter(|&length| length != 8) {
        let (sequence, error) = (vec![0xff; length], FrameError::SequenceLength(length));
        assert_eq!(Message::read(&[b"t", &sequence[..], b"x"]), Err(error));
        for payload in [&b""[..], b"x"] {
            assert_eq!(ReplayReply::read(&[&sequence[..], payload]), Err(error));
            assert_eq!(ReplayReply::read(&[b"", &sequence[..], payload]), Err(error));
            assert_eq!(ReplayReply::read(&[b"", &b"t"[..], &sequence, payload]), Err(error));
        }
    }
}

#[test]
fn the_end_is_told_by_its_empty_payload_in_every_shape() {
    for sequence in [FF8, [0; 8], 7_u64.to_be_bytes()] {
        let sequence = &sequence[..];
        assert_eq!(ReplayReply::read(&[sequence, b""]), Ok(ReplayReply::End));
        assert_eq!(ReplayReply::read(&[b"", sequence, b""]), Ok(ReplayReply::End));
        assert_eq!(ReplayReply::read(&[b"", b"", sequence, b""]), Ok(ReplayReply::End));
        assert_eq!(ReplayReply::read(&[&b""[..], b"topic", sequence, b""]), Ok(ReplayReply::End));
    }
}

#[test]
fn a_batch_under_the_end_sequence_is_refused() {
    let refused = Err(FrameError::ReservedSequence);
    assert_eq!(ReplayReply::read(&[&FF8[..], b"x"]), refused);
    assert_eq!(ReplayReply::read(&[b"", &FF8[..], b"x"]), refused);
    assert_eq!(ReplayReply::read(&[b"", b"", &FF8[..], b"x"]), refused);
}

#[test]
fn four_frames_without_the_delimiter_are_no_reply() {
    let frames: [&[u8]; 4] = [b"id", b"topic", &[0; 8], b"x"];
    assert_eq!(ReplayReply::read(&frames), Err(FrameError::NoDelimiter));
}

#[test]
fn views_borrow_the_frames() {
    let frames = [b"topic".to_vec(), 1_u64.to_be_bytes().to_vec(), vec![7; 1 << 20]];
    let message = Message::read(&frames).expect("a message");
    assert!(std::ptr::eq(message.payload, &raw const frames[2][..]));
    assert!(std::ptr::eq(message.topic, &raw const frames[0][..]));
}

#[test]
fn errors_say_what_is_wrong_and_have_a_label() {
    let errors = [
        (FrameError::FrameCount(4), "frame_count", "a message of 4 frames"),
        (FrameError::SequenceLength(4), "sequence_length", "a sequence of 4 bytes instead of 8"),
        (
            FrameError::ReservedSequence,
            "reserved_sequence",
            "a batch under the sequence that marks the end of a replay",
        ),
        (
            FrameError::NoDelimiter,
            "no_delimiter",
            "a replay reply of four frames without the empty first one",
        ),
    ];
    for (error, label, sentence) in errors {
        assert_eq!((error.label(), error.to_string().as_str()), (label, sentence));
    }
}
