//! Every way an event or block is not placed, with its stable label.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $scope:ident;)*) => {
        /// Why a sound event, or some of its blocks, was not placed (or, for [`Reason::Rehashed`], what was odd about it).
        /// Each drop is counted under exactly one reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All reasons, in the order in which they are judged.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$name),*];

            /// Stable snake_case label for metrics, JSON and logs.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// What one count of it stands for.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope,)* }
            }
        }
    };
}

/// What a reason is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing between an event and a block")]
pub enum Scope {
    /// Whole events.
    Event,
    /// Single blocks.
    Block,
}

reasons! {
    /// The source has used up the ranks it may bring, or the engine its workers.
    TooManyRanks = "too_many_ranks", Event;
    /// The block is managed by a layer kvtap does not follow (`kvcr`).
    UnsupportedOwnership = "unsupported_ownership", Event;
    /// An ownership nobody documents.
    UnknownOwnership = "unknown_ownership", Event;
    /// The block is not on this worker.
    NonLocalLocality = "non_local_locality", Event;
    /// A medium with no known tier.
    UnknownMedium = "unknown_medium", Event;
    /// The event names a kind of attention whose blocks do not decide reuse.
    NonMainAttentionKind = "non_main_attention_kind", Event;
    /// The event's group was learned to be of such a kind.
    NonMainAttentionGroup = "non_main_attention_group", Event;
    /// A kind of attention nobody documents, on the event or learned for its group.
    UnknownKind = "unknown_kind", Event;
    /// A group other than 0 whose kind was never named.
    UnlearnedGroupIdx = "unlearned_group_idx", Event;
    /// The parent's hash is known under two salts, so the children's salt is anyone's guess.
    AmbiguousCacheNamespace = "ambiguous_cache_namespace", Event;
    /// A block smaller than the configured size, from a rank that has published full ones.
    PartialBlock = "partial_block", Event;
    /// The producer's block size is not the configured one.
    BlockSizeMismatch = "block_size_mismatch", Event;
    /// A store without hashes.
    NoHashes = "no_hashes", Event;
    /// A store that repeats a hash or names itself as parent.
    SelfReferencing = "self_referencing", Event;
    /// More tokens than the hashes account for: blocks in between were skipped.
    ExcessTokens = "excess_tokens", Event;
    /// The parent was never placed, or is gone.
    UnknownParent = "unknown_parent", Block;
    /// A new block of a source that holds as many as it may.
    TooManyBlocks = "too_many_blocks", Block;
    /// Too few tokens for this block.
    ShortTokens = "short_tokens", Block;
    /// A store by hash alone whose hash is not known.
    UnresolvedHash = "unresolved_hash", Block;
    /// A removal of a block that is not known at that tier.
    UnknownBlock = "unknown_block", Block;
    /// A known engine hash with another prefix; it was placed, and replaced the old one.
    Rehashed = "rehashed", Block;
}
