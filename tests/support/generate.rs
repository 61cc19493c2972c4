//! Streams of batches as raw msgpack, from a seed: every encoding that producers use or may use, drawn from a
//! small world of blocks so that stores, removals and clears meet each other all the time.
//!
//! The world: a few chains of blocks. A block's engine hash, tokens, salt and LoRA follow from its number, so most
//! events agree with each other; a few percent of every field say something else.

mod shape;

use super::pack::{self, Choices};
use shape::Shape;

/// Chains in the world; block `n` is on chain `n % CHAINS` and follows block `n - CHAINS`.
const CHAINS: usize = 6;
const BLOCKS: usize = 48;
/// Python's hash of the empty tuple: a parent that means none.
const ROOT_PARENT: u64 = 5_740_354_900_026_072_187;

/// What a stream is made of.
#[derive(Clone, Debug)]
pub(crate) struct StreamOptions {
    pub(crate) batches: usize,
    /// Events per batch, at most.
    pub(crate) events_max: usize,
    /// Tokens per full block.
    pub(crate) block_size: u32,
    /// Ranks 0 and up to here are named by batches.
    pub(crate) dp_ranks: usize,
    /// Of a hundred events, so many carry some field of a wrong type, are cut short, or are no events.
    pub(crate) broken_percent: usize,
    /// Digests hold the hash in their first bytes instead of their last.
    pub(crate) digest_high: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        let (batches, events_max) = (40, 6);
        Self { batches, events_max, block_size: 4, dp_ranks: 2, broken_percent: 6, digest_high: false }
    }
}

/// The payloads of one stream, in order.
pub(crate) fn stream(seed: u64, options: &StreamOptions) -> Vec<Vec<u8>> {
    let mut maker =
        Maker { choices: Choices::new(seed), options: options.clone(), told: Vec::new(), scopes: Vec::new() };
    (0..options.batches).map(|number| maker.batch(number)).collect()
}

/// Tokens of the first `blocks` blocks of a chain, and one more: what a query for it asks.
pub(crate) fn prompt(chain: usize, blocks: usize, block_size: u32) -> Vec<u32> {
    let numbers = (0..blocks).map(|depth| chain % CHAINS + depth * CHAINS);
    let mut tokens: Vec<_> = numbers.flat_map(|block| tokens_of(block, block_size)).collect();
    tokens.push(tokens_of(chain % CHAINS + blocks * CHAINS, block_size)[0]);
    tokens
}

/// The LoRA name of a chain.
pub(crate) fn lora_of(chain: usize) -> Option<&'static str> {
    (chain % CHAINS == 3).then_some("sql-lora")
}

/// The cache salt of a chain.
pub(crate) fn salt_of(chain: usize) -> Option<&'static str> {
    match chain % CHAINS {
        4 => Some("tenant-a"),
        5 => Some("s"),
        _ => None,
    }
}

fn engine_hash(block: usize) -> u64 {
    match block {
        0 => 5,
        1 => 300,
        2 => 1 << 63,
        6 => u64::MAX,
        7 => 0,
        8 => 70_000,
        _ => pack::mix(u64::try_from(block).expect("a small number") + 1),
    }
}

fn tokens_of(block: usize, block_size: u32) -> Vec<u32> {
    let block = u32::try_from(block).expect("a small number");
    let token = |slot: u32| match (block + slot) % 11 {
        0 => u32::MAX - block,
        1 => 150_000 + block * 7 + slot,
        2 => 200 + block,
        _ => (block * 7 + slot * 13) % 97,
    };
    (0..block_size).map(token).collect()
}

