//! The crate under test behind the oracle's own types, so that the two compare with `==`.

use std::collections::HashMap;

use kvtap::wire::Event;
use kvtap::{
    Config, DigestHalf, Engine, EngineHash, Ingest, LocalHash, Observer, Placement, PrefixHashes, Prompt,
    Reader, Reason, SourceConfig, Verdict, Worker,
};

use super::oracle::{
    Applied, Copies, Digest, EventKind, Match, OracleConfig, OracleEvent, OraclePlacement, QueryOptions,
    Summary,
};

/// One source, its engine and a query side.
pub(crate) struct Fast {
    config: OracleConfig,
    ingest: Ingest,
    reader: Reader,
    engine: Engine,
    prefixes: Prefixes,
}

/// What was ever placed, by prefix hash.
#[derive(Default)]
struct Prefixes {
    hashes: PrefixHashes,
    by_name: HashMap<(Worker, EngineHash), u64>,
    /// Prefix hash to that of the block before, and the block's local hash.
    links: HashMap<u64, (Option<u64>, LocalHash)>,
}

impl Prefixes {
    fn place(&mut self, worker: Worker, placement: &Placement) -> Option<u64> {
        let hash = self.hashes.of(worker, placement)?.0;
        if let Placement::Store { engine_hash, parent, local_hash: Some(local_hash), .. } = *placement {
            let parent = parent.map(|parent| self.by_name[&(worker, parent)]);
            self.links.insert(hash, (parent, local_hash));
            self.by_name.insert((worker, engine_hash), hash);
        }
        Some(hash)
    }

    /// The prefix hashes and local hashes from a prompt's start to a block.
    fn chain(&self, mut prefix: u64) -> (Vec<u64>, Vec<LocalHash>) {
        let (mut chain, mut local_hashes) = (Vec::new(), Vec::new());
        loop {
            let (parent, local_hash) = self.links[&prefix];
            chain.insert(0, prefix);
            local_hashes.insert(0, local_hash);
            match parent {
                Some(parent) => prefix = parent,
                None => return (chain, local_hashes),
            }
        }
    }
}

impl Fast {
    pub(crate) fn new(config: OracleConfig, shards: usize) -> Self {
        let mut engine_config = Config::default();
        engine_config.shards = shards;
        Self::over(Engine::new(engine_config).expect("a good configuration"), config)
    }

    pub(crate) fn over(engine: Engine, config: OracleConfig) -> Self {
        let ingest = engine.ingest(source_config(config)).expect("a good source");
        Self { config, ingest, reader: engine.reader(), engine, prefixes: Prefixes::default() }
    }

    pub(crate) fn apply(&mut self, sequence: u64, payload: &[u8]) -> Applied {
        let mut watch =
            Watch { events: Vec::new(), placements: Vec::new(), prefixes: &mut self.prefixes, payload };
        match self.ingest.apply_observed(payload, &mut watch) {
            Ok(applied) => Applied {
                sequence,
                rejected: false,
                rejection: None,
                dp_rank: applied.worker.dp_rank,
                events: watch.events,
                placements: watch.placements,
            },
            Err(error) => {
                assert!(error.offset() as usize <= payload.len(), "{error}");
                assert!(
                    watch.events.is_empty() && watch.placements.is_empty(),
                    "refused payloads show nothing"
                );
                Applied {
                    sequence,
                    rejected: true,
                    rejection: None,
                    dp_rank: self.config.dp_rank,
                    events: Vec::new(),
                    placements: Vec::new(),
                }
            }
        }
    }

    pub(crate) fn ingest(&self) -> &Ingest {
        &self.ingest
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes the source out of the index.
    pub(crate) fn drop_source(self) -> Reader {
        drop(self.ingest);
        self.reader
    }

    pub(crate) fn summary(&self) -> Summary {
        let counters = self.ingest.counters();
        Summary {
            batches: counters.batches,
            malformed_batches: counters.malformed_batches,
            stored: counters.stored_events,
            removed: counters.removed_events,
            cleared: counters.cleared_events,
            unknown: counters.unknown_events,
            malformed: counters.malformed_events,
            filtered: Reason::ALL
                .iter()
                .map(|&reason| (reason.label(), counters.filtered(reason)))
                .filter(|&(_, count)| count > 0)
                .collect(),
            blocks_placed: counters.placed_blocks,
            blocks_removed: counters.removed_blocks,
            tokens: counters.placed_tokens,
            payload_bytes: counters.payload_bytes,
            workers: self.ingest.workers().len(),
            entries: self.ingest.entries(),
            digest: self.ingest.digest(),
        }
    }

    /// Makes what was applied visible to queries.
    pub(crate) fn flush(&mut self) {
        self.ingest.flush();
    }

    pub(crate) fn query(&mut self, tokens: &[u32], options: &QueryOptions) -> (usize, Vec<Match>) {
        let prompt = Prompt {
            lora_name: options.lora_name.as_deref(),
            cache_salt: options.cache_salt.as_deref(),
            bigram: options.bigram,
            ..Prompt::new(tokens, self.config.block_size)
        };
        let mut matches = Vec::new();
        let blocks = self.reader.find_matches(&prompt, &mut matches);
        matches.sort_unstable();
        (blocks, matches.iter().map(oracle_match).collect())
    }

    /// What is held of the prompt that ends with a stored block, and of what may follow it; with the prompt's prefix hashes.
    pub(crate) fn query_stored(&mut self, prefix: u64) -> (Vec<u64>, Vec<Match>) {
        let (mut chain, mut local_hashes) = self.prefixes.chain(prefix);
        chain.push(1);
        local_hashes.push(LocalHash(1));
        (chain, find_locals(&mut self.reader, &local_hashes))
    }

    /// The local hashes of the prompt that ends with a stored block.
    pub(crate) fn local_hashes(&self, prefix: u64) -> Vec<LocalHash> {
        self.prefixes.chain(prefix).1
    }
}

pub(crate) fn find_locals(reader: &mut Reader, local_hashes: &[LocalHash]) -> Vec<Match> {
    let mut matches = Vec::new();
    reader.find_local_matches(local_hashes, &mut matches);
    matches.sort_unstable();
    matches.iter().map(oracle_match).collect()
}

fn source_config(config: OracleConfig) -> SourceConfig {
    let mut source = SourceConfig::new(config.worker_id);
    source.dp_rank = config.dp_rank;
    source.block_size = config.block_size;
    source.copies = match config.copies {
        Copies::Count => kvtap::Copies::Count,
        Copies::Set => kvtap::Copies::Set,
    };
    source.digest = match config.digest {
        Digest::Low => DigestHalf::Low,
        Digest::High => DigestHalf::High,
    };
    source
}

fn oracle_match(found: &kvtap::Match) -> Match {
    let [device, host_pinned, disk, external] = found.depths.map(|depth| depth as usize);
    let Worker { worker_id, dp_rank } = found.worker;
    Match { worker_id, dp_rank, device, host_pinned, disk, external }
}

/// Notes all that is shown to an observer.
struct Watch<'p> {
    events: Vec<OracleEvent>,
    placements: Vec<OraclePlacement>,
    prefixes: &'p mut Prefixes,
    payload: &'p [u8],
}

