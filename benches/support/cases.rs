//! The named cases: what an event looks like, and how many tokens it brings. `cases.txt` lists them.
//!
//! A name is encoding, block size, blocks per event, and what is special: `map-bs16-b8-hybrid75`.

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// vLLM ≤ 0.23, SGLang ≤ 0.5.19.
    Tuple,
    /// vLLM ≥ 0.24, SGLang ≥ 0.5.20, TensorRT-LLM.
    Map,
}

/// What events bring beside hashes and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Stored events of seven fields, up to the medium.
    Plain,
    /// Stored events of a hybrid model, each with its group; so many of a hundred are of groups that do not count.
    Groups { filtered_percent: u32 },
    /// Tuples of six fields with signed hashes (vLLM 0.9).
    Legacy,
    /// Tokens as EAGLE pairs with signed hashes (SGLang).
    Bigram,
    /// A LoRA name, and in every other block a multimodal object.
    LoraMultimodal,
    /// Removed events, no tokens.
    Removed,
}

/// One kind of traffic.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    pub(crate) content: Content,
    /// Tokens per block.
    pub(crate) block_size: usize,
    /// Blocks per event.
    pub(crate) blocks: usize,
    /// Events per payload.
    pub(crate) events: usize,
}

impl Case {
    fn parse(name: &str) -> Self {
        let mut parts = name.splitn(4, '-');
        let mut part = || parts.next().unwrap_or_default();
        let number = |part: &str, prefix| part.strip_prefix(prefix).and_then(|digits| digits.parse().ok());
        let encoding = match part() {
            "tuple" => Encoding::Tuple,
            "map" => Encoding::Map,
            other => panic!("{name}: {other} is no encoding"),
        };
        let block_size = number(part(), "bs").unwrap_or_else(|| panic!("{name}: no block size"));
        let blocks = number(part(), "b").unwrap_or_else(|| panic!("{name}: no blocks per event"));
        let content = match part() {
            "" => Content::Plain,
            "placed" => Content::Groups { filtered_percent: 0 },
            "hybrid75" => Content::Groups { filtered_percent: 75 },
            "filtered" => Content::Groups { filtered_percent: 100 },
            "legacy" => Content::Legacy,
            "bigram" => Content::Bigram,
            "lora-mm" => Content::LoraMultimodal,
            "removed" => Content::Removed,
            other => panic!("{name}: {other} is no content"),
        };
        let events = match (content, blocks) {
            (Content::Removed, _) => 256,
            (_, 1) => 64,
            (_, 8) => 16,
            (_, 64) => 8,
            // One of each four events counts.
            (Content::Groups { .. }, _) => 4,
            _ => 2,
        };
        Self { name: name.to_owned(), encoding, content, block_size, blocks, events }
    }

    /// Tokens of one event, as the producer counts them.
    pub(crate) fn event_tokens(&self) -> usize {
        if self.content == Content::Removed { 0 } else { self.blocks * self.block_size }
    }

    /// Events of a payload that count; as many in each, so that payloads cost the same.
    pub(crate) fn placed_events(&self) -> usize {
        self.events * (100 - self.filtered_percent() as usize) / 100
    }

    /// Of a hundred events, so many are filtered by their group.
    pub(crate) fn filtered_percent(&self) -> u32 {
        match self.content {
            Content::Groups { filtered_percent } => filtered_percent,
            Content::Plain
            | Content::Legacy
            | Content::Bigram
            | Content::LoraMultimodal
            | Content::Removed => 0,
        }
    }

    /// Whether it exists only to tell the cost of filtered events from that of placed ones.
    pub(crate) fn is_split(&self) -> bool {
        matches!(self.content, Content::Groups { filtered_percent: 0 | 100 })
    }
}

/// All cases, in the order of the tables.
pub(crate) fn all() -> impl Iterator<Item = Case> {
    include_str!("cases.txt").lines().map(named)
}

/// The case of this name.
pub(crate) fn named(name: &str) -> Case {
    Case::parse(name)
}
