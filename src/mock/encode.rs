//! Batches as the bytes a producer sends: which fields, in which order, under which types. What is always there and what
//! only if set follows the captures named below.

use rmp::encode::{self, ByteBuf};

use super::event::{Event, Medium, Removed, Stored};
use super::scenario::Encoding;
use crate::ids::EngineHash;

/// The events of one step, to be sent.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "callers make it")]
pub struct Batch<'e> {
    /// Unix seconds.
    pub timestamp: f64,
    /// The events, in order.
    pub events: &'e [Event],
    /// The publisher's data-parallel rank.
    pub dp_rank: u32,
}

impl Encoding {
    /// The payload that the producer would send. What it has no field for is left out.
    #[must_use]
    pub fn encode(self, batch: &Batch<'_>) -> Vec<u8> {
        let mut out = Pack(ByteBuf::new());
        out.array(3);
        out.float(batch.timestamp);
        out.array(batch.events.len());
        for event in batch.events {
            match (self, event) {
                (Self::VllmTuple, Event::Cleared) => {
                    out.array(1);
                    out.text("AllBlocksCleared");
                }
                (_, Event::Cleared) => {
                    out.map(1);
                    out.tag("AllBlocksCleared");
                }
                (Self::VllmMap, Event::Stored(stored)) => vllm_map_stored(&mut out, stored),
                (Self::VllmTuple, Event::Stored(stored)) => vllm_tuple_stored(&mut out, stored),
                (Self::Sglang, Event::Stored(stored)) => sglang_stored(&mut out, stored),
                (Self::Trtllm, Event::Stored(stored)) => trtllm_stored(&mut out, stored),
                (Self::VllmMap, Event::Removed(removed)) => vllm_map_removed(&mut out, removed),
                (Self::VllmTuple, Event::Removed(removed)) => vllm_tuple_removed(&mut out, removed),
                (Self::Sglang, Event::Removed(removed)) => sglang_removed(&mut out, removed),
                (Self::Trtllm, Event::Removed(removed)) => trtllm_removed(&mut out, removed),
            }
        }
        out.int(batch.dp_rank);
        out.0.into_vec()
    }

    /// What the producer calls a medium.
    #[must_use]
    pub const fn medium(self, medium: Medium) -> &'static str {
        match (self, medium) {
            (_, Medium::Gpu) => "GPU",
            (Self::Sglang, Medium::Cpu) => "CPU_PINNED",
            (Self::Sglang, Medium::Disk) => "DISK",
            (_, Medium::Cpu) => "CPU",
            (_, Medium::Disk) => "STORAGE",
        }
    }
}

/// As in `engine-vllm-0.33.0-chat16` and `real-vllm-0.33.0-offload32`: a hash alone says little more.
fn vllm_map_stored(out: &mut Pack, stored: &Stored) {
    let identity = &stored.identity;
    let by_hash = stored.block_size == 0;
    let extra_keys = !by_hash && !stored.block_hashes.is_empty();
    let session_id = identity.session_id.as_deref();
    let window = stored.group.sliding_window;
    let optional = [extra_keys, !by_hash, window.is_some(), session_id.is_some()];
    out.map(9 + optional.into_iter().filter(|is_set| *is_set).count());
    out.tag("BlockStored");
    out.blocks(stored, Sign::Unsigned);
    out.key("lora_id");
    out.optional_int(identity.lora.as_ref().map(|lora| lora.id));
    out.key("medium");
    out.text(Encoding::VllmMap.medium(stored.medium));
    out.key("lora_name");
    out.optional_text(identity.lora.as_ref().map(|lora| lora.name.as_str()));
    if extra_keys {
        out.key("extra_keys");
        vllm_extra_keys(out, stored);
    }
    out.key("group_idx");
    out.int(stored.group.index);
    if !by_hash {
        out.key("kv_cache_spec_kind");
        out.text(stored.group.spec_kind);
    }
    if let Some(window) = window {
        out.key("kv_cache_spec_sliding_window");
        out.int(window);
    }
    if let Some(session_id) = session_id {
        out.key("session_id");
        out.text(session_id);
    }
}

/// As in `engine-vllm-0.23.0-hybrid64`.
fn vllm_tuple_stored(out: &mut Pack, stored: &Stored) {
    let identity = &stored.identity;
    let by_hash = stored.block_size == 0;
    out.array(12);
    out.text("BlockStored");
    out.hashes(&stored.block_hashes, Sign::Unsigned);
    out.optional_hash(stored.parent, Sign::Unsigned);
    out.tokens(&stored.token_ids);
    out.int(stored.block_size);
    out.optional_int(identity.lora.as_ref().map(|lora| lora.id));
    out.text(Encoding::VllmTuple.medium(stored.medium));
    out.optional_text(identity.lora.as_ref().map(|lora| lora.name.as_str()));
    if by_hash || stored.block_hashes.is_empty() {
        out.nil();
    } else {
        vllm_extra_keys(out, stored);
    }
    out.int(stored.group.index);
    out.optional_text((!by_hash).then_some(stored.group.spec_kind));
    out.optional_int(stored.group.sliding_window);
}

/// One entry per kept block: the adapter, and the salt in the block that starts the prompt.
fn vllm_extra_keys(out: &mut Pack, stored: &Stored) {
    let lora = stored.identity.lora.as_ref().map(|lora| lora.name.as_str());
    // The first block may have been kept or not; if it was, nothing was left out.
    let starts = stored.parent.is_none()
        && stored.token_ids.len() == stored.block_hashes.len() * stored.block_size as usize;
    out.array(stored.block_hashes.len());
    for block in 0..stored.block_hashes.len() {
        let salt = stored.identity.cache_salt.as_deref().filter(|_| starts && block == 0);
        let keys = [lora, salt];
        let count = keys.iter().flatten().count();
        if count == 0 {
            out.nil();
            continue;
        }
        out.array(count);
        keys.iter().flatten().for_each(|key| out.text(key));
    }
}

