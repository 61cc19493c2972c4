//! What the tests share: the slow oracle, the capture reader, and the makers of streams and of damage.
#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub(crate) mod allocations;
pub(crate) mod captures;
pub(crate) mod fast;
pub(crate) mod generate;
pub(crate) mod kvcap;
pub(crate) mod mutate;
pub(crate) mod numbers;
pub(crate) mod oracle;
pub(crate) mod pack;
#[cfg(feature = "zmq")]
pub(crate) mod publisher;
pub(crate) mod source;
#[cfg(feature = "zmq")]
pub(crate) mod zmtp;

/// How much of something a test does; under Miri, which takes a hundred times as long, less.
pub(crate) const fn sized(usual: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { usual }
}
