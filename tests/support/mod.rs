//! What the tests share: the slow oracle, the capture reader, and the makers of streams and of damage.
#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub(crate) mod kvcap;
pub(crate) mod oracle;
