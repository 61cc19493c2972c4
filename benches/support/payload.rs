//! Payloads of a case, from a seed, each with the records it must decode to.
//!
//! A branch predictor learns a payload that it sees again and again, and then branchy decoders look several times faster than
//! they are. So a case is many different payloads, rotated.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::cases::{Case, Content, Encoding};
use super::pack::Pack;

/// Tokens of a case's payloads together, when time is measured.
pub(crate) const TOKENS: usize = 1_500_000;
/// Payloads of a case at most; what cases without tokens have.
const PAYLOADS_MAX: usize = 3_000;

/// Seed of local hashes.
const SEED: u64 = 1337;
const LORA: &str = "sql-lora";
/// Size of a byte-pair vocabulary (Qwen).
const VOCABULARY: u32 = 151_936;

/// What a block decodes to; the local hash of a removed one is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) engine_hash: u64,
    pub(crate) local_hash: u64,
}

/// One payload.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    pub(crate) bytes: Vec<u8>,
    /// Tokens in it, filtered ones included.
    pub(crate) tokens: usize,
    /// Block hashes in it, filtered ones included.
    pub(crate) blocks: usize,
    /// What it must decode to.
    pub(crate) records: Vec<Record>,
}

/// As many different payloads as hold about `tokens` tokens together, always the same ones.
pub(crate) fn payloads(case: &Case, tokens: usize) -> Vec<Payload> {
    let each = case.events * case.event_tokens().max(16);
    let count = (tokens / each).clamp(2, PAYLOADS_MAX);
    let name = case.name.bytes().fold(0, |seed, byte| mix(seed ^ u64::from(byte)));
    (0..count as u64).map(|number| Maker::payload(case, name ^ mix(number))).collect()
}

/// SplitMix64.
struct Random(u64);

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: u32) -> u32 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u32::try_from(wide >> 64).expect("below a u32")
    }

    /// Zipf: every tenth token is below 256, the others are as often in each octave above.
    fn token(&mut self) -> u32 {
        if self.below(10) == 0 {
            return self.below(256);
        }
        loop {
            let start = 256 << self.below(10);
            let token = start + self.below(start);
            if token < VOCABULARY {
                return token;
            }
        }
    }

    /// A digest's half: nine bytes on the wire.
    fn hash(&mut self) -> u64 {
        self.next() | 1 << 40
    }
}

struct Maker<'c> {
    case: &'c Case,
    random: Random,
    out: Pack,
    payload: Payload,
    /// The last block of each group: the parent of its next event.
    last: [Option<u64>; 4],
}

/// Multimodal object of a block: the identifier's first half.
type Objects = Vec<Option<u64>>;

impl<'c> Maker<'c> {
    fn payload(case: &'c Case, seed: u64) -> Payload {
        let mut maker = Self {
            case,
            random: Random(seed),
            out: Pack::default(),
            payload: Payload::default(),
            last: [None; 4],
        };
        maker.out.array(3);
        maker.out.float(1_764_000_000.25);
        maker.out.array(case.events);
        let mut placed = case.placed_events();
        for left in (1..=case.events).rev() {
            // Which ones is left to chance, how many is not.
            let counts = (maker.random.below(1 << 16) as usize * left) >> 16 < placed;
            placed -= usize::from(counts);
            if case.content == Content::Removed {
                maker.removed();
            } else {
                maker.stored(!counts);
            }
        }
        maker.out.uint(0);
        let Self { out, mut payload, .. } = maker;
        payload.bytes = out.0;
        payload
    }

    /// Writes the key of a map's field.
    fn key(&mut self, key: &str) -> &mut Pack {
        if self.case.encoding == Encoding::Map {
            self.out.text(key);
        }
        &mut self.out
    }

    fn open(&mut self, fields: usize, tag: &str) {
        match self.case.encoding {
            Encoding::Tuple => self.out.array(fields),
            Encoding::Map => self.out.map(fields),
        }
        self.key("type").text(tag);
    }

    fn hashes(&mut self) -> Vec<u64> {
        let hashes: Vec<u64> = (0..self.case.blocks).map(|_| self.random.hash()).collect();
        self.key("block_hashes").array(hashes.len());
        hashes.iter().for_each(|&hash| self.hash(hash));
        self.payload.blocks += hashes.len();
        hashes
    }

    fn hash(&mut self, hash: u64) {
        if matches!(self.case.content, Content::Legacy | Content::Bigram) {
            self.out.signed_hash(hash);
        } else {
            self.out.uint(hash);
        }
    }

    fn removed(&mut self) {
        self.open(3, "BlockRemoved");
        let hashes = self.hashes();
        self.key("medium").text("GPU");
        let records = hashes.iter().map(|&engine_hash| Record { engine_hash, local_hash: 0 });
        self.payload.records.extend(records);
    }

