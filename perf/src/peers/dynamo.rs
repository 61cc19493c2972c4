//! dynamo-kv-router: `decode_event_batch`, then `ZmqEventNormalizer::normalize` for every event, as its listener does.
//!
//! Its events are then read once to append records, which every other system has to do as well.

use dynamo_kv_router::protocols::{KvCacheEventData, WorkerWithDpRank};
use dynamo_kv_router::zmq_wire::{ZmqEventNormalizer, decode_event_batch};

use super::System;
use crate::support::cases::Case;
use crate::support::payload::{Payload, Record};

pub(crate) const NAME: &str = "dynamo";

pub(super) struct Dynamo {
    normalizer: ZmqEventNormalizer,
    event_id: u64,
}

impl Dynamo {
    pub(super) fn new(case: &Case) -> Self {
        let block_size = u32::try_from(case.block_size).expect("a small block");
        Self { normalizer: ZmqEventNormalizer::new(block_size), event_id: 0 }
    }
}

impl System for Dynamo {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn decode(&mut self, payload: &Payload, records: &mut Vec<Record>) {
        let batch = decode_event_batch(&payload.bytes).expect("a sound payload");
        let dp_rank = batch.data_parallel_rank.unwrap_or(0).cast_unsigned();
        let worker = WorkerWithDpRank::new(7, dp_rank);
        for raw in batch.events {
            self.event_id += 1;
            let Some(placement) = self.normalizer.normalize(raw, self.event_id, worker) else { continue };
            match &placement.event.data {
                KvCacheEventData::Stored(stored) => records.extend(stored.blocks.iter().map(|block| {
                    Record { engine_hash: block.block_hash.0, local_hash: block.tokens_hash.0 }
                })),
                KvCacheEventData::Removed(removed) => {
                    let hashes = removed.block_hashes.iter();
                    records.extend(hashes.map(|hash| Record { engine_hash: hash.0, local_hash: 0 }));
                }
                KvCacheEventData::Cleared => {}
            }
        }
    }
}
