//! Numbers are missing: with a replay of every kind, and without one.

use crate::bench::{Bench, first_life, life, model_of, over_both};
use crate::support::publisher::{Shape, TCP};

#[test]
fn a_stream_without_faults_is_followed() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        bench.send(0..10);
        bench.until_cursor(9);
        bench.expect([0; 4], model_of(0..10));
        let status = bench.source.status();
        assert!(!status.degraded && status.last_error.is_none());
        assert_eq!((status.connects, status.watermark), (1, Some(9.0)));
    });
}

#[test]
fn a_gap_without_replay_is_lost_and_degrades() {
    over_both(|endpoint, _| {
        let bench = Bench::without_replay(endpoint);
        bench.send([0, 1, 4, 5, 9]);
        bench.until_cursor(9);
        bench.expect([2, 0, 5, 0], model_of([0, 1, 4, 5, 9]));
        assert!(bench.source.status().degraded);
    });
}

#[test]
fn a_late_joiner_without_replay_has_lost_all_before() {
    let bench = Bench::without_replay(TCP);
    bench.send([5, 6]);
    bench.until_cursor(6);
    bench.expect([1, 0, 5, 0], model_of([5, 6]));
}

#[test]
fn a_clear_ends_what_was_degraded() {
    let bench = Bench::without_replay(TCP);
    bench.send([3]);
    bench.until(|status| status.degraded);
    bench.publisher.send(4, &crate::bench::payload(0, 4.0, [crate::support::source::clear()]));
    bench.send([5]);
    bench.until_cursor(5);
    bench.expect([1, 0, 3, 0], model_of([5]));
    assert!(!bench.source.status().degraded);
}

#[test]
fn a_replay_fills_a_gap_in_both_shapes() {
    for shape in [Shape::Three, Shape::Four] {
        over_both(|endpoint, replay| {
            let mut bench = Bench::new(endpoint, replay);
            bench.publisher.shape = shape;
            bench.send([0, 1, 2, 6]);
            let (who, start) = bench.publisher.request();
            assert_eq!(start, 2);
            // Live messages go on meanwhile; they are applied after it and in order.
            bench.send([7, 8]);
            for (sequence, payload) in first_life(2..9) {
                bench.publisher.reply(&who, sequence, &payload);
            }
            bench.publisher.end(&who);
            bench.until_cursor(8);
            bench.expect([1, 3, 0, 0], model_of(0..9));
            assert!(!bench.source.status().degraded);
        });
    }
}

#[test]
fn a_late_joiner_is_replayed_from_0() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        bench.send([7]);
        assert_eq!(bench.publisher.answer(&first_life(0..8)), 0);
        bench.until_cursor(7);
        bench.expect([1, 7, 0, 0], model_of(0..8));
    });
}

#[test]
fn a_number_that_was_never_sent_is_not_lost() {
    let bench = Bench::new(TCP, TCP);
    // An engine burns a number when encoding fails.
    bench.send([0, 1, 2, 4]);
    bench.publisher.answer(&first_life([0, 1, 2, 4]));
    bench.until_cursor(4);
    bench.send([5, 9]);
    bench.publisher.answer(&first_life([0, 1, 2, 4, 5, 7, 9]));
    bench.until_cursor(9);
    bench.expect([2, 1, 0, 3], model_of([0, 1, 2, 4, 5, 7, 9]));
    assert!(!bench.source.status().degraded);
}

#[test]
fn a_replay_that_ends_early_loses_the_rest() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        bench.send([0, 1, 8]);
        bench.publisher.answer(&first_life(0..5));
        bench.until_cursor(8);
        bench.expect([1, 3, 3, 0], model_of([0, 1, 2, 3, 4, 8]));
        assert!(bench.source.status().degraded);
    });
}

#[test]
fn a_replay_that_starts_late_has_lost_what_came_before() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        bench.send([0, 1, 8]);
        bench.publisher.answer(&first_life(5..9));
        bench.until_cursor(8);
        bench.expect([1, 3, 3, 0], model_of([0, 1, 5, 6, 7, 8]));
    });
}

#[test]
fn a_replay_that_never_answers_is_given_up() {
    over_both(|endpoint, replay| {
        let bench = Bench::new(endpoint, replay);
        bench.send([0, 3]);
        bench.publisher.request();
        // Meanwhile the stream goes on.
        bench.send([4, 5]);
        bench.until_cursor(5);
        bench.expect([1, 0, 2, 0], model_of([0, 3, 4, 5]));
        let error = bench.source.status().last_error.unwrap();
        assert!(error.contains("replay"), "{error}");
        // It is not asked again at once: the next gap does not hold the stream up.
        bench.send([8]);
        bench.until_cursor(8);
        bench.expect([2, 0, 4, 0], model_of([0, 3, 4, 5, 8]));
    });
}

#[test]
fn a_replay_that_falls_silent_half_way_is_given_up() {
    let bench = Bench::new(TCP, TCP);
    bench.send([0, 6]);
    let (who, _) = bench.publisher.request();
    for (sequence, payload) in first_life(0..3) {
        bench.publisher.reply(&who, sequence, &payload);
    }
    bench.until_cursor(6);
    bench.expect([1, 2, 3, 0], model_of([0, 1, 2, 6]));
}

#[test]
fn nobody_at_the_replay_endpoint_is_given_up() {
    let mut options = kvtap::source::SourceOptions::new("", 7);
    let publisher = crate::support::publisher::Publisher::bind(TCP, &crate::support::publisher::ipc());
    options.endpoint.clone_from(&publisher.endpoint);
    options.replay = Some("tcp://127.0.0.1:9".to_owned());
    let bench = Bench::with(publisher, options);
    bench.send([0, 2]);
    bench.until_cursor(2);
    bench.expect([1, 0, 1, 0], model_of([0, 2]));
}

#[test]
fn a_replay_with_duplicates_and_bad_replies_still_fills_the_gap() {
    let bench = Bench::new(TCP, TCP);
    bench.send([0, 4]);
    let (who, _) = bench.publisher.request();
    for sequence in [0, 1, 1, 2, 2, 3] {
        bench.publisher.reply(&who, sequence, &life(0, sequence));
        bench.publisher.end_of_nothing(&who);
    }
    bench.until_cursor(4);
    bench.expect([1, 3, 0, 0], model_of(0..5));
    assert!(bench.source.status().bad_messages >= 3);
}

#[test]
fn a_broken_payload_in_a_replay_costs_itself() {
    let bench = Bench::new(TCP, TCP);
    bench.send([0, 3]);
    let kept = [(0, life(0, 0)), (1, b"\xc1".to_vec()), (2, life(0, 2)), (3, life(0, 3))];
    bench.publisher.answer(&kept);
    bench.until_cursor(3);
    bench.expect([1, 2, 0, 0], model_of([0, 2, 3]));
    assert_eq!(bench.source.status().counters.malformed_batches, 1);
}

#[test]
fn what_is_missing_when_a_source_is_stopped_is_lost() {
    let bench = Bench::new(TCP, TCP);
    bench.send([0, 5]);
    bench.publisher.request();
    let report = bench.source.stop().unwrap();
    assert_eq!(report.status.sequence.lost_batches, 4);
    assert_eq!((report.status.state.label(), report.status.cursor), ("live", Some(5)));
    assert_eq!(report.digest, model_of([0, 5]));
}
