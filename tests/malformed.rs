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

use kvtap::wire::WireErrorKind;
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

/// Applies a payload that must be refused for this reason at this offset, without a trace.
fn refused(source: &mut Source, payload: &[u8], expected: (WireErrorKind, usize), what: &str) {
    let mut counters = source.ingest.counters().clone();
    let state = (source.ingest.entries(), source.ingest.digest(), source.ingest.bytes());
    let drift = source.drift();
    let (result, usage) = measure(|| source.try_apply(payload));
    let error = result.expect_err(what);
    let offset = usize::try_from(error.offset()).expect("a 64-bit machine");
    assert_eq!((error.kind(), offset), expected, "{what}: {payload:02x?}");
    assert!(usage.held_bytes_max < HELD_BYTES_MAX, "{what}: {usage:?}");
    counters.batches += 1;
    counters.malformed_batches += 1;
    counters.payload_bytes += payload.len() as u64;
    assert_eq!(*source.ingest.counters(), counters, "{what}: only the refusal is counted");
    assert_eq!((source.ingest.entries(), source.ingest.digest(), source.ingest.bytes()), state, "{what}");
    assert_eq!(source.drift(), drift, "{what}");
}
