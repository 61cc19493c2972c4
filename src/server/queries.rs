//! `/query` and `/query_by_hash`: shapes, and the way from a body to an answer. Scores are in tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::body::Body;
use super::metrics::Endpoint;
use super::partition::{PartitionId, Question};
use super::problem::ServiceError;
use super::service::Service;
use crate::{Match, Prompt, Tier};

/// Bodies up to this long are answered where they were received: to hand them over takes longer.
const INLINE_BODY_BYTES: usize = 64 << 10;

pub(super) fn default_routing_group() -> String {
    "default".to_owned()
}

/// Dynamo's clients may send `tenant_id` besides; it says nothing, there as here.
#[derive(Debug, Deserialize)]
struct QueryRequest {
    token_ids: Vec<u32>,
    model_name: String,
    #[serde(default = "default_routing_group")]
    routing_group: String,
    lora_name: Option<String>,
    cache_salt: Option<String>,
    /// Beyond Dynamo's: workers with EAGLE publish windows of one token more.
    #[serde(default)]
    bigram: bool,
    /// Beyond Dynamo's: tell what the index says besides, which `instances` only sums up.
    #[serde(default)]
    depths: bool,
}

#[derive(Debug, Deserialize)]
struct QueryByHashRequest {
    /// Local hashes as signed integers.
    block_hashes: Vec<i64>,
    model_name: String,
    #[serde(default = "default_routing_group")]
    routing_group: String,
    cache_salt: Option<String>,
}

/// Numbers as keys become strings in JSON.
#[derive(Debug, Default, Serialize)]
pub(super) struct Answer {
    /// Device tier, by worker and rank; those without a match left out.
    scores: BTreeMap<u64, BTreeMap<u32, u32>>,
    /// Nothing counts them; Dynamo's clients expect the key.
    frequencies: [u32; 0],
    instances: BTreeMap<u64, Instance>,
    /// If they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    depths: Option<Depths>,
}

/// The index's own answer, in blocks.
#[derive(Debug, Serialize)]
struct Depths {
    block_size: u32,
    /// Complete blocks of the prompt.
    blocks: usize,
    matches: Vec<Depth>,
}

/// One rank; each depth includes the tiers before it.
#[derive(Debug, Serialize)]
struct Depth {
    instance_id: u64,
    dp_rank: u32,
    device: u32,
    host_pinned: u32,
    disk: u32,
    external: u32,
}

impl Depths {
    fn new(blocks: usize, matches: &[Match], block_size: u32) -> Self {
        let depth = |found: &Match| {
            let [device, host_pinned, disk, external] = found.depths;
            let (instance_id, dp_rank) = (found.worker.worker_id, found.worker.dp_rank);
            Depth { instance_id, dp_rank, device, host_pinned, disk, external }
        };
        Self { block_size, blocks, matches: matches.iter().map(depth).collect() }
    }
}

/// A worker: each number is the best of its ranks, and includes the tiers before it.
#[derive(Debug, Default, Serialize)]
struct Instance {
    longest_matched: u32,
    gpu: u32,
    /// Device tier by rank.
    dp: BTreeMap<u32, u32>,
    cpu: u32,
    disk: u32,
}

impl Answer {
    fn new(matches: &[Match], block_size: u32) -> Self {
        let mut answer = Self::default();
        for found in matches {
            let tokens = |tier| found.depth(tier).saturating_mul(block_size);
            let (worker_id, dp_rank) = (found.worker.worker_id, found.worker.dp_rank);
            let device = tokens(Tier::Device);
            if device > 0 {
                answer.scores.entry(worker_id).or_default().insert(dp_rank, device);
            }
            let instance = answer.instances.entry(worker_id).or_default();
            instance.dp.insert(dp_rank, device);
            instance.gpu = instance.gpu.max(device);
            instance.cpu = instance.cpu.max(tokens(Tier::HostPinned));
            instance.disk = instance.disk.max(tokens(Tier::External));
            instance.longest_matched = instance.longest_matched.max(instance.disk);
        }
        answer
    }
}

pub(super) async fn query(
    State(service): State<Arc<Service>>,
    body: Result<Body, ServiceError>,
) -> Result<Response, ServiceError> {
    answer(service, body?, Endpoint::Query, by_tokens).await
}

pub(super) async fn query_by_hash(
    State(service): State<Arc<Service>>,
    body: Result<Body, ServiceError>,
) -> Result<Response, ServiceError> {
    answer(service, body?, Endpoint::QueryByHash, by_hashes).await
}

type Work = fn(&Service, &Body) -> Result<Answer, ServiceError>;

async fn answer(
    service: Arc<Service>,
    body: Body,
    endpoint: Endpoint,
    work: Work,
) -> Result<Response, ServiceError> {
    let start = Instant::now();
    let answer = if body.len() <= INLINE_BODY_BYTES {
        work(&service, &body)?
    } else {
        let service = Arc::clone(&service);
        let done = tokio::task::spawn_blocking(move || work(&service, &body)).await;
        done.map_err(ServiceError::internal)??
    };
    let response = Json(answer).into_response();
    service.latencies.observe(endpoint, start.elapsed());
    Ok(response)
}

fn by_tokens(service: &Service, body: &Body) -> Result<Answer, ServiceError> {
    let request: QueryRequest = body.read()?;
    body.is_about(&request.model_name);
    let id = PartitionId { model_name: request.model_name, routing_group: request.routing_group };
    let partition = service.find(&id).ok_or_else(|| ServiceError::no_partition(&id))?;
    let prompt = Prompt {
        token_ids: &request.token_ids,
        block_size: partition.block_size,
        lora_name: request.lora_name.as_deref(),
        cache_salt: request.cache_salt.as_deref(),
        bigram: request.bigram,
    };
    let block_size = partition.block_size;
    Ok(partition.answer(Question::Tokens(prompt), |blocks, matches| {
        let depths = request.depths.then(|| Depths::new(blocks, matches, block_size));
        Answer { depths, ..Answer::new(matches, block_size) }
    }))
}

fn by_hashes(service: &Service, body: &Body) -> Result<Answer, ServiceError> {
    let request: QueryByHashRequest = body.read()?;
    body.is_about(&request.model_name);
    if request.cache_salt.is_some() {
        return Err(ServiceError::bad_request(
            "cache_salt is not accepted by /query_by_hash; block_hashes must already include the intended cache salt",
        ));
    }
    let id = PartitionId { model_name: request.model_name, routing_group: request.routing_group };
    let partition = service.find(&id).ok_or_else(|| ServiceError::no_partition(&id))?;
    let question = Question::Hashes(&request.block_hashes);
    Ok(partition.answer(question, |_, matches| Answer::new(matches, partition.block_size)))
}
