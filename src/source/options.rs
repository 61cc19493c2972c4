//! What an operator says of a source, and what is wrong with it in one sentence. Control plane.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{ConfigError, SourceConfig};

/// Bytes of a topic; longer ones are somebody else's.
pub(super) const TOPIC_BYTES_MAX: usize = 1024;
/// Bytes of an endpoint.
const ENDPOINT_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES: RangeInclusive<u32> = 1024..=1 << 30;
const QUEUE: RangeInclusive<u32> = 1..=1_000_000;
const REPLAY_TIME: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// What one publisher may cost.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SourceLimits {
    /// Bytes of a payload, and of each frame beside it: 1 KiB to 1 GiB. libzmq ends the connection over a longer one.
    pub message_bytes: u32,
    /// Messages that wait in the socket: 1 to 1,000,000. Beyond it the publisher's own queue fills, and then drops.
    pub queued_messages: u32,
    /// Blocks the source may hold: at least 1. See [`SourceConfig::blocks_max`].
    pub blocks: u32,
    /// Ranks it may bring: 1 to 1,024. See [`SourceConfig::ranks_max`].
    pub ranks: u32,
    /// How long a gap may be filled from a replay, whatever that brings: 1 second to an hour. What is missing then is lost.
    pub replay_time: Duration,
}

impl Default for SourceLimits {
    /// 64 MiB (a prompt of a million tokens takes a tenth), 1,000 messages, 16,777,216 blocks, 1,024 ranks, 60 seconds.
    fn default() -> Self {
        let SourceConfig { blocks_max, ranks_max, .. } = SourceConfig::new(0);
        Self {
            message_bytes: 64 << 20,
            queued_messages: 1000,
            blocks: blocks_max,
            ranks: ranks_max,
            replay_time: Duration::from_secs(60),
        }
    }
}

/// One publisher endpoint, and how to follow it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceOptions {
    /// Where it publishes: `tcp://HOST:PORT` or `ipc://PATH`. With `*` as host kvtap binds, for publishers that connect.
    pub endpoint: String,
    /// Where it answers replay requests, if it does.
    pub replay: Option<String>,
    /// Topic its messages must have, exactly. Empty takes the topic of the first message, until the connection is lost.
    pub topic: Vec<u8>,
    /// What its payloads mean.
    pub ingest: SourceConfig,
    /// How long a replay may say nothing before it is given up.
    pub replay_timeout: Duration,
    /// Messages that may wait in the socket.
    pub receive_queue: u32,
    /// How long a gap may be filled, whatever the replay brings.
    pub replay_time_max: Duration,
}

impl SourceOptions {
    /// No replay, any topic, 5 seconds of patience, the defaults of [`SourceConfig::new`], within the default
    /// [`SourceLimits`].
    #[must_use]
    pub fn new(endpoint: impl Into<String>, worker_id: u64) -> Self {
        let limits = SourceLimits::default();
        let mut options = Self {
            endpoint: endpoint.into(),
            replay: None,
            topic: Vec::new(),
            ingest: SourceConfig::new(worker_id),
            replay_timeout: Duration::from_secs(5),
            receive_queue: limits.queued_messages,
            replay_time_max: limits.replay_time,
        };
        options.limit(&limits);
        options
    }

    /// Sets what it may cost.
    pub fn limit(&mut self, limits: &SourceLimits) {
        self.ingest.payload_max = limits.message_bytes;
        self.ingest.blocks_max = limits.blocks;
        self.ingest.ranks_max = limits.ranks;
        self.receive_queue = limits.queued_messages;
        self.replay_time_max = limits.replay_time;
    }

    /// The same for another data-parallel rank, whose endpoints are those of rank 0 moved as the engines move them: port
    /// plus rank for TCP, `_dp` and the rank appended for inproc.
    ///
    /// # Errors
    /// If an endpoint cannot be moved.
    pub fn for_rank(&self, rank: u32) -> Result<Self, SourceError> {
        let mut moved = self.clone();
        moved.ingest.dp_rank = rank;
        moved.endpoint = endpoint_of_rank(&self.endpoint, rank)?;
        moved.replay = self.replay.as_deref().map(|replay| endpoint_of_rank(replay, rank)).transpose()?;
        Ok(moved)
    }

    /// Checks endpoints, topic, limits and what is said of the source.
    ///
    /// # Errors
    /// If an endpoint cannot be connected to, or something is out of its range.
    pub fn check(&self) -> Result<(), SourceError> {
        check_endpoint(&self.endpoint)?;
        self.ingest.check()?;
        if self.topic.len() > TOPIC_BYTES_MAX {
            return Err(Problem::Topic(self.topic.len()).into());
        }
        if !MESSAGE_BYTES.contains(&self.ingest.payload_max) {
            return Err(Problem::MessageBytes(self.ingest.payload_max).into());
        }
        if !QUEUE.contains(&self.receive_queue) {
            return Err(Problem::Queue(self.receive_queue).into());
        }
        if !REPLAY_TIME.contains(&self.replay_time_max) {
            return Err(Problem::ReplayTime(self.replay_time_max).into());
        }
        self.replay.as_deref().map_or(Ok(()), check_endpoint)
    }
}

fn endpoint_of_rank(endpoint: &str, rank: u32) -> Result<String, SourceError> {
    if rank == 0 {
        return Ok(endpoint.to_owned());
    }
    if endpoint.starts_with("inproc://") {
        return Ok(format!("{endpoint}_dp{rank}"));
    }
    let moved = endpoint.strip_prefix("tcp://").and_then(|address| {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse::<u16>().ok()?.checked_add(u16::try_from(rank).ok()?)?;
        Some(format!("tcp://{host}:{port}"))
    });
    moved.ok_or_else(|| Problem::Rank(endpoint.to_owned(), rank).into())
}

