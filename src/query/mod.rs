//! Local hashes in, cumulative depths per worker out. Reads shards, writes nothing, waits for nobody.

mod prompt;
mod walk;

use std::sync::Arc;

use crate::epoch::Pin;
use crate::ids::{LocalHash, Tier, Worker};
use crate::placement::shard_of;
use crate::shard::{Common, Key, ROOT, Run, Shared};
pub use prompt::Prompt;
use walk::{Question, Walk};

/// How much of a prompt one worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Match {
    /// Who.
    pub worker: Worker,
    /// Blocks from the prompt's start, cumulative by tier: device; device or host; device, host or disk; any. Depth d
    /// means that blocks `0..d` are each at one of those tiers; a hole ends it. Where two sources bring one worker, the
    /// deeper of their two answers.
    pub depths: [u32; 4],
}

impl Match {
    /// The depth down to a tier.
    #[must_use]
    pub const fn depth(&self, tier: Tier) -> u32 {
        self.depths[tier.index()]
    }
}

/// What a query may leave out.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "made by callers, with `..Default::default()`")]
pub struct Wanted<'w> {
    /// Only these workers, in ascending order; `None` for all.
    pub candidates: Option<&'w [Worker]>,
    /// Once one worker alone is in the lead, how far it leads need not be known: its depths may be less than they are, but
    /// not less than another's.
    pub leader_is_enough: bool,
}

/// The query side of an engine. Each thread has its own; it reuses its buffers, so that answers allocate nothing once they
/// have grown.
///
/// Prompts are known by the local hashes of their blocks; the index needs no chain of them, so there is nothing else that a
/// caller could compute once per prompt.
///
/// An answer is, for each worker, what some serial order of the applied records would give, at a moment between its beginning
/// and its end. Of two workers the moments may differ. What was flushed before it began is in it.
#[derive(Debug)]
pub struct Reader {
    shards: Vec<Arc<Shared>>,
    common: Common,
    pin: Arc<Pin>,
    walk: Walk,
    local_hashes: Vec<LocalHash>,
}

impl Reader {
    pub(crate) fn new(shards: Vec<Arc<Shared>>, common: Common) -> Self {
        let pin = common.pins.enter();
        Self { shards, common, pin, walk: Walk::new(), local_hashes: Vec::new() }
    }

    /// Matches a prompt. `matches` becomes every worker that holds its first block, in any order. Gives the number of complete
    /// blocks the prompt has.
    pub fn find_matches(&mut self, prompt: &Prompt<'_>, matches: &mut Vec<Match>) -> usize {
        let mut local_hashes = std::mem::take(&mut self.local_hashes);
        local_hashes.clear();
        prompt.local_hashes(&mut local_hashes);
        self.find_local_matches(&local_hashes, matches);
        let blocks = local_hashes.len();
        self.local_hashes = local_hashes;
        blocks
    }

    /// As `find_matches`, from the local hashes of the prompt's blocks.
    pub fn find_local_matches(&mut self, local_hashes: &[LocalHash], matches: &mut Vec<Match>) {
        self.find_wanted_matches(local_hashes, Wanted::default(), matches);
    }

    /// As `find_local_matches`, but only what is wanted.
    pub fn find_wanted_matches(
        &mut self,
        local_hashes: &[LocalHash],
        wanted: Wanted<'_>,
        matches: &mut Vec<Match>,
    ) {
        matches.clear();
        self.for_each_match(local_hashes, wanted, |found| matches.push(found));
        if self.common.slots.has_doubles() {
            join_doubles(matches);
        }
    }

    /// As `find_wanted_matches`, but shows the matches one by one: for callers that need less of each. A worker that two
    /// sources bring is shown twice.
    #[inline]
    pub fn for_each_match(
        &mut self,
        local_hashes: &[LocalHash],
        wanted: Wanted<'_>,
        each: impl FnMut(Match),
    ) {
        let Some(&first) = local_hashes.first() else { return };
        let shard = &self.shards[shard_of(first, self.shards.len())];
        let guard = self.common.pins.pin(&self.pin);
        let (hasher, slots) = (&self.common.hasher, &*self.common.slots);
        let (view, page_key) = (shard.view(&guard), &self.common.page_key);
        self.walk.run(shard, Question { view, hasher, page_key, slots, blocks: local_hashes, wanted });
        // Before the guard is dropped: no slot comes to stand for another worker while it is looked at.
        self.walk.found(slots, each);
    }

    /// Answers many prompts, each as `find_local_matches` would; what they need first is fetched side by side. There must be
    /// as many `answers` as prompts; more of either are left alone.
    pub fn find_many(&mut self, prompts: &[&[LocalHash]], answers: &mut [Vec<Match>]) {
        // What is fetched for more than this many would be gone again when its turn comes.
        for (prompts, answers) in prompts.chunks(16).zip(answers.chunks_mut(16)) {
            self.prefetch(prompts);
            for (prompt, answer) in prompts.iter().zip(answers) {
                self.find_local_matches(prompt, answer);
            }
        }
    }

    /// Fetches where prompts begin, and what lies there.
    fn prefetch(&self, prompts: &[&[LocalHash]]) {
        let guard = self.common.pins.pin(&self.pin);
        let heads = prompts.iter().filter_map(|prompt| {
            let &first = prompt.first()?;
            let view = self.shards[shard_of(first, self.shards.len())].view(&guard);
            Some((Key::new(&self.common.hasher, 0, first), Run::at(view, ROOT)?))
        });
        for (key, root) in heads.clone() {
            key.prefetch(root.children());
        }
        for (key, root) in heads {
            key.prefetch_child(root, root.children());
        }
    }
}

/// Two sources may bring one worker: it holds what either says it holds.
fn join_doubles(matches: &mut Vec<Match>) {
    matches.sort_unstable();
    matches.dedup_by(|later, earlier| {
        let same = later.worker == earlier.worker;
        if same {
            for (depth, other) in earlier.depths.iter_mut().zip(later.depths) {
                *depth = other.max(*depth);
            }
        }
        same
    });
}