/// Fields of one event by name, each already packed.
type Packed = Vec<(&'static str, Vec<u8>)>;

struct Maker {
    choices: Choices,
    options: StreamOptions,
    /// Blocks of earlier stores with their packed medium: what most removals are about.
    told: Vec<(usize, Vec<u8>)>,
    /// Scopes of earlier events, byte by byte: decoders may remember those.
    scopes: Vec<Packed>,
}

impl Maker {
    fn percent(&mut self, percent: usize) -> bool {
        self.choices.percent(percent)
    }

    fn text(&mut self, text: &str) -> Vec<u8> {
        pack::text(&mut self.choices, text)
    }

    fn int(&mut self, number: impl Into<i128>) -> Vec<u8> {
        pack::int(&mut self.choices, number.into())
    }

    fn array(&mut self, items: &[Vec<u8>]) -> Vec<u8> {
        pack::array(&mut self.choices, items)
    }

    fn map(&mut self, pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let keyed: Vec<_> = pairs.iter().map(|(name, value)| (self.text(name), value.clone())).collect();
        pack::map(&mut self.choices, &keyed)
    }

    fn junk(&mut self) -> Vec<u8> {
        pack::junk(&mut self.choices, 2)
    }

    fn batch(&mut self, number: usize) -> Vec<u8> {
        let count = if self.percent(4) { 0 } else { 1 + self.choices.below(self.options.events_max) };
        let events: Vec<_> = (0..count).map(|_| self.event()).collect();
        let events = self.array(&events);
        let seconds = 1_790_000_000 + u32::try_from(number).expect("a small number");
        let timestamp = match self.choices.below(8) {
            0 => self.int(seconds),
            1 => self.int(i128::from(seconds) * 1000),
            _ => pack::float(&mut self.choices, f64::from(seconds)),
        };
        let timestamp = if self.percent(1) { self.junk() } else { timestamp };
        let ranks = if self.percent(60) { 1 } else { self.options.dp_ranks };
        let rank = u32::try_from(self.choices.below(ranks)).expect("a small number");
        let rank = match self.choices.below(60) {
            0 => self.junk(),
            1..=3 => self.int(-1),
            4..=7 => pack::nil(),
            _ => self.int(rank),
        };
        if self.percent(25) {
            let key = self.choices.pick(&["data_parallel_rank", "attn_dp_rank", "dp_rank"]);
            let mut pairs = vec![("ts", timestamp), ("events", events)];
            if self.percent(90) {
                pairs.push((key, rank));
            }
            if self.percent(10) {
                pairs.push(("dp_rank", self.int(1)));
            }
            if self.percent(20) {
                pairs.push(("node", self.junk()));
            }
            self.choices.shuffle(&mut pairs);
            return self.map(&pairs);
        }
        let mut slots = vec![timestamp, events];
        if self.percent(92) {
            slots.push(rank);
            if self.percent(10) {
                slots.push(self.junk());
            }
        }
        self.array(&slots)
    }

    fn event(&mut self) -> Vec<u8> {
        if self.percent(2) {
            return self.unknown();
        }
        let broken = self.percent(self.options.broken_percent);
        if broken && self.percent(10) {
            return self.junk();
        }
        match self.choices.below(150) {
            0 => self.cleared(),
            1..45 => {
                let fields = self.removed_fields();
                self.encode("BlockRemoved", fields, broken)
            }
            _ => {
                let fields = self.stored_fields();
                self.encode("BlockStored", fields, broken)
            }
        }
    }

    fn unknown(&mut self) -> Vec<u8> {
        let tag = self.choices.pick(&["Ignored", "BlockMoved", "", "blockstored", "BlockStored "]);
        let (tag, value) = (self.text(tag), self.junk());
        if self.percent(50) {
            return self.array(&[tag, value]);
        }
        self.map(&[("block_hashes", value), ("type", tag)])
    }

    fn cleared(&mut self) -> Vec<u8> {
        let tag = self.text("AllBlocksCleared");
        let owner = match self.choices.below(10) {
            0 => self.text("kvcr"),
            1 => self.text("mooncake"),
            2 => self.junk(),
            _ => pack::nil(),
        };
        let bare = self.percent(50);
        match (self.percent(50), bare) {
            (true, true) => self.array(&[tag]),
            (true, false) => self.array(&[tag, owner]),
            (false, true) => self.map(&[("type", tag)]),
            (false, false) => {
                let medium = self.junk();
                self.map(&[("ownership", owner), ("medium", medium), ("type", tag)])
            }
        }
    }

    /// An engine hash as any integer or as digest bytes.
    fn hash(&mut self, hash: u64) -> Vec<u8> {
        match self.choices.below(10) {
            0..4 => self.int(hash),
            4..7 => self.int(hash.cast_signed()),
            _ => {
                let own = hash.to_be_bytes();
                let zeros = own.iter().take_while(|byte| **byte == 0).count().min(7);
                if zeros > 0 && self.percent(50) {
                    return pack::bin(&mut self.choices, &own[zeros..]);
                }
                let len = self.choices.pick(&[0, 8, 24]);
                let rest = self.choices.bytes(len);
                let parts = if self.options.digest_high { [&own[..], &rest] } else { [&rest[..], &own] };
                pack::bin(&mut self.choices, &parts.concat())
            }
        }
    }

    fn medium(&mut self) -> Vec<u8> {
        let usual = ["GPU", "GPU", "GPU", "CPU", "CPU_PINNED", "DISK", "STORAGE", "EXTERNAL"];
        let other =
            ["", "gpu", "Device", "cpu_tier1", "CPU_TIER2", "NVMe", "network", "REMOTE", "SHARED", "FS"];
        match self.choices.below(10) {
            0..4 => pack::nil(),
            4..9 => {
                let medium = self.choices.pick(&usual);
                self.text(medium)
            }
            _ => {
                let medium = self.choices.pick(&other);
                self.text(medium)
            }
        }
    }

    /// Group, kind, window, locality and ownership: mostly of the main group or of none.
    fn scope(&mut self, fields: &mut Packed) {
        if !self.scopes.is_empty() && self.percent(30) {
            let again = self.choices.below(self.scopes.len());
            fields.extend(self.scopes[again].clone());
            return;
        }
        let first = fields.len();
        self.new_scope(fields);
        self.scopes.push(fields[first..].to_vec());
    }

    fn new_scope(&mut self, fields: &mut Packed) {
        let kinds = ["full_attention", "sliding_window", "mla_attention", "unknown", "mamba"];
        if self.percent(55) {
            let group = if self.percent(60) { 0 } else { self.choices.below(kinds.len()) };
            let number = match self.choices.below(16) {
                // Any number may be the one that is taken for another.
                0 => u32::try_from(self.choices.below(300)).expect("a small number"),
                1 => self.choices.pick(&[65_535, 65_536, u32::MAX]),
                _ => u32::try_from(group).expect("a small number"),
            };
            fields.push(("group_idx", self.int(number)));
            if self.percent(50) {
                let kind = if self.percent(85) { kinds[group] } else { self.choices.pick(&kinds) };
                fields.push(("kv_cache_spec_kind", self.text(kind)));
            }
        } else if self.percent(8) {
            let kind = self.choices.pick(&["sink_full_attention", "cross_attention", ""]);
            fields.push(("kv_cache_spec_kind", self.text(kind)));
        }
        if self.percent(10) {
            fields.push(("kv_cache_spec_sliding_window", self.int(128)));
        }
        if self.percent(15) {
            let locality =
                if self.percent(85) { "LOCAL" } else { self.choices.pick(&["REMOTE", "local", ""]) };
            fields.push(("locality", self.text(locality)));
        }
        if self.percent(2) {
            let owner = self.choices.pick(&["kvcr", "other", ""]);
            fields.push(("ownership", self.text(owner)));
        }
    }

    fn removed_fields(&mut self) -> Packed {
        let count = self.choices.pick(&[0, 1, 1, 1, 2, 3]);
        let mut blocks: Vec<_> = (0..count).map(|_| self.choices.below(BLOCKS)).collect();
        let mut medium = self.medium();
        if !self.told.is_empty() && self.percent(85) {
            let (block, told) = self.told.swap_remove(self.choices.below(self.told.len()));
            medium = told;
            blocks.truncate(1);
            blocks.push(block);
        }
        let hashes: Vec<_> = blocks.iter().map(|block| self.hash(engine_hash(*block))).collect();
        let mut fields = vec![("block_hashes", self.array(&hashes)), ("medium", medium)];
        self.scope(&mut fields);
        fields
    }

    fn stored_fields(&mut self) -> Packed {
        let shape = Shape::draw(&mut self.choices, self.options.block_size);
        let mut hashes = Vec::new();
        for block in shape.blocks.clone() {
            hashes.push(self.hash(engine_hash(block)));
        }
        let parent = match shape.parent {
            Some(parent) => self.hash(parent),
            None if self.percent(10) => self.hash(ROOT_PARENT),
            None => pack::nil(),
        };
        let tokens = self.tokens(&shape);
        let mut medium = self.medium();
        if shape.placeholder {
            let below = self.choices.pick(&["CPU", "STORAGE", "EXTERNAL", "GPU"]);
            medium = self.text(below);
        }
        self.told.extend(shape.blocks.iter().map(|block| (*block, medium.clone())));
        let mut fields = vec![
            ("block_hashes", self.array(&hashes)),
            ("parent_block_hash", parent),
            ("token_ids", tokens),
            ("block_size", self.int(shape.block_size)),
            ("lora_id", self.choices.pick(&[&[0xc0], &[0x01]]).to_vec()),
            ("medium", medium),
        ];
        if let Some(lora) = shape.lora {
            fields.push(("lora_name", self.text(lora)));
        }
        let mut hidden_salt = None;
        if let Some(salt) = shape.salt {
            if shape.parent.is_none() && self.percent(35) {
                hidden_salt = Some(salt);
            } else {
                fields.push(("cache_salt", self.text(salt)));
            }
        }
        if hidden_salt.is_some() || self.percent(8) {
            fields.push(("extra_keys", self.extra_keys(&shape, hidden_salt)));
        }
        if self.percent(4) {
            fields.push(("block_mm_infos", self.mm_infos(shape.blocks.len())));
        }
        if self.percent(6) {
            fields.push(("session_id", self.text("session-1")));
        }
        if self.percent(4) {
            fields.push(("lookahead_token_ids", self.junk()));
        }
        self.scope(&mut fields);
        fields
    }

    fn tokens(&mut self, shape: &Shape) -> Vec<u8> {
        if shape.tokens.is_empty() && self.percent(30) {
            return pack::nil();
        }
        let mut items = Vec::new();
        for (position, token) in shape.tokens.iter().enumerate() {
            let first = self.int(*token);
            if !shape.bigram {
                items.push(first);
                continue;
            }
            let next = shape.tokens.get(position + 1).copied().unwrap_or(shape.after_last);
            let next = if self.percent(1) { next ^ 1 } else { next };
            let second = self.int(next);
            items.push(self.array(&[first, second]));
        }
        self.array(&items)
    }

    fn extra_keys(&mut self, shape: &Shape, hidden_salt: Option<&str>) -> Vec<u8> {
        let mut entries = Vec::new();
        let listed = if self.percent(90) { shape.blocks.len() } else { self.choices.below(4) };
        for block in 0..listed {
            let salt = hidden_salt.filter(|_| block == 0);
            if salt.is_none() && self.percent(50) {
                entries.push(pack::nil());
                continue;
            }
            let mut items = Vec::new();
            if let Some(lora) = shape.lora {
                items.push(pack::string(&mut self.choices, lora.as_bytes()));
            }
            for _ in 0..self.choices.pick(&[0, 0, 1, 2]) {
                items.push(self.extra_item());
            }
            if let Some(salt) = salt {
                let prefix = if self.percent(20) { "dynamo-cache-salt:" } else { "" };
                items.push(pack::string(&mut self.choices, format!("{prefix}{salt}").as_bytes()));
            }
            entries.push(self.array(&items));
        }
        self.array(&entries)
    }

    fn extra_item(&mut self) -> Vec<u8> {
        let digest = "00ff11ee22dd33cc44bb55aa6699778800ff11ee22dd33cc44bb55aa66997788";
        let upper = digest.to_ascii_uppercase();
        let name = self.choices.pick(&[digest, digest, &upper, "user-image-1", "sql-lora", ""]);
        let name = pack::string(&mut self.choices, name.as_bytes());
        match self.choices.below(10) {
            0..4 => name,
            4..6 => {
                let offset = self.int(-3);
                self.array(&[name, offset])
            }
            6 => {
                let digest = self.choices.bytes(32);
                pack::bin(&mut self.choices, &digest)
            }
            _ => self.junk(),
        }
    }

    fn mm_infos(&mut self, blocks: usize) -> Vec<u8> {
        let mut entries = Vec::new();
        for _ in 0..blocks + self.choices.pick(&[0, 0, 0, 1]) {
            if self.percent(40) {
                entries.push(pack::nil());
                continue;
            }
            let mut objects = Vec::new();
            for _ in 0..self.choices.below(3) {
                let (hash, offsets) = (self.choices.u64() % 4, self.array(&[]));
                let hash = self.int(hash);
                objects.push(match self.choices.below(20) {
                    0 => self.junk(),
                    1..10 => self.array(&[hash, offsets]),
                    _ => self.map(&[("offsets", offsets), ("mm_hash", hash)]),
                });
            }
            let objects = self.array(&objects);
            let positional = self.percent(40);
            entries.push(if positional {
                self.array(&[objects])
            } else {
                self.map(&[("mm_objects", objects)])
            });
        }
        self.array(&entries)
    }

    /// Writes an event as a map or as a tuple of some age, after breaking it if it is to be broken.
    fn encode(&mut self, tag: &'static str, mut fields: Packed, broken: bool) -> Vec<u8> {
        if broken {
            let victim = self.choices.below(fields.len());
            match self.choices.below(3) {
                0 => drop(fields.remove(victim)),
                1 => fields[victim].1 = pack::nil(),
                _ => fields[victim].1 = self.junk(),
            }
        }
        if self.percent(50) { self.encode_map(tag, fields) } else { self.encode_tuple(tag, &fields, broken) }
    }

    fn encode_map(&mut self, tag: &'static str, fields: Packed) -> Vec<u8> {
        let required = ["block_hashes", "token_ids", "block_size"];
        let mut pairs = Vec::new();
        for (name, value) in fields {
            // A field that is nil may as well be absent.
            if value == [0xc0] && !required.contains(&name) && self.percent(50) {
                continue;
            }
            pairs.push((self.text(name), value));
        }
        pairs.push((self.text("type"), self.text(tag)));
        if self.percent(10) {
            pairs.push((self.junk(), self.junk()));
        }
        if self.percent(8) {
            pairs.push((self.text("new_in_next_release"), self.junk()));
        }
        if self.percent(60) {
            self.choices.shuffle(&mut pairs);
        } else {
            pairs.rotate_right(1);
        }
        if self.percent(4) {
            // A repeated key: sometimes the first is the odd one, sometimes the last.
            let key = pairs[self.choices.below(pairs.len())].0.clone();
            let (at, value) = (self.choices.below(pairs.len() + 1), self.junk());
            pairs.insert(at, (key, value));
        }
        pack::map(&mut self.choices, &pairs)
    }

    fn encode_tuple(&mut self, tag: &'static str, fields: &Packed, broken: bool) -> Vec<u8> {
        let nil = pack::nil();
        let find = |name: &str| fields.iter().find(|field| field.0 == name).map(|field| field.1.clone());
        let slot = |name: &str| find(name).unwrap_or_else(|| nil.clone());
        let mut slots = vec![self.text(tag), slot("block_hashes")];
        let stored = tag == "BlockStored";
        if stored {
            slots.extend(["parent_block_hash", "token_ids", "block_size", "lora_id"].map(slot));
        }
        slots.push(slot("medium"));
        if stored {
            let salted = find("cache_salt").filter(|_| self.percent(80));
            slots.push(match salted {
                Some(salt) if find("lora_name").is_none() => {
                    let other = self.junk();
                    self.map(&[("other", other), ("cache_salt", salt)])
                }
                _ => slot("lora_name"),
            });
            slots.push(slot("extra_keys"));
        }
        let scope =
            ["group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership"];
        let mut tail: Vec<_> = scope.map(slot).to_vec();
        match self.choices.below(12) {
            // The legacy order: infos first, be they nil.
            0 | 1 if stored => tail.insert(0, slot("block_mm_infos")),
            2 => {
                tail.push(slot("block_mm_infos"));
                self.choices.shuffle(&mut tail);
            }
            3 => {
                let at = self.choices.below(tail.len() + 1);
                tail.insert(at, self.junk());
            }
            _ => {}
        }
        slots.extend(tail);
        // Older schemas end earlier, behind the last field that is said.
        let said = slots.iter().rposition(|slot| *slot != nil).unwrap_or_default() + 1;
        let shortest = if stored { 5 } else { 2 };
        let kept = if broken && self.percent(40) {
            1 + self.choices.below(slots.len())
        } else if self.percent(60) {
            said.max(shortest)
        } else {
            slots.len()
        };
        slots.truncate(kept);
        self.array(&slots)
    }
}
