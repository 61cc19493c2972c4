//! One index per model and routing group. Data plane, but for the making of readers.

use std::fmt;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::problem::ServiceError;
use super::service::ServiceOptions;
use crate::{ConfigError, Engine, LocalHash, Match, Prompt, Reader};

/// Readers that wait for the next query; more are made as needed, and dropped after.
const READERS_KEPT: usize = 64;
/// Bytes of the names of models and routing groups, which every line of a source's metrics repeats.
const NAME_BYTES_MAX: usize = 256;
/// Local hashes a kept reader may hold on to: a prompt of a million tokens in blocks of 16.
const HASHES_KEPT: usize = 1 << 16;

/// Whose blocks are comparable: hashes of two models, or of two groups, must never meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs, reason = "made by callers; these two fields are the field's own key")]
pub struct PartitionId {
    /// The model's name as routers say it.
    pub model_name: String,
    /// The routing group; `default` unless somebody says otherwise.
    pub routing_group: String,
}

impl PartitionId {
    /// Whether its names are of a length that is kept.
    pub(super) fn check(&self) -> Result<(), ServiceError> {
        for (what, name) in [("model_name", &self.model_name), ("routing_group", &self.routing_group)] {
            if name.len() > NAME_BYTES_MAX {
                return Err(ServiceError::bad_request(format_args!(
                    "{what} may have {NAME_BYTES_MAX} bytes, not {}",
                    name.len()
                )));
            }
        }
        Ok(())
    }

    /// Whether it is of this model and routing group; `None` is any.
    pub(super) fn is_of(&self, model_name: Option<&str>, routing_group: Option<&str>) -> bool {
        model_name.is_none_or(|name| name == self.model_name)
            && routing_group.is_none_or(|group| group == self.routing_group)
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model={} routing_group={}", self.model_name, self.routing_group)
    }
}

/// An engine, and readers that are lent to queries.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) id: PartitionId,
    pub(super) block_size: u32,
    pub(super) engine: Engine,
    /// A pool without locks: takes wait for nobody, and what does not fit is dropped.
    idle: (Sender<Lookup>, Receiver<Lookup>),
}

/// A reader with its answer's buffers.
#[derive(Debug)]
struct Lookup {
    reader: Reader,
    local_hashes: Vec<LocalHash>,
    matches: Vec<Match>,
}

/// What is asked of a partition.
pub(super) enum Question<'q> {
    Tokens(Prompt<'q>),
    Hashes(&'q [i64]),
}

impl Partition {
    pub(super) fn new(
        id: PartitionId,
        block_size: u32,
        options: &ServiceOptions,
    ) -> Result<Self, ConfigError> {
        let engine = Engine::new(options.engine())?;
        Ok(Self { id, block_size, engine, idle: bounded(READERS_KEPT) })
    }

    /// Answers on the calling thread, which waits for nobody. Gives the prompt's complete blocks and what `with` makes of
    /// the matches, which are in the order of workers.
    pub(super) fn answer<T>(&self, question: Question<'_>, with: impl FnOnce(usize, &[Match]) -> T) -> T {
        let mut lookup = self.idle.1.try_recv().unwrap_or_else(|_| Lookup {
            reader: self.engine.reader(),
            local_hashes: Vec::new(),
            matches: Vec::new(),
        });
        let Lookup { reader, local_hashes, matches } = &mut lookup;
        local_hashes.clear();
        match question {
            Question::Tokens(prompt) => prompt.local_hashes(local_hashes),
            Question::Hashes(hashes) => {
                local_hashes.extend(hashes.iter().map(|hash| LocalHash(hash.cast_unsigned())));
            }
        }
        reader.find_local_matches(local_hashes, matches);
        matches.sort_unstable();
        let answer = with(local_hashes.len(), matches);
        if local_hashes.capacity() <= HASHES_KEPT {
            // Enough of them wait already: one less.
            drop(self.idle.0.try_send(lookup));
        }
        answer
    }
}
