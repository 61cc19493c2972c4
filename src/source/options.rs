//! What an operator says of a source, and what is wrong with it in one sentence. Control plane.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::{ConfigError, SourceConfig};

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
}

impl SourceOptions {
    /// No replay, any topic, 5 seconds of patience, 1,000 waiting messages, the defaults of [`SourceConfig::new`].
    #[must_use]
    pub fn new(endpoint: impl Into<String>, worker_id: u64) -> Self {
        Self {
            endpoint: endpoint.into(),
            replay: None,
            topic: Vec::new(),
            ingest: SourceConfig::new(worker_id),
            replay_timeout: Duration::from_secs(5),
            receive_queue: 1000,
        }
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

    /// Checks the endpoints.
    ///
    /// # Errors
    /// If one of them cannot be connected to.
    pub fn check(&self) -> Result<(), SourceError> {
        check_endpoint(&self.endpoint)?;
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
    if known && !endpoint.contains('\0') {
        Ok(())
    } else {
        Err(Problem::Endpoint(endpoint.to_owned()).into())
    }
}

/// Why a source cannot be followed; displays as one sentence.
#[derive(Debug)]
pub struct SourceError(Problem);

#[derive(Debug)]
pub(super) enum Problem {
    Endpoint(String),
    Rank(String, u32),
    Listeners(usize),
    Full,
    /// libzmq does not take this endpoint, although it looks like one.
    Connect(String, &'static str),
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
            Problem::Rank(endpoint, rank) => {
                write!(f, "'{}' cannot be moved to rank {rank}", endpoint.escape_debug())
            }
            Problem::Listeners(threads) => write!(f, "listener threads must be 1 to 64, not {threads}"),
            Problem::Full => f.write_str("the listener threads follow as many sources as they can"),
            Problem::Connect(endpoint, error) => {
                write!(f, "'{}' cannot be connected to: {error}", endpoint.escape_debug())
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
