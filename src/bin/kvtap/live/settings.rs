//! What `serve` is to do: flags, then the environment (clap sees to both), then the file.

use kvtap::Config;
use kvtap::source::SourceLimits;
use log::LevelFilter;

use super::args::{ServeArgs, Spec};

const SHARDS: u8 = 2;

pub(super) struct Settings {
    #[cfg(feature = "server")]
    pub(super) listen: Option<std::net::SocketAddr>,
    #[cfg(feature = "server")]
    pub(super) listeners: Option<u8>,
    #[cfg(feature = "server")]
    pub(super) peers: Vec<kvtap::server::PeerUrl>,
    #[cfg(feature = "server")]
    pub(super) limits: super::limits::Limits,
    pub(super) log: LevelFilter,
    pub(super) shards: u8,
    /// Those of one place: flags or the environment replace the file's.
    pub(super) sources: Vec<Spec>,
}

impl Settings {
    /// What each source may cost.
    pub(super) fn source_limits(&self) -> SourceLimits {
        #[cfg(feature = "server")]
        {
            self.limits.of_sources()
        }
        #[cfg(not(feature = "server"))]
        SourceLimits::default()
    }

    /// What the one index is made of, without the service.
    pub(super) fn engine(&self) -> Config {
        let mut config = Config::default();
        config.shards = self.shards.into();
        #[cfg(feature = "server")]
        if let Some(bytes) = self.limits.shard_bytes() {
            config.shard_bytes = bytes;
        }
        config
    }

    #[cfg(feature = "server")]
    pub(super) fn new(args: &ServeArgs) -> anyhow::Result<Self> {
        let file = args.config.as_deref().map(super::file::read).transpose()?.unwrap_or_default();
        let listen = args.listen.or(file.listen);
        let peers = if args.peers.is_empty() { file.peers } else { args.peers.clone() };
        if listen.is_none() && !peers.is_empty() {
            return Err(super::file::FileError::new("peers are of use only to a service: --listen").into());
        }
        Ok(Self {
            listen,
            peers,
            log: args.log.or(file.log).unwrap_or(LevelFilter::Info),
            listeners: file.listeners,
            limits: file.limits,
            shards: args.shards.or(file.shards).unwrap_or(SHARDS),
            sources: if args.sources.is_empty() { file.sources } else { args.sources.clone() },
        })
    }

    #[cfg(not(feature = "server"))]
    #[expect(clippy::unnecessary_wraps, reason = "the file can be wrong")]
    pub(super) fn new(args: &ServeArgs) -> anyhow::Result<Self> {
        Ok(Self {
            log: args.log.unwrap_or(LevelFilter::Info),
            shards: args.shards.unwrap_or(SHARDS),
            sources: args.sources.clone(),
        })
    }
}
