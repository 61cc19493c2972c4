//! Bad input: what is refused, where exactly it went wrong, and that nothing else suffers.
//!
//! A broken payload is refused whole, a malformed event costs itself. Everything here runs under an allocator that counts:
//! no input may make the reading thread hold a megabyte.

mod support;

#[path = "malformed/event.rs"]
mod event;
#[path = "malformed/payload.rs"]
mod payload;
#[path = "malformed/place.rs"]
mod place;

use kvtap::wire::{EventErrorKind, WireErrorKind};
use kvtap::{Counters, Reason};
use support::allocations::{Counting, measure};
use support::source::{Seen, Source, remove, store};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// More than any payload here may make the reading thread hold.
const HELD_BYTES_MAX: i64 = 1 << 20;

/// A source that already holds a chain of two blocks.
fn source() -> Source {
    let mut source = Source::new();
    source.apply([store(&[101, 102], None, 1..=8), remove(&[999])]);
    assert_eq!(source.depths(1..=8), [2; 4]);
    source
}

/// Applies a payload that must be sound, whatever its events are.
fn accepted(source: &mut Source, payload: &[u8], what: &str) -> Seen {
    let (seen, usage) = measure(|| source.try_apply(payload));
    assert!(usage.held_bytes_max < HELD_BYTES_MAX, "{what}: {usage:?}");
    seen.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// All that is counted.
fn counts(counters: &Counters) -> Vec<u64> {
    let plain = [
        counters.batches,
        counters.malformed_batches,
        counters.payload_bytes,
        counters.stored_events,
        counters.removed_events,
        counters.cleared_events,
        counters.unknown_events,
        counters.malformed_events,
        counters.placed_blocks,
        counters.removed_blocks,
        counters.placed_tokens,
    ];
    let refused = WireErrorKind::ALL.map(|kind| counters.refused(kind));
    let malformed = EventErrorKind::ALL.map(|kind| counters.malformed(kind));
    let filtered = Reason::ALL.map(|reason| counters.filtered(reason));
    plain.into_iter().chain(refused).chain(malformed).chain(filtered).collect()
}

/// What is counted after a payload of so many bytes was refused.
fn with_refusal(before: &Counters, kind: WireErrorKind, bytes: usize) -> Vec<u64> {
    let mut after = before.clone();
    after.batches += 1;
    after.malformed_batches += 1;
    after.payload_bytes += bytes as u64;
    let mut after = counts(&after);
    // After the eleven plain ones.
    let kind = WireErrorKind::ALL.iter().position(|&it| it == kind).expect("a kind");
    after[11 + kind] += 1;
    after
}

/// Applies a payload that must be refused for this reason at this offset, without a trace.
fn refused(source: &mut Source, payload: &[u8], expected: (WireErrorKind, usize), what: &str) {
    let expected_counts = with_refusal(source.ingest.counters(), expected.0, payload.len());
    let state = (source.ingest.entries(), source.ingest.digest(), source.ingest.bytes());
    let drift = source.drift();
    let (result, usage) = measure(|| source.try_apply(payload));
    let error = result.expect_err(what);
    let offset = usize::try_from(error.offset()).expect("a 64-bit machine");
    assert_eq!((error.kind(), offset), expected, "{what}: {payload:02x?}");
    assert!(usage.held_bytes_max < HELD_BYTES_MAX, "{what}: {usage:?}");
    assert_eq!(counts(source.ingest.counters()), expected_counts, "{what}: only the refusal is counted");
    assert_eq!((source.ingest.entries(), source.ingest.digest(), source.ingest.bytes()), state, "{what}");
    assert_eq!(source.drift(), drift, "{what}");
}
