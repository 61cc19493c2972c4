//! The engine starts over, or another message only looks as if it had.

use crate::bench::{Bench, batch, first_life, life, model, model_of, over_both};
use crate::support::publisher::TCP;

#[test]
fn a_restart_clears_and_starts_over() {
    over_both(|endpoint, replay| {
        let mut bench = Bench::new(endpoint, replay);
        bench.send(0..5);
        bench.until_cursor(4);
        bench.replace_publisher();
        bench.publisher.wait_for_subscriber();
        bench.send_life(1, 0..3);
        bench.until_cursor(2);
        bench.expect([0; 4], model((0..3).map(|sequence| life(1, sequence))));
        let status = bench.source.status();
        assert_eq!((status.sequence.restarts, status.degraded), (1, false));
        assert_eq!((status.connects, status.disconnects), (2, 1));
        assert_eq!(bench.report().entries, 3);
    });
}

#[test]
fn a_restart_whose_first_batch_repeats_the_only_number_is_seen() {
    let bench = Bench::without_replay(TCP);
    bench.send([0]);
    bench.until_cursor(0);
    bench.send_life(1, [0]);
    bench.until(|status| status.sequence.restarts == 1 && status.cursor == Some(0));
    bench.expect([0; 4], model([life(1, 0)]));
}

#[test]
fn a_restart_whose_first_batches_were_missed_is_a_gap_from_0() {
    let bench = Bench::new(TCP, TCP);
    bench.send(0..9);
    bench.until_cursor(8);
    bench.send_life(1, [3]);
    let kept: Vec<_> = (0..4).map(|sequence| (sequence, life(1, sequence))).collect();
    assert_eq!(bench.publisher.answer(&kept), 0);
    bench.until_cursor(3);
    bench.expect([1, 3, 0, 0], model((0..4).map(|sequence| life(1, sequence))));
    assert_eq!(bench.source.status().sequence.restarts, 1);
    // Without a replay they are lost, and the new life is degraded from the start.
    let bench = Bench::without_replay(TCP);
    bench.send(0..9);
    bench.send_life(1, [3]);
    bench.until_cursor(3);
    bench.expect([1, 0, 3, 0], model([life(1, 3)]));
    assert!(bench.source.status().degraded);
}

#[test]
fn a_restart_that_looks_like_a_gap_is_seen_by_its_replay() {
    let bench = Bench::new(TCP, TCP);
    bench.send(0..4);
    bench.until_cursor(3);
    // The new engine had already sent 0..6 when it was heard first.
    bench.send_life(1, [6]);
    let kept: Vec<_> = (0..7).map(|sequence| (sequence, life(1, sequence))).collect();
    assert_eq!(bench.publisher.answer(&kept), 3);
    assert_eq!(bench.publisher.answer(&kept), 0);
    bench.until_cursor(6);
    bench.expect([2, 6, 0, 0], model((0..7).map(|sequence| life(1, sequence))));
    assert_eq!(bench.source.status().sequence.restarts, 1);
}

#[test]
fn a_restart_by_a_clock_that_went_back_is_seen_by_its_third_batch() {
    let bench = Bench::without_replay(TCP);
    bench.send(0..5);
    bench.until_cursor(4);
    let new = |sequence| batch(1, sequence, 0.5);
    for sequence in 0..4 {
        bench.publisher.send(sequence, &new(sequence));
    }
    bench.until_cursor(3);
    // Two were taken for late ones.
    bench.expect([1, 0, 2, 0], model([new(2), new(3)]));
    assert_eq!(bench.source.status().sequence.duplicates, 2);
}

#[test]
fn a_restart_during_a_replay_is_sorted_out() {
    let mut bench = Bench::new(TCP, TCP);
    bench.send([0, 1, 5]);
    bench.publisher.request();
    // Its engine dies before it answers; the next one has a life of its own.
    bench.replace_publisher();
    bench.publisher.wait_for_subscriber();
    bench.until_cursor(5);
    bench.send_life(1, 0..2);
    bench.until_cursor(1);
    bench.expect([1, 0, 3, 0], model((0..2).map(|sequence| life(1, sequence))));
    assert_eq!((bench.source.status().sequence.restarts, bench.source.status().degraded), (1, false));
}

#[test]
fn duplicates_and_late_messages_are_passed_over() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        bench.send([0, 1, 1, 2, 0, 3, 3, 2, 4]);
        bench.until_cursor(4);
        bench.expect([0; 4], model_of(0..5));
        assert_eq!(bench.source.status().sequence.duplicates, 4);
    });
}

#[test]
fn a_publisher_that_vanishes_and_returns_is_followed_on() {
    over_both(|endpoint, replay| {
        let mut bench = Bench::new(endpoint, replay);
        bench.send(0..3);
        bench.until_cursor(2);
        bench.replace_publisher();
        bench.until(|status| status.disconnects == 1);
        bench.publisher.wait_for_subscriber();
        // The same engine: it goes on counting. What it sent to nobody is replayed.
        bench.send(6..8);
        bench.publisher.answer(&first_life(0..8));
        bench.until_cursor(7);
        bench.expect([1, 3, 0, 0], model_of(0..8));
        assert_eq!(bench.source.status().sequence.restarts, 0);
    });
}
