//! What a worker holds, block by block, for those who want to hold a copy of it. Control plane: takes a walk over its blocks.

use std::collections::HashMap;

use crate::ids::{EngineHash, LocalHash, Worker};
use crate::placement::{Named, Placed};

/// A block that a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBlock {
    /// Who holds it.
    pub worker: Worker,
    /// The engine's name for it.
    pub engine_hash: EngineHash,
    /// The engine's name for the block before it; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// Hash of its tokens.
    pub local_hash: LocalHash,
    /// Where: device, host, disk, external.
    pub tiers: [bool; 4],
}

/// Puts names and places of one shard together: parents first, chains in one piece where they do not branch. A block whose
/// parent is not held has no name to follow, and is left out with all that follow it: no prompt can reach them.
pub(crate) fn arrange(worker: Worker, named: &[Named], placed: &[Placed], out: &mut Vec<HeldBlock>) {
    let by_ordinal: HashMap<u32, &Placed> = placed.iter().map(|placed| (placed.ordinal.0, placed)).collect();
    // By the place before: what follows it. Several names may stand at one place; the first is the parent's name.
    let mut followers: HashMap<Option<u32>, Vec<(&Named, &Placed)>> = HashMap::new();
    for named in named {
        if let Some(&placed) = by_ordinal.get(&named.ordinal.0) {
            followers.entry(placed.before).or_default().push((named, placed));
        }
    }
    let mut open: Vec<(Option<EngineHash>, &Named, &Placed)> = Vec::new();
    let take = |followers: &mut HashMap<_, Vec<_>>, place, parent, open: &mut Vec<_>| {
        for (named, placed) in followers.remove(&place).unwrap_or_default() {
            open.push((parent, named, placed));
        }
    };
    take(&mut followers, None, None, &mut open);
    while let Some((parent, named, placed)) = open.pop() {
        let Named { engine_hash, tiers, .. } = *named;
        out.push(HeldBlock { worker, engine_hash, parent, local_hash: placed.local_hash, tiers });
        take(&mut followers, Some(placed.at), Some(engine_hash), &mut open);
    }
}
