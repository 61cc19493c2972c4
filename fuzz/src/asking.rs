//! Asking a service without sockets, and the shape of its answers: what the targets about it share.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Blocks of a prompt on the device; there or in host memory; there or on disk; anywhere.
pub(crate) type Depths = [u32; 4];

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Status and body of the answer.
pub(crate) fn send(runtime: &Runtime, router: &Router, request: Request<Body>) -> (u16, Vec<u8>) {
    let router = router.clone();
    runtime.block_on(async move {
        let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
        let status = response.status().as_u16();
        (status, to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.expect("a body").to_vec())
    })
}

/// What a query is answered if these ranks of these workers hold so much, in the shape that routers know.
pub(crate) fn answer(block_size: u32, held: impl IntoIterator<Item = ((u64, u32), Depths)>) -> Value {
    let (mut scores, mut instances) = (Map::new(), Map::new());
    for ((worker, rank), depths) in held {
        let [device, host, _, all] = depths.map(|depth| u64::from(depth * block_size));
        let (worker, rank) = (worker.to_string(), rank.to_string());
        if device > 0 {
            let ranks = scores.entry(worker.clone()).or_insert_with(|| json!({}));
            ranks[rank.as_str()] = device.into();
        }
        let none = || json!({"longest_matched": 0, "gpu": 0, "dp": {}, "cpu": 0, "disk": 0});
        let instance = instances.entry(worker).or_insert_with(none);
        instance["dp"][rank.as_str()] = device.into();
        for (key, depth) in [("gpu", device), ("cpu", host), ("disk", all), ("longest_matched", all)] {
            let known = instance[key].as_u64().unwrap_or_default();
            instance[key] = known.max(depth).into();
        }
    }
    json!({"scores": scores, "frequencies": [], "instances": instances})
}