/// As in `engine-sglang-0.5.23-radix64` and `real-sglang-0.5.23-fields`.
fn sglang_stored(out: &mut Pack, stored: &Stored) {
    let identity = &stored.identity;
    let optional = [
        ("cache_salt", identity.cache_salt.as_deref()),
        ("session_id", identity.session_id.as_deref()),
        ("lora_name", identity.lora.as_ref().map(|lora| lora.name.as_str())),
    ];
    out.map(7 + optional.iter().filter(|(_, value)| value.is_some()).count());
    out.tag("BlockStored");
    out.blocks(stored, Sign::Signed);
    out.key("lora_id");
    out.nil();
    out.key("medium");
    out.text(Encoding::Sglang.medium(stored.medium));
    out.set_texts(&optional);
}

/// As in `engine-trtllm-dynamo-1.6.1`.
fn trtllm_stored(out: &mut Pack, stored: &Stored) {
    let identity = &stored.identity;
    let optional = [
        ("lora_name", identity.lora.as_ref().map(|lora| lora.name.as_str())),
        ("cache_salt", identity.cache_salt.as_deref()),
    ];
    out.map(5 + optional.iter().filter(|(_, value)| value.is_some()).count());
    out.tag("BlockStored");
    out.blocks(stored, Sign::Signed);
    out.set_texts(&optional);
}

fn vllm_map_removed(out: &mut Pack, removed: &Removed) {
    out.map(4);
    out.tag("BlockRemoved");
    out.key("block_hashes");
    out.hashes(&removed.block_hashes, Sign::Unsigned);
    out.key("medium");
    out.text(Encoding::VllmMap.medium(removed.medium));
    out.key("group_idx");
    out.int(removed.group_idx);
}

fn vllm_tuple_removed(out: &mut Pack, removed: &Removed) {
    out.array(4);
    out.text("BlockRemoved");
    out.hashes(&removed.block_hashes, Sign::Unsigned);
    out.text(Encoding::VllmTuple.medium(removed.medium));
    out.int(removed.group_idx);
}

fn sglang_removed(out: &mut Pack, removed: &Removed) {
    out.map(3);
    out.tag("BlockRemoved");
    out.key("block_hashes");
    out.hashes(&removed.block_hashes, Sign::Signed);
    out.key("medium");
    out.text(Encoding::Sglang.medium(removed.medium));
}

fn trtllm_removed(out: &mut Pack, removed: &Removed) {
    out.map(2);
    out.tag("BlockRemoved");
    out.key("block_hashes");
    out.hashes(&removed.block_hashes, Sign::Signed);
}

/// How a producer writes a hash.
#[derive(Clone, Copy)]
enum Sign {
    /// vLLM: the low 64 bits of its digest.
    Unsigned,
    /// SGLang and TensorRT-LLM: folded to signed.
    Signed,
}

/// Msgpack into memory, which cannot fail.
struct Pack(ByteBuf);

impl Pack {
    fn nil(&mut self) {
        let Ok(()) = encode::write_nil(&mut self.0);
    }

    fn int(&mut self, number: impl Into<u64>) {
        let Ok(_) = encode::write_uint(&mut self.0, number.into());
    }

    fn float(&mut self, number: f64) {
        let Ok(()) = encode::write_f64(&mut self.0, number);
    }

    fn text(&mut self, text: &str) {
        let Ok(()) = encode::write_str(&mut self.0, text);
    }

    fn array(&mut self, items: usize) {
        let Ok(_) = encode::write_array_len(&mut self.0, length(items));
    }

    fn map(&mut self, pairs: usize) {
        let Ok(_) = encode::write_map_len(&mut self.0, length(pairs));
    }

    fn key(&mut self, name: &str) {
        self.text(name);
    }

    fn tag(&mut self, tag: &str) {
        self.key("type");
        self.text(tag);
    }

    fn optional_int(&mut self, number: Option<u32>) {
        match number {
            Some(number) => self.int(number),
            None => self.nil(),
        }
    }

    fn optional_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.nil(),
        }
    }

    /// The keys that have a value.
    fn set_texts(&mut self, pairs: &[(&str, Option<&str>)]) {
        for (key, value) in pairs {
            if let Some(value) = value {
                self.key(key);
                self.text(value);
            }
        }
    }

    fn hash(&mut self, hash: EngineHash, sign: Sign) {
        match sign {
            Sign::Unsigned => self.int(hash.0),
            Sign::Signed => {
                let Ok(_) = encode::write_sint(&mut self.0, hash.0.cast_signed());
            }
        }
    }

    fn optional_hash(&mut self, hash: Option<EngineHash>, sign: Sign) {
        match hash {
            Some(hash) => self.hash(hash, sign),
            None => self.nil(),
        }
    }

    fn hashes(&mut self, hashes: &[EngineHash], sign: Sign) {
        self.array(hashes.len());
        hashes.iter().for_each(|hash| self.hash(*hash, sign));
    }

    fn tokens(&mut self, tokens: &[u32]) {
        self.array(tokens.len());
        tokens.iter().for_each(|token| self.int(*token));
    }

    /// The fields that every map has after its tag.
    fn blocks(&mut self, stored: &Stored, sign: Sign) {
        self.key("block_hashes");
        self.hashes(&stored.block_hashes, sign);
        self.key("parent_block_hash");
        self.optional_hash(stored.parent, sign);
        self.key("token_ids");
        self.tokens(&stored.token_ids);
        self.key("block_size");
        self.int(stored.block_size);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "no step has 4 billion of anything")]
const fn length(items: usize) -> u32 {
    items as u32
}
