//! Prefix hashes as routers report them, from what an observer is shown. For tools: the index itself needs none.

use std::collections::HashMap;

use crate::hash::prefix_hash;
use crate::ids::{EngineHash, PrefixHash, Worker};
use crate::observe::Placement;

/// Remembers the prefix hash of every engine hash it is shown, until its worker is cleared.
#[derive(Clone, Debug, Default)]
pub struct PrefixHashes(HashMap<Worker, HashMap<EngineHash, PrefixHash>>);

impl PrefixHashes {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The prefix hash of the block that a placement is about; `None` for a clear. It must be shown all of them, in order.
    pub fn of(&mut self, worker: Worker, placement: &Placement) -> Option<PrefixHash> {
        let known = self.0.entry(worker).or_default();
        match *placement {
            Placement::Store { engine_hash, parent, local_hash: Some(local_hash), .. } => {
                let parent = parent.and_then(|parent| known.get(&parent).copied());
                let hash = prefix_hash(parent, local_hash);
                known.insert(engine_hash, hash);
                Some(hash)
            }
            Placement::Store { engine_hash, .. } | Placement::Remove { engine_hash, .. } => {
                known.get(&engine_hash).copied()
            }
            Placement::Clear => {
                known.clear();
                None
            }
        }
    }
}
