//! The single writer of a part of the index: receives record batches, applies them in order.

mod table;

use std::sync::Arc;
#[expect(
    clippy::disallowed_types,
    reason = "a reader looks into a table while its one writer waits, a batch at most"
)]
use std::sync::RwLock;

use ahash::RandomState;

use crate::channel::{Inlet, Message};
use crate::ids::PrefixHash;
pub(crate) use table::Table;

/// A shard's table as readers and the writer share it.
#[expect(clippy::disallowed_types, reason = "see the import")]
pub(crate) type SharedTable = Arc<RwLock<Table>>;

/// Starts a shard; its thread ends when every sender is gone.
pub(crate) fn start(inlet: Inlet, hasher: RandomState, number: usize) -> std::io::Result<SharedTable> {
    #[expect(clippy::disallowed_types, reason = "see the import")]
    let table: SharedTable = Arc::new(RwLock::new(Table::new(hasher)));
    let shared = Arc::clone(&table);
    std::thread::Builder::new().name(format!("kvtap-shard-{number}")).spawn(move || run(&inlet, &shared))?;
    Ok(table)
}

fn run(inlet: &Inlet, table: &SharedTable) {
    while let Some(message) = inlet.receive() {
        match message {
            Message::Records(batch) => {
                let mut table = table.write().unwrap_or_else(std::sync::PoisonError::into_inner);
                for &record in &batch {
                    table.apply(record);
                }
                drop(table);
                inlet.recycle(batch);
            }
            Message::Flush(sign) => drop(sign),
        }
    }
}

/// Which of `shards` keeps a block. Prefix hashes are uniform, so their upper half is too.
pub(crate) fn shard_of(prefix_hash: PrefixHash, shards: usize) -> usize {
    (((prefix_hash.0 >> 32) * shards as u64) >> 32) as usize
}
