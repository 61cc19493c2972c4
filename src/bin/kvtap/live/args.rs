//! Command lines of the live commands, and the SPEC by which a source is named.

#[cfg(feature = "server")]
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::value_parser;
use kvtap::source::SourceOptions;
use kvtap::{Copies, DigestHalf};

/// Engines have a few ranks; one source may bring 1,024.
const RANKS_MAX: u32 = 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// A publisher to follow: ENDPOINT[,worker=N][,dp_rank=N][,ranks=N][,replay=ENDPOINT][,block_size=N][,model=NAME]
    /// [,group=NAME][,topic=TOPIC][,copies=count|set][,digest=low|high]; the worker is the position of the flag, from 0,
    /// unless given
    #[arg(long = "source", value_name = "SPEC", value_parser = read_spec, env = "KVTAP_SOURCES", value_delimiter = ' ')]
    pub(crate) sources: Vec<Spec>,
    /// End after so many seconds, instead of at SIGINT or SIGTERM
    #[arg(long = "for", value_name = "SECONDS", value_parser = read_seconds)]
    pub(crate) duration: Option<Duration>,
    /// Index shards, each with a thread of its own
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=64), env = "KVTAP_SHARDS")]
    pub(crate) shards: Option<u8>,
    /// Answer queries over HTTP there; publishers can then register as well
    #[cfg(feature = "server")]
    #[arg(long, value_name = "ADDRESS", env = "KVTAP_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    /// Settings and sources (TOML); flags, then the environment count before them
    #[cfg(feature = "server")]
    #[arg(long, value_name = "FILE", env = "KVTAP_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Another instance, as http://HOST:PORT: at the start, the first that answers tells what it holds
    #[cfg(feature = "server")]
    #[arg(long = "peer", value_name = "URL", value_parser = read_peer, env = "KVTAP_PEERS", value_delimiter = ' ')]
    pub(crate) peers: Vec<kvtap::server::PeerUrl>,
    /// Lines on stderr up to this level: error, warn, info (unless given) or debug (requests, too)
    #[arg(long, value_name = "LEVEL", value_parser = read_level, env = "KVTAP_LOG")]
    pub(crate) log: Option<log::LevelFilter>,
    /// Print one JSON object at the end instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CaptureArgs {
    /// Where the engine publishes: tcp://HOST:PORT or ipc://PATH
    #[arg(value_name = "ENDPOINT", value_parser = read_endpoint)]
    pub(crate) endpoint: String,
    /// The capture to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// End after so many seconds, instead of at SIGINT or SIGTERM
    #[arg(long, value_name = "S", value_parser = read_seconds, conflicts_with = "batches")]
    pub(crate) seconds: Option<Duration>,
    /// End after so many batches
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(crate) batches: Option<u64>,
    /// Only messages whose topic starts so
    #[arg(long, value_name = "TOPIC", default_value = "")]
    pub(crate) topic: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Where the engine publishes: tcp://HOST:PORT or ipc://PATH
    #[arg(value_name = "ENDPOINT", value_parser = read_endpoint)]
    pub(crate) endpoint: String,
    /// How long to listen
    #[arg(long, value_name = "S", default_value = "5", value_parser = read_seconds)]
    pub(crate) seconds: Duration,
    /// Where it answers replay requests
    #[arg(long, value_name = "ENDPOINT", value_parser = read_endpoint)]
    pub(crate) replay: Option<String>,
    /// Tokens per block, as the router would be configured
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=65536))]
    pub(crate) block_size: u32,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// A source as the command line names it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    options: SourceOptions,
    worker: Option<u64>,
    ranks: u32,
    #[cfg(feature = "server")]
    partition: kvtap::server::PartitionId,
}

