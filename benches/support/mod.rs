//! What the benches and `perf/` share, in one copy: named cases, the payloads of each, and the decoder under test.
#![allow(dead_code, reason = "every binary uses its own part of this")]

pub(crate) mod cases;
pub(crate) mod decoder;
pub(crate) mod pack;
pub(crate) mod payload;
