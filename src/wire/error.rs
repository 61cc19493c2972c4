//! What can be wrong: with a payload (`WireError`) or with one event of a sound payload (`EventError`).
//! Both are 8 bytes, `Copy`, and carry the offset of the byte that broke the rule.

use std::fmt;

macro_rules! kinds {
    ($(#[$about:meta])* $kinds:ident: $($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $kinds { $($(#[$doc])* $name,)* }

        impl $kinds {
            /// All of them.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$name),*];

            /// Stable snake_case label.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

/// Why a payload was refused whole. Nothing of it has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError {
    offset: u32,
    kind: WireErrorKind,
}

kinds! {
    /// The rule a refused payload broke.
    WireErrorKind:
    /// The payload ends inside a value, or a declared length reaches beyond it. Offset: the marker of that
    /// value, or the payload's length when a value is missing altogether.
    Truncated = "truncated",
    /// Bytes follow the batch value. Offset: the first of them.
    TrailingBytes = "trailing_bytes",
    /// Marker 0xc1, which msgpack reserves.
    ReservedMarker = "reserved_marker",
    /// A container nested deeper than 64, the batch being the first.
    TooDeep = "too_deep",
    /// The batch is neither an array of at least two elements nor a map.
    NotABatch = "not_a_batch",
    /// The timestamp is missing or no number.
    BadTimestamp = "bad_timestamp",
    /// The event list is missing or no array.
    BadEvents = "bad_events",
    /// The rank is neither nil nor an integer of at most 32 bits.
    BadRank = "bad_rank",
    /// The payload is longer than the decoder may read.
    TooLong = "too_long",
}

impl WireError {
    #[cold]
    #[inline(never)]
    pub(super) fn new(offset: usize, kind: WireErrorKind) -> Self {
        Self { offset: u32::try_from(offset).unwrap_or(u32::MAX), kind }
    }

    /// Byte offset in the payload.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// The rule broken.
    #[must_use]
    pub const fn kind(self) -> WireErrorKind {
        self.kind
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.kind {
            WireErrorKind::Truncated => "a value reaches beyond the payload",
            WireErrorKind::TrailingBytes => "bytes follow the batch",
            WireErrorKind::ReservedMarker => "reserved marker 0xc1",
            WireErrorKind::TooDeep => "containers nested deeper than 64",
            WireErrorKind::NotABatch => "a batch is an array of at least two elements or a map",
            WireErrorKind::BadTimestamp => "the timestamp is missing or not a number",
            WireErrorKind::BadEvents => "the event list is missing or not an array",
            WireErrorKind::BadRank => "the rank is neither nil nor a 32-bit integer",
            WireErrorKind::TooLong => "the payload is longer than allowed, refused",
        };
        write!(f, "{rule} at byte {}", self.offset)
    }
}

impl std::error::Error for WireError {}

/// Why one event of a sound payload is malformed. It costs that event alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventError {
    offset: u32,
    kind: EventErrorKind,
    field: Field,
}

kinds! {
    /// The rule a malformed event broke.
    EventErrorKind:
    /// The event is neither an array nor a map.
    NotAnEvent = "not_an_event",
    /// A required field, or the tag, is missing.
    Missing = "missing",
    /// A tuple with fewer elements than its tag requires.
    TooShort = "too_short",
    /// A used field has a type it cannot have.
    WrongType = "wrong_type",
    /// A used string is not UTF-8.
    BadUtf8 = "bad_utf8",
    /// An integer does not fit its field.
    OutOfRange = "out_of_range",
    /// A block hash of no bytes.
    EmptyDigest = "empty_digest",
    /// EAGLE token pairs that do not overlap by one token.
    BrokenPairs = "broken_pairs",
}

impl EventError {
    #[cold]
    #[inline(never)]
    pub(super) fn new(offset: u32, kind: EventErrorKind, field: Field) -> Self {
        Self { offset, kind, field }
    }

    /// Byte offset in the payload: the value at fault, or the event if something is missing.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// The rule broken.
    #[must_use]
    pub const fn kind(self) -> EventErrorKind {
        self.kind
    }

    /// The field at fault.
    #[must_use]
    pub const fn field(self) -> Field {
        self.field
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.kind {
            EventErrorKind::NotAnEvent => "is neither an array nor a map",
            EventErrorKind::Missing => "is missing",
            EventErrorKind::TooShort => "belongs to a tuple with too few elements",
            EventErrorKind::WrongType => "has the wrong type",
            EventErrorKind::BadUtf8 => "is not UTF-8",
            EventErrorKind::OutOfRange => "is out of range",
            EventErrorKind::EmptyDigest => "holds a block hash of no bytes",
            EventErrorKind::BrokenPairs => "holds token pairs that do not overlap",
        };
        write!(f, "{} {rule} at byte {}", self.field.label(), self.offset)
    }
}

impl std::error::Error for EventError {}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// A field of an event. `Type` is the tag; the others are named as on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Field { $($(#[$doc])* $name,)* }

        impl Field {
            /// How many there are.
            pub(super) const COUNT: usize = [$($label),*].len();
            /// All of them, in order of their number.
            pub(super) const ALL: [Self; Self::COUNT] = [$(Self::$name),*];

            /// The key on the wire.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

fields! {
    /// The tag.
    Type = "type",
    /// The blocks, in chain order.
    BlockHashes = "block_hashes",
    /// The block before the first.
    ParentBlockHash = "parent_block_hash",
    /// Tokens, single or as EAGLE pairs.
    TokenIds = "token_ids",
    /// Tokens per block.
    BlockSize = "block_size",
    /// Deprecated adapter number; never read.
    LoraId = "lora_id",
    /// Wire name of the tier.
    Medium = "medium",
    /// Adapter name.
    LoraName = "lora_name",
    /// Per block: identifiers, salt, digests (vLLM).
    ExtraKeys = "extra_keys",
    /// Per block: multimodal objects (Dynamo).
    BlockMmInfos = "block_mm_infos",
    /// KV cache group.
    GroupIdx = "group_idx",
    /// Attention kind of the group.
    SpecKind = "kv_cache_spec_kind",
    /// Window of the group in tokens.
    SlidingWindow = "kv_cache_spec_sliding_window",
    /// `LOCAL` or `REMOTE`.
    Locality = "locality",
    /// Who manages the block.
    Ownership = "ownership",
    /// Opaque session name.
    SessionId = "session_id",
    /// Cache namespace.
    CacheSalt = "cache_salt",
    /// Speculative tokens (vLLM 0.33.0); never read.
    LookaheadTokenIds = "lookahead_token_ids",
}

const _: () = assert!(size_of::<WireError>() == 8);
const _: () = assert!(size_of::<EventError>() == 8);
