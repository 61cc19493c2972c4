//! Payload bytes → checked batch → borrowed event views. Hand-written, in place; data plane.
//!
//! # Layouts
//!
//! A payload is one msgpack value, the batch of one scheduler step:
//!
//! | envelope | producers |
//! | --- | --- |
//! | `[ts, events]` | vLLM 0.9.0, SGLang 0.4.6.post5 |
//! | `[ts, events, rank]` | vLLM ≥ 0.9.1, SGLang ≥ 0.4.7, TensorRT-LLM through Dynamo |
//! | `{ts, events, data_parallel_rank \| attn_dp_rank \| dp_rank}` | no release; accepted |
//!
//! The rank comes after the events, so nothing is handed out before the last byte has been checked. An event is a
//! tagged tuple (`positional`) or a tagged map (`named`). Block hashes are integers of either sign or
//! digest bytes (vLLM ≥ 0.10.2), token ids single or EAGLE pairs (SGLang).
//!
//! # What goes wrong
//!
//! A [`WireError`] refuses the payload; past that, only an [`EventError`] exists and costs its event alone. Whatever no
//! known version sends is [`Drift`]: stepped over and reported.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::arithmetic_side_effects, clippy::unreachable)]

mod marker;
mod cursor;
mod skip;
mod table;
mod tails;
mod walk;
mod batch;
mod event;
mod positional;
mod named;
mod hashes;
mod tokens;
mod extra_keys;
mod error;
#[expect(unsafe_code, reason = "vector loads and stores; each kernel has a safe twin")]
mod simd;

pub use batch::{Batch, Decoder};
pub use error::{EventError, EventErrorKind, Field, WireError, WireErrorKind};
pub use event::{Body, Cleared, Drift, Event, Gate, Removed, Stored};
pub use extra_keys::{BlockMmInfos, ExtraKey, ExtraKeys};
pub use hashes::DigestHalf;
pub use simd::SimdLevel;
pub use table::{FieldSet, Shape};
pub use tails::GateId;

/// Bytes as text. Names that every engine sends are compared rather than checked, which is several times faster.
#[inline]
fn text(bytes: &[u8]) -> Result<&str, std::str::Utf8Error> {
    match bytes.len() {
        3 if bytes == b"GPU" => Ok("GPU"),
        3 if bytes == b"CPU" => Ok("CPU"),
        14 if bytes == b"full_attention" => Ok("full_attention"),
        14 if bytes == b"sliding_window" => Ok("sliding_window"),
        _ => std::str::from_utf8(bytes),
    }
}

/// A read inside a payload whose structure was checked, where only the type can surprise.
#[inline(always)]
fn sound<T>(read: Result<Option<T>, WireError>) -> Option<T> {
    debug_assert!(read.is_ok(), "structure was checked");
    read.ok().flatten()
}