/// Whether publishers connect to us there.
pub(super) fn binds(endpoint: &str) -> bool {
    endpoint.starts_with("tcp://*:")
}

pub(super) fn check_endpoint(endpoint: &str) -> Result<(), SourceError> {
    let known = match endpoint.split_once("://") {
        Some(("tcp", address)) => address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)),
        Some(("ipc", path)) => !path.is_empty(),
        _ => false,
    };
    if known && endpoint.len() <= ENDPOINT_BYTES_MAX && !endpoint.contains('\0') {
        Ok(())
    } else {
        let shown = &endpoint[..endpoint.floor_char_boundary(ENDPOINT_BYTES_MAX)];
        Err(Problem::Endpoint(shown.to_owned()).into())
    }
}

/// Why a source cannot be followed; displays as one sentence.
#[derive(Debug)]
pub struct SourceError(Problem);

#[derive(Debug)]
pub(super) enum Problem {
    Endpoint(String),
    Topic(usize),
    MessageBytes(u32),
    Queue(u32),
    ReplayTime(Duration),
    Rank(String, u32),
    Listeners(usize),
    Full,
    /// libzmq does not take this endpoint, although it looks like one.
    Connect(String, &'static str),
    /// Its port is taken, perhaps.
    Bind(String, &'static str),
    Transport(String, &'static str),
    Config(ConfigError),
    Thread(io::Error),
    Ended,
}

impl SourceError {
    /// Whether the options are at fault, and not what became of them.
    #[must_use]
    pub const fn is_bad_option(&self) -> bool {
        match self.0 {
            Problem::Endpoint(_)
            | Problem::Connect(..)
            | Problem::Bind(..)
            | Problem::Topic(_)
            | Problem::MessageBytes(_)
            | Problem::Queue(_)
            | Problem::ReplayTime(_)
            | Problem::Rank(..)
            | Problem::Listeners(_)
            | Problem::Config(_) => true,
            Problem::Full | Problem::Transport(..) | Problem::Thread(_) | Problem::Ended => false,
        }
    }
}

impl From<Problem> for SourceError {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<ConfigError> for SourceError {
    fn from(error: ConfigError) -> Self {
        Self(Problem::Config(error))
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Problem::Endpoint(endpoint) => {
                write!(f, "'{}' is no endpoint: tcp://HOST:PORT or ipc://PATH", endpoint.escape_debug())
            }
            Problem::Topic(bytes) => {
                write!(f, "a topic may have {TOPIC_BYTES_MAX} bytes, not {bytes}")
            }
            Problem::MessageBytes(bytes) => {
                let (least, most) = (MESSAGE_BYTES.start(), MESSAGE_BYTES.end());
                write!(f, "the bytes of a message must be {least} to {most}, not {bytes}")
            }
            Problem::Queue(messages) => {
                let (least, most) = (QUEUE.start(), QUEUE.end());
                write!(f, "the queued messages of a source must be {least} to {most}, not {messages}")
            }
            Problem::ReplayTime(time) => {
                write!(f, "the time for a replay must be 1 to 3600 seconds, not {}", time.as_secs_f64())
            }
            Problem::Rank(endpoint, rank) => {
                write!(f, "'{}' cannot be moved to rank {rank}", endpoint.escape_debug())
            }
            Problem::Listeners(threads) => write!(f, "listener threads must be 1 to 64, not {threads}"),
            Problem::Full => f.write_str("the listener threads follow as many sources as they can"),
            Problem::Connect(endpoint, error) => {
                write!(f, "'{}' cannot be connected to: {error}", endpoint.escape_debug())
            }
            Problem::Bind(endpoint, error) => {
                write!(f, "'{}' cannot be bound: {error}", endpoint.escape_debug())
            }
            Problem::Transport(what, error) => write!(f, "{what}: {error}"),
            Problem::Config(error) => error.fmt(f),
            Problem::Thread(error) => write!(f, "a listener thread could not be started: {error}"),
            Problem::Ended => f.write_str("the listener threads have ended"),
        }
    }
}

impl std::error::Error for SourceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_move_ports_as_the_engines_do() {
        let mut options = SourceOptions::new("tcp://host:5557", 1);
        options.replay = Some("tcp://[::1]:6000".to_owned());
        let moved = options.for_rank(3).unwrap();
        assert_eq!(
            (moved.endpoint.as_str(), moved.replay.as_deref()),
            ("tcp://host:5560", Some("tcp://[::1]:6003"))
        );
        assert_eq!(moved.ingest.dp_rank, 3);
        assert_eq!(endpoint_of_rank("inproc://x", 2).unwrap(), "inproc://x_dp2");
        assert_eq!(endpoint_of_rank("ipc://x", 0).unwrap(), "ipc://x");
        for (endpoint, rank) in [("ipc://x", 1), ("tcp://h:65535", 1), ("tcp://h:1", 70_000), ("tcp://h", 1)]
        {
            assert!(endpoint_of_rank(endpoint, rank).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn endpoints_are_checked() {
        for good in
            ["tcp://127.0.0.1:5557", "tcp://*:1", "tcp://[::1]:65535", "ipc:///tmp/x", "ipc://@abstract"]
        {
            check_endpoint(good).unwrap();
        }
        for bad in [
            "",
            "host:1",
            "tcp://",
            "tcp://host",
            "tcp://:1",
            "tcp://h:0",
            "tcp://h:65536",
            "udp://h:1",
            "ipc://",
        ] {
            let error = check_endpoint(bad).unwrap_err();
            assert!(error.is_bad_option() && error.to_string().contains("tcp://HOST:PORT"), "{bad}");
        }
    }
}
