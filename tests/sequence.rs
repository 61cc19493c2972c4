//! The sequence machine: every rule by example, then streams at random against what was really sent.

mod support;

use kvtap::{Live, Replayed, Sequence, SequenceCounts};
use proptest::prelude::*;

use support::numbers::Followed;

/// A machine that has applied batches `0..=last`, each with its number as timestamp.
fn after(last: u64) -> Sequence {
    let mut sequence = Sequence::new();
    for number in 0..=last {
        apply(&mut sequence, number);
    }
    sequence
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn apply(sequence: &mut Sequence, number: u64) {
    assert_eq!(sequence.live(number, || panic!("not backward")), Live::Apply);
    sequence.applied(Some(number as f64));
}

/// Feeds a replay that goes on until the machine has enough. Gives the numbers applied.
fn replay(sequence: &mut Sequence, numbers: &[u64]) -> Vec<u64> {
    let mut applied = Vec::new();
    for &number in numbers {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let timestamp = number as f64;
        match sequence.replayed(number, || Some(timestamp)) {
            Replayed::Apply => {
                sequence.applied(Some(timestamp));
                applied.push(number);
            }
            Replayed::Skip => {}
            Replayed::Done => return applied,
            other @ (Replayed::AskAgain | Replayed::Restart) => panic!("{other:?} at {number}"),
        }
    }
    assert!(!sequence.end_replay());
    applied
}

fn counts(sequence: &Sequence) -> [u64; 4] {
    let counts = sequence.counts();
    [counts.gaps, counts.replayed_batches, counts.lost_batches, counts.skipped_sequences]
}

#[test]
fn a_stream_from_0_has_no_gap() {
    assert_eq!(after(9).counts(), SequenceCounts::default());
    assert_eq!((after(9).cursor(), after(9).watermark()), (Some(9), Some(9.0)));
    assert_eq!(Sequence::new().cursor(), None);
}

#[test]
fn a_late_joiner_asks_from_0() {
    let mut sequence = Sequence::new();
    assert_eq!(sequence.live(3, || None), Live::Gap(0..3));
    assert_eq!(sequence.request(), 0);
    assert_eq!(replay(&mut sequence, &[0, 1, 2, 3]), [0, 1, 2]);
    apply(&mut sequence, 3);
    assert_eq!(counts(&sequence), [1, 3, 0, 0]);
}

#[test]
fn what_a_replay_cannot_return_is_lost() {
    // (replay after 0..=2 was applied and 7 was seen; applied; lost; never sent)
    let cases: [(&[u64], &[u64], u64, u64); 12] = [
        (&[2, 3, 4, 5, 6, 7], &[3, 4, 5, 6], 0, 0),
        (&[2, 3, 4, 5, 6], &[3, 4, 5, 6], 0, 0),
        // It ends early, or at once.
        (&[2, 3, 4], &[3, 4], 2, 0),
        (&[], &[], 4, 0),
        (&[2], &[], 4, 0),
        // It starts late: nothing shows that 3 and 4 were never sent.
        (&[5, 6, 7], &[5, 6], 2, 0),
        (&[9], &[], 4, 0),
        // Absent between batches that are there: never sent.
        (&[2, 4, 6, 7], &[4, 6], 0, 2),
        (&[2, 7], &[], 0, 4),
        // Twice, and out of order: then what lacks may have gone astray.
        (&[2, 3, 3, 4, 4, 5, 6], &[3, 4, 5, 6], 0, 0),
        (&[2, 5, 3, 4, 6], &[5, 6], 2, 0),
        (&[2, 5, 3, 7], &[5], 3, 0),
    ];
    for (replies, applied, lost, skipped) in cases {
        let mut sequence = after(2);
        assert_eq!(sequence.live(7, || None), Live::Gap(3..7));
        assert_eq!(sequence.request(), 2, "the batch before shows how far back a replay reaches");
        assert_eq!(replay(&mut sequence, replies), applied, "{replies:?}");
        assert!(!sequence.has_gap());
        apply(&mut sequence, 7);
        assert_eq!(counts(&sequence), [1, applied.len() as u64, lost, skipped], "{replies:?}");
    }
}

#[test]
fn a_long_replay_that_lacks_something_is_asked_again() {
    let mut sequence = Sequence::new();
    assert_eq!(sequence.live(2000, || None), Live::Gap(0..2000));
    assert_eq!(sequence.request(), 0);
    replay_some(&mut sequence, 0..1000);
    // Dropped on the way, as a full ROUTER does: 1000..1200.
    assert_eq!(sequence.replayed(1200, || None), Replayed::AskAgain);
    assert_eq!(sequence.request(), 999);
    assert_eq!(sequence.replayed(999, || Some(999.0)), Replayed::Skip);
    replay_some(&mut sequence, 1000..1700);
    assert!(sequence.end_replay(), "the end may be missing for the same reason");
    assert_eq!(sequence.request(), 1699);
    assert!(!sequence.end_replay(), "nothing came: asking again would not end");
    apply(&mut sequence, 2000);
    assert_eq!(counts(&sequence), [1, 1700, 300, 0]);
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn replay_some(sequence: &mut Sequence, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(sequence.replayed(number, || None), Replayed::Apply);
        sequence.applied(Some(number as f64));
    }
}

#[test]
fn a_replay_of_another_life_shows_a_restart() {
    let mut sequence = after(3);
    assert_eq!(sequence.live(10, || None), Live::Gap(4..10));
    assert_eq!(sequence.request(), 3);
    assert_eq!(sequence.replayed(3, || Some(77.0)), Replayed::Restart);
    assert_eq!(sequence.live(10, || None), Live::Gap(0..10));
    assert_eq!(sequence.request(), 0);
    assert_eq!(sequence.counts().restarts, 1);
    // Unknown timestamps prove nothing.
    for unknown in [None, Some(f64::NAN)] {
        let mut sequence = after(3);
        sequence.live(10, || None);
        sequence.request();
        assert_eq!(sequence.replayed(3, || unknown), Replayed::Skip);
    }
}

#[test]
fn a_replay_that_begins_earlier_than_asked_proves_as_much() {
    let mut sequence = after(3);
    assert_eq!(sequence.live(8, || None), Live::Gap(4..8));
    assert_eq!(sequence.request(), 3);
    assert_eq!(replay(&mut sequence, &[1, 2, 3, 6, 8]), [6]);
    assert_eq!(counts(&sequence), [1, 1, 0, 3], "4, 5 and 7 were never sent");
    // Of another life.
    let mut sequence = after(3);
    sequence.live(8, || None);
    sequence.request();
    assert_eq!(sequence.replayed(2, || panic!("not the one before the gap")), Replayed::Skip);
    assert_eq!(sequence.replayed(3, || Some(77.0)), Replayed::Restart);
}

#[test]
fn of_a_lost_batch_no_timestamp_is_known() {
    let mut sequence = after(2);
    assert_eq!(sequence.live(7, || None), Live::Gap(3..7));
    sequence.request();
    assert_eq!(sequence.replayed(9, || None), Replayed::Done);
    // Another message than the one that showed the gap.
    assert_eq!(sequence.live(8, || None), Live::Gap(7..8));
    assert_eq!(sequence.request(), 6);
    assert_eq!(sequence.replayed(6, || Some(6.0)), Replayed::Skip, "it need not be that of batch 2");
}

#[test]
fn backward_messages_are_late_unless_their_batch_is_newer() {
    for (timestamp, expected) in [
        (Some(9.0), Live::Skip),
        (Some(3.0), Live::Skip),
        (Some(f64::NAN), Live::Skip),
        (Some(f64::NEG_INFINITY), Live::Skip),
        (None, Live::Skip),
        (Some(9.5), Live::Restart),
        (Some(f64::INFINITY), Live::Restart),
    ] {
        for number in [0, 5, 9] {
            let mut sequence = after(9);
            assert_eq!(sequence.live(number, || timestamp), expected, "{timestamp:?}");
            assert_eq!(sequence.counts().duplicates, u64::from(expected == Live::Skip));
        }
    }
}

#[test]
fn a_restart_starts_over() {
    let mut sequence = after(9);
    assert_eq!(sequence.live(0, || Some(10.0)), Live::Restart);
    assert_eq!((sequence.cursor(), sequence.watermark()), (None, None));
    apply(&mut sequence, 0);
    // Its first messages may be missed.
    let mut sequence = after(9);
    assert_eq!(sequence.live(4, || Some(10.0)), Live::Restart);
    assert_eq!(sequence.live(4, || Some(10.0)), Live::Gap(0..4));
}

#[test]
fn three_backward_messages_that_count_up_are_a_restart() {
    let run = |numbers: &[u64]| {
        let mut sequence = after(9);
        numbers.iter().map(|&number| sequence.live(number, || Some(0.0))).collect::<Vec<_>>()
    };
    use Live::{Apply, Restart, Skip};
    assert_eq!(run(&[0, 1, 2]), [Skip, Skip, Restart]);
    assert_eq!(run(&[0, 4, 9]), [Skip, Skip, Restart]);
    assert_eq!(run(&[2, 1, 0, 0, 1, 1, 2]), vec![Skip; 7]);
    assert_eq!(run(&[0, 1, 10, 2, 3, 4]), [Skip, Skip, Apply, Skip, Skip, Restart]);
}

#[test]
fn numbers_at_the_end_of_their_range_are_numbers() {
    let last = u64::MAX - 1;
    let mut sequence = Sequence::new();
    assert_eq!(sequence.live(last, || None), Live::Gap(0..last));
    sequence.accept_loss();
    apply(&mut sequence, last);
    assert_eq!(sequence.counts().lost_batches, last);
    assert_eq!(sequence.live(u64::MAX, || None), Live::Skip, "marks the end of a replay, never a batch");
    assert_eq!(sequence.live(0, || Some(f64::MAX)), Live::Restart);
    apply(&mut sequence, 0);
    assert_eq!(sequence.live(last, || None), Live::Gap(1..last));
    sequence.request();
    assert_eq!(sequence.replayed(u64::MAX, || None), Replayed::Done);
    assert_eq!(sequence.counts().lost_batches, u64::MAX, "sums saturate");
}

/// What a driver may do, and with what.
#[derive(Clone, Debug)]
enum Op {
    Live(u64, Option<f64>),
    Replayed(u64, Option<f64>),
    Request,
    End,
    Accept,
    Applied(Option<f64>),
}

fn any_op() -> impl Strategy<Value = Op> {
    let number = prop_oneof![0..12_u64, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()];
    let stamp = prop_oneof![
        Just(None),
        (0..5_u8).prop_map(|stamp| Some(f64::from(stamp))),
        any::<f64>().prop_map(Some),
        Just(Some(f64::NAN)),
        Just(Some(f64::INFINITY))
    ];
    prop_oneof![
        (number.clone(), stamp.clone()).prop_map(|(number, stamp)| Op::Live(number, stamp)),
        (number, stamp.clone()).prop_map(|(number, stamp)| Op::Replayed(number, stamp)),
        Just(Op::Request),
        Just(Op::End),
        Just(Op::Accept),
        stamp.prop_map(Op::Applied),
    ]
}

proptest! {
    /// In any order of calls nothing panics, the cursor goes back only by a restart, and every number up to the cursor is
    /// accounted for exactly once.
    #[test]
    fn every_number_is_accounted_for(ops in prop::collection::vec(any_op(), 0..200)) {
        let mut sequence = Sequence::new();
        let (mut applied, mut before) = (0_u64, SequenceCounts::default());
        for op in ops {
            let next = sequence.cursor().map_or(0, |cursor| cursor + 1);
            match op {
                Op::Live(number, stamp) => {
                    let verdict = sequence.live(number, || stamp);
                    applied += u64::from(verdict == Live::Apply);
                    prop_assert_eq!(sequence.has_gap(), matches!(verdict, Live::Gap(_)));
                }
                Op::Replayed(number, stamp) => { sequence.replayed(number, || stamp); }
                Op::Request => { sequence.request(); }
                Op::End => { let _ = sequence.end_replay(); }
                Op::Accept => sequence.accept_loss(),
                Op::Applied(stamp) => sequence.applied(stamp),
            }
            let counts = sequence.counts();
            let now = sequence.cursor().map_or(0, |cursor| cursor + 1);
            if counts.restarts > before.restarts {
                prop_assert_eq!(now, 0);
                (applied, before) = (0, counts);
            }
            prop_assert!(now >= next || now == 0);
            prop_assert!(!sequence.watermark().is_some_and(f64::is_nan));
            if counts.lost_batches < u64::MAX && counts.skipped_sequences < u64::MAX {
                let since = |now: u64, then: u64| i128::from(now) - i128::from(then);
                let accounted = i128::from(applied)
                    + since(counts.replayed_batches, before.replayed_batches)
                    + since(counts.lost_batches, before.lost_batches)
                    + since(counts.skipped_sequences, before.skipped_sequences);
                prop_assert_eq!(accounted, i128::from(now), "{:?}", counts);
            }
        }
    }

    /// As a list of what became of every number would have it, which is what the fuzz target `sequence` asks too.
    #[test]
    fn decisions_are_those_of_a_list(ops in prop::collection::vec(any_op(), 0..200)) {
        let mut both = Followed::default();
        for op in ops {
            match op {
                Op::Live(number, stamp) => drop(both.live(number, stamp)),
                Op::Replayed(number, stamp) => { both.replayed(number, stamp); }
                Op::Request => { both.request(); }
                Op::End => { both.end_replay(); }
                Op::Accept => both.accept_loss(),
                // Comes with what is applied.
                Op::Applied(_) => {}
            }
            both.check();
        }
    }

    /// A real publisher with lossy links, numbers never sent and a short replay buffer: what is applied is in order, and
    /// lost is exactly what neither way brought.
    #[test]
    fn a_real_stream_is_followed(
        fates in prop::collection::vec((prop::bool::weighted(0.1), prop::bool::weighted(0.6)), 1..120),
        kept in 0..40_usize,
    ) {
        let mut sequence = Sequence::new();
        let (mut sent, mut applied, mut unsent_known) = (Vec::new(), Vec::new(), 0);
        for (number, &(burnt, arrives)) in (0_u64..).zip(&fates) {
            if burnt {
                continue;
            }
            sent.push(number);
            if !arrives {
                continue;
            }
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let stamp = |number: u64| Some(number as f64);
            if let Live::Gap(_) = sequence.live(number, || None) {
                let start = sequence.request();
                let buffer = &sent[sent.len().saturating_sub(kept)..];
                for &old in buffer.iter().filter(|&&old| old >= start) {
                    if sequence.replayed(old, || stamp(old)) == Replayed::Apply {
                        sequence.applied(stamp(old));
                        applied.push(old);
                    }
                }
                let _ = sequence.end_replay();
                prop_assert_eq!(sequence.live(number, || None), Live::Apply);
            }
            sequence.applied(stamp(number));
            applied.push(number);
        }
        prop_assert!(applied.is_sorted_by(|one, next| one < next));
        let end = sequence.cursor().map_or(0, |cursor| cursor + 1);
        let unapplied = sent.iter().filter(|&&number| number < end && !applied.contains(&number)).count() as u64;
        let burnt = end - sent.iter().filter(|&&number| number < end).count() as u64;
        let counts = sequence.counts();
        unsent_known += counts.skipped_sequences;
        // What was never sent may be taken for lost where the replay does not reach, never the other way round.
        prop_assert!(unsent_known <= burnt);
        prop_assert_eq!(counts.lost_batches + counts.skipped_sequences, unapplied + burnt);
        if kept >= fates.len() && sent.first() == Some(&0) {
            prop_assert_eq!(counts.lost_batches, unapplied);
        }
    }
}

#[test]
fn a_stream_is_gone_on_with_where_another_stood() {
    let position = after(9).position();
    assert_eq!((position.next, position.timestamp, position.watermark), (10, Some(9.0), Some(9.0)));
    let resume = || {
        let mut sequence = Sequence::new();
        sequence.resume(position);
        sequence
    };
    // What waited in the socket counts up, and is no restart.
    let mut sequence = resume();
    for number in 5..10_u32 {
        let skipped = sequence.live(number.into(), || Some(f64::from(number)));
        assert_eq!(skipped, Live::Skip, "{number}");
    }
    apply(&mut sequence, 10);
    assert_eq!((sequence.counts().duplicates, sequence.counts().restarts), (5, 0));
    // After that the usual rule holds.
    assert_eq!((1..=3).map(|number| sequence.live(number, || None)).last(), Some(Live::Restart));
    // What came between is a gap, asked for from the batch before.
    let mut sequence = resume();
    assert_eq!(sequence.live(13, || None), Live::Gap(10..13));
    assert_eq!(sequence.request(), 9);
    assert_eq!(replay(&mut sequence, &[9, 10, 12, 13]), [10, 12]);
    assert_eq!(counts(&sequence), [1, 2, 0, 1]);
    // Another engine: newer, or with another batch under the number, or no end of it.
    assert_eq!(resume().live(0, || Some(20.0)), Live::Restart);
    assert_eq!(resume().live(9, || Some(8.0)), Live::Restart);
    assert_eq!(resume().live(9, || Some(9.0)), Live::Skip);
    let mut sequence = resume();
    let run = (0..).take_while(|&at: &u64| sequence.live(at % 9, || None) == Live::Skip).take(20_000).count();
    assert!((10_000..10_010).contains(&run), "{run}");
    // Numbers of any kind do no harm.
    let mut sequence = Sequence::new();
    sequence.resume(kvtap::Position { next: u64::MAX, timestamp: Some(f64::NAN), watermark: Some(f64::NAN) });
    assert_eq!(sequence.watermark(), None);
    assert_eq!(sequence.live(u64::MAX, || Some(f64::INFINITY)), Live::Skip);
    assert_eq!(sequence.live(0, || Some(1.0)), Live::Skip);
}