impl Spec {
    /// What the endpoint says, and the defaults.
    pub(super) fn new(endpoint: &str) -> Self {
        Self {
            options: SourceOptions::new(endpoint, 0),
            worker: None,
            ranks: 1,
            #[cfg(feature = "server")]
            partition: kvtap::server::PartitionId {
                model_name: "default".to_owned(),
                routing_group: "default".to_owned(),
            },
        }
    }

    /// Where its blocks count.
    #[cfg(feature = "server")]
    pub(super) const fn partition(&self) -> &kvtap::server::PartitionId {
        &self.partition
    }

    /// Checks what no value shows by itself.
    pub(super) fn check(&self) -> Result<(), String> {
        self.options.check().map_err(|error| error.to_string())?;
        // Whether every rank has an endpoint shows only when it is moved there.
        self.sources(0).map(drop).map_err(|error| error.to_string())
    }

    /// One source per rank, for the worker at this position of the command line.
    pub(crate) fn sources(&self, position: u64) -> anyhow::Result<Vec<SourceOptions>> {
        let mut first = self.options.clone();
        first.ingest.worker_id = self.worker.unwrap_or(position);
        let start = first.ingest.dp_rank;
        if self.ranks == 1 {
            return Ok(vec![first]);
        }
        let ranks = start..start.saturating_add(self.ranks);
        Ok(ranks.map(|rank| first.for_rank(rank)).collect::<Result<_, _>>()?)
    }
}

fn read_spec(spec: &str) -> Result<Spec, String> {
    let mut parts = spec.split(',');
    let endpoint = parts.next().unwrap_or_default();
    let mut read = Spec::new(endpoint);
    let mut seen = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("'{part}' is not KEY=VALUE"))?;
        if seen.contains(&key) {
            return Err(format!("{key} is given twice"));
        }
        seen.push(key);
        read.set(key, value)?;
    }
    read.check()?;
    Ok(read)
}

impl Spec {
    /// Sets one option from its text.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let ingest = &mut self.options.ingest;
        match key {
            "worker" => self.worker = Some(number(key, value, 0..=u64::MAX)?),
            "dp_rank" => ingest.dp_rank = small(key, value, 0, u32::MAX - RANKS_MAX)?,
            "ranks" => self.ranks = small(key, value, 1, RANKS_MAX)?,
            "block_size" => ingest.block_size = small(key, value, 1, 65_536)?,
            "replay" => self.options.replay = Some(value.to_owned()),
            "topic" => self.options.topic = value.as_bytes().to_vec(),
            #[cfg(feature = "server")]
            "model" => value.clone_into(&mut self.partition.model_name),
            #[cfg(feature = "server")]
            "group" => value.clone_into(&mut self.partition.routing_group),
            // A note for the reader: without the service there is one index.
            #[cfg(not(feature = "server"))]
            "model" | "group" => {}
            "copies" => {
                ingest.copies = match value {
                    "count" => Copies::Count,
                    "set" => Copies::Set,
                    _ => return Err(format!("copies must be count or set, not '{value}'")),
                }
            }
            "digest" => {
                ingest.digest = match value {
                    "low" => DigestHalf::Low,
                    "high" => DigestHalf::High,
                    _ => return Err(format!("digest must be low or high, not '{value}'")),
                }
            }
            _ => {
                return Err(format!(
                    "'{key}' is no option of a source (worker, dp_rank, ranks, replay, block_size, model, group, \
                     topic, copies, digest)"
                ));
            }
        }
        Ok(())
    }
}

fn number(key: &str, value: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let parsed = value.parse().ok().filter(|number| range.contains(number));
    parsed.ok_or_else(|| format!("{key} must be {} to {}, not '{value}'", range.start(), range.end()))
}

fn small(key: &str, value: &str, first: u32, last: u32) -> Result<u32, String> {
    let number = number(key, value, u64::from(first)..=u64::from(last))?;
    u32::try_from(number).map_err(|_| format!("{key} is too large"))
}

