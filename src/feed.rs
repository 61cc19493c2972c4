//! The write side without payloads, for measuring the index by itself. Only with the feature `bench`; no part of the public
//! surface.

use crate::ids::{EngineHash, LocalHash, Tier, Worker};
use crate::ingest::Ingest;
use crate::judge::Place;

impl Ingest {
    /// Stores blocks of one rank after a parent; false if that is unknown, or the rank is one too many. Records wait until
    /// `feed_sent`.
    #[doc(hidden)]
    pub fn feed_stored(
        &mut self,
        worker: Worker,
        parent: Option<EngineHash>,
        engine_hashes: &[EngineHash],
        local_hashes: &[LocalHash],
    ) -> bool {
        self.feed(worker, |placer| placer.feed(parent, engine_hashes, local_hashes)).unwrap_or(false)
    }

    /// Removes blocks of one rank.
    #[doc(hidden)]
    pub fn feed_removed(&mut self, worker: Worker, engine_hashes: &[EngineHash]) {
        self.feed(worker, |placer| placer.remove(engine_hashes, Tier::Device));
    }

    /// Clears one rank.
    #[doc(hidden)]
    pub fn feed_cleared(&mut self, worker: Worker) {
        self.feed(worker, |placer| placer.clear());
    }
}