impl Observer for Watch<'_> {
    fn event(&mut self, _: Worker, event: &mut Event<'_>, verdict: Verdict) {
        if let Verdict::Malformed(error) = verdict {
            assert!((error.offset() as usize) < self.payload.len(), "{error}");
        }
        self.events.push(oracle_event(event, verdict));
    }

    fn placement(&mut self, worker: Worker, placement: Placement) {
        let empty = OraclePlacement {
            worker_id: worker.worker_id,
            dp_rank: worker.dp_rank,
            op: "clear",
            tier: None,
            engine_hash: None,
            local_hash: None,
            prefix_hash: self.prefixes.place(worker, &placement),
        };
        self.placements.push(match placement {
            Placement::Store { tier, engine_hash, local_hash, .. } => OraclePlacement {
                op: "store",
                tier: Some(tier.label()),
                engine_hash: Some(engine_hash.0),
                local_hash: local_hash.map(|hash| hash.0),
                ..empty
            },
            Placement::Remove { tier, engine_hash } => OraclePlacement {
                op: "remove",
                tier: Some(tier.label()),
                engine_hash: Some(engine_hash.0),
                ..empty
            },
            Placement::Clear => empty,
            other => panic!("unknown placement {other:?}"),
        });
    }
}

/// Whether steps 1–4 gave the reason, after which an event is not looked into further.
fn is_early(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::UnsupportedOwnership
            | Reason::UnknownOwnership
            | Reason::NonLocalLocality
            | Reason::UnknownMedium
            | Reason::NonMainAttentionKind
            | Reason::NonMainAttentionGroup
            | Reason::UnknownKind
            | Reason::UnlearnedGroupIdx
    )
}

fn oracle_event(event: &mut Event<'_>, verdict: Verdict) -> OracleEvent {
    let (label, look) = match verdict {
        Verdict::Place => ("place", true),
        Verdict::Filter(reason) => (reason.label(), !is_early(reason)),
        Verdict::Unknown => return OracleEvent::empty(EventKind::Unknown),
        Verdict::Malformed(_) => return OracleEvent::empty(EventKind::Malformed),
        other => panic!("unknown verdict {other:?}"),
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let gated = |kind, gate: kvtap::wire::Gate<'_>| OracleEvent {
        medium: owned(gate.medium),
        group_idx: gate.group_idx,
        spec_kind: owned(gate.spec_kind),
        sliding_window: gate.sliding_window,
        locality: owned(gate.locality),
        ownership: owned(gate.ownership),
        verdict: label.to_owned(),
        ..OracleEvent::empty(kind)
    };
    match event {
        Event::Stored(stored) => {
            let mut seen = gated(EventKind::Stored, stored.gate().expect("judged"));
            if look {
                let body = stored.body().expect("judged");
                seen.block_hashes = Some(body.block_hashes.iter().map(|hash| hash.0).collect());
                seen.parent = body.parent_block_hash.map(|hash| hash.0);
                seen.token_ids = Some(body.token_ids[..body.token_count()].to_vec());
                seen.bigram = body.bigram;
                seen.block_size = Some(body.block_size);
                seen.lora_name = owned(body.lora_name);
                seen.cache_salt = owned(body.cache_salt);
                seen.session_id = owned(body.session_id);
            }
            seen
        }
        Event::Removed(removed) => {
            let mut seen = gated(EventKind::Removed, removed.gate().expect("judged"));
            if look {
                let hashes = removed.block_hashes().expect("judged");
                seen.block_hashes = Some(hashes.iter().map(|hash| hash.0).collect());
            }
            seen
        }
        Event::Cleared(cleared) => OracleEvent {
            ownership: owned(cleared.ownership().expect("judged")),
            verdict: label.to_owned(),
            ..OracleEvent::empty(EventKind::Cleared)
        },
        Event::Unknown(_) | Event::Malformed(_) | _ => panic!("verdict {verdict:?} on {event:?}"),
    }
}
