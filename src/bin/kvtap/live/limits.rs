//! `[limits]` of the configuration file: what publishers and clients may cost. Ranges are those of the library's options.

use kvtap::server::ServiceOptions;
use kvtap::source::SourceLimits;
use serde::de::{Deserialize, Deserializer, Error as _};

/// What the file says; the library's defaults for the rest.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    blocks: Option<Within<1, { u32::MAX }>>,
    ranks: Option<Within<1, 1024>>,
    message_bytes: Option<Within<1024, { 1 << 30 }>>,
    queued_messages: Option<Within<1, 1_000_000>>,
    replay_seconds: Option<Within<1, 3600>>,
    shard_mib: Option<Within<16, 8192>>,
    connections: Option<Within<1, 100_000>>,
    query_body_bytes: Option<Within<{ 64 << 10 }, { 1 << 30 }>>,
}

/// A number from the first to the last.
#[derive(Clone, Copy, Debug)]
struct Within<const FIRST: u32, const LAST: u32>(u32);

impl<'de, const FIRST: u32, const LAST: u32> Deserialize<'de> for Within<FIRST, LAST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let within = u32::try_from(number).ok().filter(|number| (FIRST..=LAST).contains(number));
        within
            .map(Self)
            .ok_or_else(|| D::Error::custom(format_args!("must be {FIRST} to {LAST}, not {number}")))
    }
}

impl Limits {
    pub(super) fn of_sources(&self) -> SourceLimits {
        let mut limits = SourceLimits::default();
        limits.blocks = self.blocks.map_or(limits.blocks, |it| it.0);
        limits.ranks = self.ranks.map_or(limits.ranks, |it| it.0);
        limits.message_bytes = self.message_bytes.map_or(limits.message_bytes, |it| it.0);
        limits.queued_messages = self.queued_messages.map_or(limits.queued_messages, |it| it.0);
        let seconds = self.replay_seconds.map(|it| std::time::Duration::from_secs(it.0.into()));
        limits.replay_time = seconds.unwrap_or(limits.replay_time);
        limits
    }

    /// `None`: as the library has it.
    pub(super) fn shard_bytes(&self) -> Option<u64> {
        self.shard_mib.map(|it| u64::from(it.0) << 20)
    }

    pub(super) fn limit(&self, options: &mut ServiceOptions) {
        options.source_limits = self.of_sources();
        options.shard_bytes = self.shard_bytes().unwrap_or(options.shard_bytes);
        options.connections = self.connections.map_or(options.connections, |it| it.0 as usize);
        options.query_body_bytes = self.query_body_bytes.map_or(options.query_body_bytes, |it| it.0 as usize);
    }
}
