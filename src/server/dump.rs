//! `/dump`: all that is held, as the events that would bring it about, in Dynamo's shape. Asks every source in turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::control::off_the_loop;
use super::problem::ServiceError;
use super::service::Service;
use crate::{HeldBlock, Tier};

/// One partition, under `model:group`.
#[derive(Debug, Serialize)]
struct PartitionDump {
    block_size: u32,
    events: Vec<RouterEvent>,
}

#[derive(Debug, Serialize)]
struct RouterEvent {
    worker_id: u64,
    storage_tier: &'static str,
    event: Event,
}

#[derive(Debug, Serialize)]
struct Event {
    event_id: u64,
    data: Data,
    dp_rank: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Data {
    Stored(Stored),
}

#[derive(Debug, Serialize)]
struct Stored {
    parent_hash: Option<u64>,
    /// Dynamo's own dump leaves it open too.
    start_position: Option<u32>,
    blocks: Vec<Block>,
}

#[derive(Debug, Serialize)]
struct Block {
    block_hash: u64,
    tokens_hash: u64,
    /// The hash of the tokens has it already.
    mm_extra_info: Option<()>,
}

impl PartitionDump {
    /// Adds a source's blocks at one tier: an event for each stretch of a chain.
    fn add(&mut self, blocks: &[HeldBlock], tier: Tier) {
        let mut last = None;
        for held in blocks.iter().filter(|held| held.tiers[tier as usize]) {
            let block =
                Block { block_hash: held.engine_hash.0, tokens_hash: held.local_hash.0, mm_extra_info: None };
            let goes_on = last.is_some() && held.parent == last;
            last = Some(held.engine_hash);
            if let Some(RouterEvent { event: Event { data: Data::Stored(stored), .. }, .. }) =
                self.events.last_mut().filter(|_| goes_on)
            {
                stored.blocks.push(block);
                continue;
            }
            let parent_hash = held.parent.map(|parent| parent.0);
            let stored = Stored { parent_hash, start_position: None, blocks: vec![block] };
            self.events.push(RouterEvent {
                worker_id: held.worker.worker_id,
                storage_tier: tier.label(),
                event: Event {
                    event_id: self.events.len() as u64,
                    data: Data::Stored(stored),
                    dp_rank: held.worker.dp_rank,
                },
            });
        }
    }
}

fn dump(service: &Service) -> BTreeMap<String, PartitionDump> {
    let mut dumps = BTreeMap::new();
    for registered in service.registered() {
        let id = &registered.partition.id;
        let dump = dumps.entry(format!("{}:{}", id.model_name, id.routing_group)).or_insert_with(|| {
            PartitionDump { block_size: registered.partition.block_size, events: Vec::new() }
        });
        let blocks = registered.source.blocks().unwrap_or_default();
        // Device first: what lies lower may continue it.
        Tier::ALL.into_iter().for_each(|tier| dump.add(&blocks, tier));
    }
    dumps
}

pub(super) async fn dump_all(State(service): State<Arc<Service>>) -> Result<Response, ServiceError> {
    Ok(Json(off_the_loop(move || dump(&service)).await?).into_response())
}
