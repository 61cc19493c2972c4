//! The named cases, as data: what an event looks like, and how many tokens it brings.

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
    fn new(encoding: Encoding, content: Content, block_size: usize, blocks: usize) -> Self {
        let events = match (content, blocks) {
            (Content::Removed, _) => 256,
            (_, 1) => 64,
            (_, 8) => 16,
            (_, 64) => 8,
            _ => 2,
        };
        let style = match encoding {
            Encoding::Tuple => "tuple",
            Encoding::Map => "map",
        };
        let ending = match content {
            Content::Plain => "",
            Content::Groups { filtered_percent: 0 } => "-placed",
            Content::Groups { filtered_percent: 100 } => "-filtered",
            Content::Groups { .. } => "-hybrid75",
            Content::Legacy => "-legacy",
            Content::Bigram => "-bigram",
            Content::LoraMultimodal => "-lora-mm",
            Content::Removed => "-removed",
        };
        let name = format!("{style}-bs{block_size}-b{blocks}{ending}");
        Self { name, encoding, content, block_size, blocks, events }
    }

    /// Tokens of one event, as the producer counts them.
    pub(crate) fn event_tokens(&self) -> usize {
        if self.content == Content::Removed { 0 } else { self.blocks * self.block_size }
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

/// All cases: the matrix, then the split of the hybrid ones, then the special ones.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for encoding in [Encoding::Tuple, Encoding::Map] {
        for content in [Content::Plain, Content::Groups { filtered_percent: 75 }] {
            for block_size in [16, 64] {
                cases.extend([1, 8, 64, 512].map(|blocks| Case::new(encoding, content, block_size, blocks)));
            }
        }
    }
    for encoding in [Encoding::Tuple, Encoding::Map] {
        for blocks in [1, 8, 64] {
            for filtered_percent in [0, 100] {
                cases.push(Case::new(encoding, Content::Groups { filtered_percent }, 16, blocks));
            }
        }
    }
    cases.push(Case::new(Encoding::Tuple, Content::Legacy, 16, 8));
    cases.push(Case::new(Encoding::Map, Content::Bigram, 16, 8));
    cases.push(Case::new(Encoding::Map, Content::LoraMultimodal, 16, 8));
    cases.push(Case::new(Encoding::Tuple, Content::Removed, 16, 1));
    cases.push(Case::new(Encoding::Map, Content::Removed, 16, 1));
    cases
}

/// The case of this name.
pub(crate) fn named(name: &str) -> Case {
    let found = all().into_iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("no case is named {name}"))
}