#[cfg(feature = "server")]
fn read_peer(url: &str) -> Result<kvtap::server::PeerUrl, String> {
    url.parse().map_err(|error: kvtap::server::ServiceError| error.to_string())
}

pub(super) fn read_level(level: &str) -> Result<log::LevelFilter, String> {
    match level {
        "error" => Ok(log::LevelFilter::Error),
        "warn" => Ok(log::LevelFilter::Warn),
        "info" => Ok(log::LevelFilter::Info),
        "debug" => Ok(log::LevelFilter::Debug),
        _ => Err(format!("the log level must be error, warn, info or debug, not '{level}'")),
    }
}

fn read_endpoint(endpoint: &str) -> Result<String, String> {
    SourceOptions::new(endpoint, 0).check().map_err(|error| error.to_string())?;
    Ok(endpoint.to_owned())
}

fn read_seconds(seconds: &str) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 1e9;
    let read = seconds.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    read.map(Duration::from_secs_f64)
        .ok_or_else(|| format!("'{seconds}' is no number of seconds (0 to {SECONDS_MAX})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_says_all_of_a_source() {
        let spec = read_spec(
            "tcp://127.0.0.1:5557,worker=1,dp_rank=2,replay=tcp://127.0.0.1:5558,block_size=32,model=m,topic=kv,\
             copies=set,digest=high",
        );
        let options = &spec.unwrap().sources(9).unwrap()[0];
        assert_eq!(
            (options.endpoint.as_str(), options.topic.as_slice()),
            ("tcp://127.0.0.1:5557", &b"kv"[..])
        );
        assert_eq!(options.replay.as_deref(), Some("tcp://127.0.0.1:5558"));
        let ingest = &options.ingest;
        assert_eq!((ingest.worker_id, ingest.dp_rank, ingest.block_size), (1, 2, 32));
        assert_eq!((ingest.copies, ingest.digest), (Copies::Set, DigestHalf::High));
    }

    #[test]
    fn an_endpoint_is_enough() {
        let options = &read_spec("ipc:///tmp/kv").unwrap().sources(4).unwrap()[0];
        assert_eq!((options.ingest.worker_id, options.ingest.dp_rank, options.ingest.block_size), (4, 0, 16));
        assert_eq!((options.replay.as_deref(), options.topic.as_slice()), (None, &b""[..]));
    }

    #[test]
    fn ranks_are_sources_of_one_worker() {
        let sources =
            read_spec("tcp://h:5557,ranks=3,replay=tcp://h:6557,topic=").unwrap().sources(2).unwrap();
        let of = |options: &SourceOptions| {
            (options.endpoint.clone(), options.ingest.dp_rank, options.ingest.worker_id)
        };
        assert_eq!(of(&sources[2]), ("tcp://h:5559".to_owned(), 2, 2));
        assert_eq!(sources[2].replay.as_deref(), Some("tcp://h:6559"));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_sentence() {
        for (spec, part) in [
            ("", "endpoint"),
            ("worker=1", "endpoint"),
            ("tcp://h:1,worker", "KEY=VALUE"),
            ("tcp://h:1,worker=-1", "worker"),
            ("tcp://h:1,block_size=0", "1 to 65536"),
            ("tcp://h:1,block_size=65537", "1 to 65536"),
            ("tcp://h:1,copies=two", "count or set"),
            ("tcp://h:1,digest=mid", "low or high"),
            ("tcp://h:1,replay=nowhere", "endpoint"),
            ("tcp://h:1,colour=red", "no option"),
            ("tcp://h:1,topic=a,topic=b", "twice"),
            ("tcp://h:65535,ranks=2", "rank 1"),
            ("ipc://x,ranks=2", "rank 1"),
        ] {
            let error = read_spec(spec).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{spec}: {error}");
        }
        for bad in ["-1", "x", "", "nan", "inf", "1e10"] {
            assert!(read_seconds(bad).is_err(), "{bad}");
        }
    }
}
