//! Small inputs from public bug reports of decoders, routers and engines: what is right here, one test per behaviour.
//!
//! The numbers in comments are those of the collection the cases come from.

mod support;

#[path = "regressions/decoding.rs"]
mod decoding;
#[path = "regressions/identity.rs"]
mod identity;
#[path = "regressions/index.rs"]
mod index;
#[path = "regressions/judging.rs"]
mod judging;
#[path = "regressions/live.rs"]
mod live;
