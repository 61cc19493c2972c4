//! `/register`, `/unregister`, `/workers`, `/health`, `/ready`: who is followed. Work that may wait for listener threads is
//! done where waiting is allowed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::body::Body;
use super::partition::PartitionId;
use super::problem::ServiceError;
use super::queries::default_routing_group;
use super::service::{Registration, Service, Unregistration};
use crate::source::{SourceOptions, State as SourceState};
use crate::{Copies, DigestHalf};

/// The last four are beyond Dynamo's. `tenant_id` and `additional_salt` are taken and say nothing, there as here.
#[derive(Debug, Deserialize)]
struct RegisterRequest {
    instance_id: u64,
    endpoint: String,
    model_name: String,
    #[serde(default = "default_routing_group")]
    routing_group: String,
    block_size: u32,
    dp_rank: Option<u32>,
    replay_endpoint: Option<String>,
    topic: Option<String>,
    #[serde(default)]
    copies: CopiesName,
    #[serde(default)]
    digest: DigestName,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CopiesName {
    #[default]
    Count,
    Set,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DigestName {
    #[default]
    Low,
    High,
}

impl From<RegisterRequest> for Registration {
    fn from(request: RegisterRequest) -> Self {
        let mut options = SourceOptions::new(request.endpoint, request.instance_id);
        options.replay = request.replay_endpoint;
        options.topic = request.topic.unwrap_or_default().into_bytes();
        options.ingest.dp_rank = request.dp_rank.unwrap_or(0);
        options.ingest.block_size = request.block_size;
        options.ingest.copies = match request.copies {
            CopiesName::Count => Copies::Count,
            CopiesName::Set => Copies::Set,
        };
        options.ingest.digest = match request.digest {
            DigestName::Low => DigestHalf::Low,
            DigestName::High => DigestHalf::High,
        };
        let partition = PartitionId { model_name: request.model_name, routing_group: request.routing_group };
        Self { partition, options }
    }
}

#[derive(Debug, Deserialize)]
struct UnregisterRequest {
    instance_id: u64,
    model_name: String,
    routing_group: Option<String>,
    dp_rank: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Done {
    status: &'static str,
}

pub(super) const DONE: Json<Done> = Json(Done { status: "ok" });

pub(super) async fn register(
    State(service): State<Arc<Service>>,
    body: Result<Body, ServiceError>,
) -> Result<Response, ServiceError> {
    let body = body?;
    let request: RegisterRequest = body.read()?;
    body.is_about(&request.model_name);
    let registration = request.into();
    off_the_loop(move || service.register(registration)).await??;
    Ok((StatusCode::CREATED, DONE).into_response())
}

pub(super) async fn unregister(
    State(service): State<Arc<Service>>,
    body: Result<Body, ServiceError>,
) -> Result<Response, ServiceError> {
    let body = body?;
    let UnregisterRequest { instance_id, model_name, routing_group, dp_rank } = body.read()?;
    body.is_about(&model_name);
    let which = Unregistration { worker_id: instance_id, model_name, routing_group, dp_rank };
    off_the_loop(move || service.unregister(&which)).await??;
    Ok(DONE.into_response())
}

/// Runs what may wait.
pub(super) async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ServiceError> {
    tokio::task::spawn_blocking(work).await.map_err(ServiceError::internal)
}

/// Filters of `/workers`; each may be left out.
#[derive(Debug, Deserialize)]
pub(super) struct WorkersQuery {
    model_name: Option<String>,
    routing_group: Option<String>,
}

#[derive(Debug, Serialize)]
struct WorkerEntry {
    instance_id: u64,
    source: &'static str,
    status: Link,
    model_name: String,
    routing_group: String,
    block_size: u32,
    endpoints: BTreeMap<u32, String>,
    listeners: BTreeMap<u32, ListenerEntry>,
}

#[derive(Debug, Serialize)]
struct ListenerEntry {
    endpoint: String,
    status: Link,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Dynamo's words for a listener, the worst last: a worker is what its worst rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Link {
    Active,
    Pending,
    Failed,
}

impl From<SourceState> for Link {
    fn from(state: SourceState) -> Self {
        match state {
            SourceState::Connecting => Self::Pending,
            SourceState::Live | SourceState::Replaying => Self::Active,
            SourceState::Disconnected | SourceState::Stopped => Self::Failed,
        }
    }
}

pub(super) async fn workers(
    State(service): State<Arc<Service>>,
    filter: Result<Query<WorkersQuery>, QueryRejection>,
) -> Result<Response, ServiceError> {
    let Query(filter) = filter?;
    let mut entries: BTreeMap<u64, WorkerEntry> = BTreeMap::new();
    for registered in service.registered() {
        let partition = &registered.partition;
        if !partition.id.is_of(filter.model_name.as_deref(), filter.routing_group.as_deref()) {
            continue;
        }
        let status = registered.source.status();
        let (worker, link) = (status.worker, Link::from(status.state));
        let entry = entries.entry(worker.worker_id).or_insert_with(|| WorkerEntry {
            instance_id: worker.worker_id,
            source: "zmq",
            status: link,
            model_name: partition.id.model_name.clone(),
            routing_group: partition.id.routing_group.clone(),
            block_size: partition.block_size,
            endpoints: BTreeMap::new(),
            listeners: BTreeMap::new(),
        });
        entry.status = entry.status.max(link);
        entry.endpoints.insert(worker.dp_rank, status.endpoint.clone());
        let listener =
            ListenerEntry { endpoint: status.endpoint, status: link, last_error: status.last_error };
        entry.listeners.insert(worker.dp_rank, listener);
    }
    Ok(Json(entries.into_values().collect::<Vec<_>>()).into_response())
}

/// The process answers; nothing more.
pub(super) async fn health() -> StatusCode {
    StatusCode::OK
}

/// Answers are worth asking for.
pub(super) async fn ready(State(service): State<Arc<Service>>) -> Result<Response, ServiceError> {
    service.ready()?;
    Ok(DONE.into_response())
}
