//! The bodies of the fuzz targets; each file in `fuzz_targets` only calls one. A body panics where kvtap and its twin differ.

pub mod capture;
pub mod dump;
pub mod http;
pub mod index;
pub mod payload;
pub mod seeds;
pub mod sequence;
pub mod simd;

mod asking;

// One copy of the oracle, the generator and the mutator: the tests'.
#[path = "../../tests/support/mod.rs"]
mod support;

/// For targets that bound memory.
#[global_allocator]
static ALLOCATOR: support::allocations::Counting = support::allocations::Counting;
