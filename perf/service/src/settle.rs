//! A worker that servers follow, and knowing when all of them have applied what it published.
//!
//! Each server applies a rank's events at one tier in order, on threads of its own. So a prompt whose blocks lie at one tier each,
//! published last, is found whole when everything before it has been applied.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::publish::{Publisher, batch, stored_event};
use crate::{PATIENCE_MS, post};

/// One medium for each tier, nearest first.
const MEDIA: [&str; 4] = ["GPU", "CPU_PINNED", "DISK", "EXTERNAL"];
/// Marks of this process so far: no two are the same prompt.
static MARKS: AtomicU32 = AtomicU32::new(0);

/// A worker's publisher, and who follows it.
pub struct Source {
    publisher: Publisher,
    servers: Vec<SocketAddr>,
    registration: Json,
    block_size: u32,
}

impl Source {
    /// Registers a worker, whose endpoint is added, and waits until all are subscribed.
    pub fn register(servers: &[SocketAddr], mut registration: Json) -> Self {
        let publisher = Publisher::bind();
        registration["endpoint"] = publisher.endpoint.clone().into();
        for &server in servers {
            let answer = post(server, "/register", &registration);
            assert_eq!(answer, (201, json!({"status": "ok"})), "{registration}");
            publisher.wait_for_subscriber();
        }
        let block_size = registration["block_size"].as_u64().expect("a size");
        let block_size = u32::try_from(block_size).expect("a small size");
        Self { publisher, servers: servers.to_vec(), registration, block_size }
    }

    /// Publishes one batch.
    pub fn send(&mut self, payload: &[u8]) {
        self.publisher.send(payload);
    }

    /// Waits until every server has applied all that was published on these ranks.
    pub fn settle(&mut self, ranks: impl IntoIterator<Item = u32>) {
        for dp_rank in ranks {
            let mark = Mark { number: MARKS.fetch_add(1, Ordering::Relaxed), block_size: self.block_size };
            self.send(&mark.batch(dp_rank));
            self.servers.iter().for_each(|&server| mark.wait(server, &self.registration));
        }
    }

    /// The registration, with its endpoint.
    pub fn registration(&self) -> &Json {
        &self.registration
    }
}

/// A prompt that nobody else has, one block at each tier.
struct Mark {
    number: u32,
    block_size: u32,
}

impl Mark {
    fn tokens(&self, block: u32) -> Vec<u32> {
        // Beyond every vocabulary.
        vec![0x8000_0000 + self.number * 4 + block; self.block_size as usize]
    }

    fn hash(&self, block: u32) -> u64 {
        0xfeed_0000_0000_0000 + u64::from(self.number * 4 + block)
    }

    fn batch(&self, dp_rank: u32) -> Vec<u8> {
        let event = |(block, medium): (u32, &str)| {
            let parent = (block > 0).then(|| self.hash(block - 1));
            stored_event(&[self.hash(block)], parent, &self.tokens(block), (self.block_size, medium))
        };
        batch((0..).zip(MEDIA).map(event).collect(), Some(dp_rank))
    }

    /// Waits until a server shows it whole.
    fn wait(&self, server: SocketAddr, registration: &Json) {
        let tokens: Vec<u32> = (0..4).flat_map(|block| self.tokens(block)).collect();
        let mut body = json!({"token_ids": tokens, "model_name": registration["model_name"]});
        if let Some(group) = registration.get("routing_group") {
            body["routing_group"] = group.clone();
        }
        let worker = registration["instance_id"].to_string();
        let end = Instant::now() + Duration::from_millis(PATIENCE_MS.unsigned_abs().into());
        loop {
            let (status, answer) = post(server, "/query", &body);
            if answer["instances"][&worker]["disk"] == json!(4 * self.block_size) {
                return;
            }
            assert!(Instant::now() < end, "{registration}: {status} {answer}");
            std::thread::yield_now();
        }
    }
}