    fn stored(&mut self, filtered: bool) {
        let case = self.case;
        let group = if filtered { 1 + self.random.below(3) } else { 0 };
        let has_groups = matches!(case.content, Content::Groups { .. } | Content::LoraMultimodal);
        let has_objects = case.content == Content::LoraMultimodal;
        // Tuples write every slot, maps leave out what is not set.
        let fields = match (case.content, case.encoding) {
            (Content::Legacy, _) => 6,
            (Content::Groups { .. }, Encoding::Map) => 10 + usize::from(filtered),
            (Content::LoraMultimodal, Encoding::Map) => 11,
            (Content::Groups { .. } | Content::LoraMultimodal, Encoding::Tuple) => 12,
            (Content::Plain | Content::Bigram | Content::Removed, _) => 7,
        };
        self.open(fields, "BlockStored");
        let hashes = self.hashes();
        let parent = std::mem::replace(&mut self.last[group as usize], hashes.last().copied());
        self.key("parent_block_hash");
        match parent {
            Some(parent) => self.hash(parent),
            None => self.out.nil(),
        }
        let tokens = self.tokens();
        self.key("block_size").uint(case.block_size as u64);
        self.key("lora_id").nil();
        if case.content != Content::Legacy {
            self.key("medium").text("GPU");
        }
        let mut objects = Objects::new();
        if has_groups {
            self.key("lora_name");
            if has_objects {
                self.out.text(LORA);
                objects = self.objects();
            } else {
                self.out.nil();
                self.nil_slot();
            }
            self.group(group);
        }
        self.payload.tokens += case.event_tokens();
        if !filtered {
            self.place(&hashes, &tokens, &objects);
        }
    }

    /// A slot without a value, which only tuples write.
    fn nil_slot(&mut self) {
        if self.case.encoding == Encoding::Tuple {
            self.out.nil();
        }
    }

    fn group(&mut self, group: u32) {
        self.key("group_idx").uint(u64::from(group));
        self.key("kv_cache_spec_kind");
        if group == 0 {
            self.out.text("full_attention");
            self.nil_slot();
        } else {
            self.out.text("sliding_window");
            self.key("kv_cache_spec_sliding_window").uint(1024);
        }
    }

    /// Tokens of an event; one more than `event_tokens` if they are written as pairs.
    fn tokens(&mut self) -> Vec<u32> {
        let count = self.case.event_tokens();
        self.key("token_ids").array(count);
        if self.case.content == Content::Bigram {
            let tokens: Vec<u32> = (0..=count).map(|_| self.random.token()).collect();
            for pair in tokens.windows(2) {
                self.out.array(2);
                pair.iter().for_each(|&token| self.out.uint(u64::from(token)));
            }
            return tokens;
        }
        let tokens: Vec<u32> = (0..count).map(|_| self.random.token()).collect();
        tokens.iter().for_each(|&token| self.out.uint(u64::from(token)));
        tokens
    }

    /// Extra keys as vLLM ≥ 0.19.1 writes them. The identifiers are of the form that Dynamo's frontend makes, which is the
    /// only one its decoder takes: 16 digits, then zeros.
    fn objects(&mut self) -> Objects {
        let blocks = self.case.blocks;
        self.key("extra_keys").array(blocks);
        let mut objects = Objects::new();
        for _ in 0..blocks {
            let object = (self.random.below(2) == 0).then(|| self.random.hash());
            self.out.array(1 + usize::from(object.is_some()));
            self.out.text(LORA);
            if let Some(object) = object {
                self.out.array(2);
                self.out.text(&format!("{object:016x}{:048}", 0));
                self.out.uint(3);
            }
            objects.push(object);
        }
        objects
    }

    fn place(&mut self, hashes: &[u64], tokens: &[u32], objects: &[Option<u64>]) {
        let seed = match self.case.content {
            Content::LoraMultimodal => SEED.wrapping_add(xxh3_64_with_seed(LORA.as_bytes(), 0)),
            Content::Plain
            | Content::Groups { .. }
            | Content::Legacy
            | Content::Bigram
            | Content::Removed => SEED,
        };
        for (block, (&engine_hash, tokens)) in hashes.iter().zip(blocks(self.case, tokens)).enumerate() {
            let mut bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            bytes
                .extend(objects.get(block).copied().flatten().iter().flat_map(|object| object.to_le_bytes()));
            let local_hash = xxh3_64_with_seed(&bytes, seed);
            self.payload.records.push(Record { engine_hash, local_hash });
        }
    }
}

/// The tokens of each block of an event; EAGLE blocks share one with the next.
pub(crate) fn blocks<'t>(case: &Case, tokens: &'t [u32]) -> impl Iterator<Item = &'t [u32]> + use<'t> {
    let window = case.block_size + usize::from(case.content == Content::Bigram);
    tokens.windows(window).step_by(case.block_size)
}
