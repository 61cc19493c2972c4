//! One event as a borrowed view, looked into in two stages so that a filtered event costs no more than it must.
//!
//! Views are large and are inlined into whoever looks at them, so that only what is used of one is ever made.

use super::batch::Demand;
use super::cursor::{Cursor, Int};
use super::error::{EventError, EventErrorKind, Field};
use super::extra_keys::{BlockMmInfos, ExtraKeys};
use super::hashes::{self, DigestHalf};
use super::simd::Kernels;
use super::table::{List, Lists, RawDrift, RawEvent, Run, Shape, Tag, mark};
use super::tails::GateId;
use super::{sound, text, tokens};
use crate::ids::EngineHash;

/// What all events share: where they are and what the walk noted. Few words, as it is moved around.
#[derive(Debug)]
pub(super) struct View<'e> {
    pub(super) payload: &'e [u8],
    pub(super) raw: &'e RawEvent,
    pub(super) context: &'e mut Context,
    pub(super) drift_start: u32,
}

/// What events are read with, and into.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) lists: Lists,
    pub(super) demand: Demand,
    pub(super) kernels: Kernels,
    pub(super) digest: DigestHalf,
}

/// An event of a sound payload.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// `BlockStored`.
    Stored(Stored<'e>),
    /// `BlockRemoved`.
    Removed(Removed<'e>),
    /// `AllBlocksCleared`.
    Cleared(Cleared<'e>),
    /// Any other tag; the text is the tag.
    Unknown(&'e str),
    /// No event at all, or one without tag or required slots.
    Malformed(EventError),
}

impl<'e> Event<'e> {
    #[inline(always)]
    pub(super) fn new(view: View<'e>) -> Self {
        match view.raw.tag {
            Tag::Stored => {
                view.context.demand.offered = view.context.demand.offered.saturating_add(1);
                Event::Stored(Stored(view))
            }
            Tag::Removed => Event::Removed(Removed(view)),
            Tag::Cleared => Event::Cleared(Cleared(view)),
            Tag::Unknown | Tag::Broken | Tag::Short | Tag::NotAnEvent => Self::other(&view),
        }
    }

    #[cold]
    #[inline(never)]
    fn other(view: &View<'e>) -> Self {
        let fail = |kind| Self::Malformed(EventError::new(view.raw.offset, kind, Field::Type));
        match view.raw.tag {
            Tag::Unknown => match view.text(Field::Type) {
                Ok(tag) => Event::Unknown(tag.unwrap_or_default()),
                Err(error) => Event::Malformed(error),
            },
            Tag::NotAnEvent => fail(EventErrorKind::NotAnEvent),
            Tag::Short => fail(EventErrorKind::TooShort),
            Tag::Broken | Tag::Stored | Tag::Removed | Tag::Cleared => fail(EventErrorKind::Missing),
        }
    }
}

/// What decides whether an event counts at all: stage one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gate<'e> {
    /// Who manages the block; none means the framework.
    pub ownership: Option<&'e str>,
    /// Whether the block is on this worker.
    pub locality: Option<&'e str>,
    /// Wire name of the tier.
    pub medium: Option<&'e str>,
    /// KV cache group.
    pub group_idx: Option<u32>,
    /// Attention kind of the group.
    pub spec_kind: Option<&'e str>,
    /// Window of the group, in tokens.
    pub sliding_window: Option<u32>,
}

/// What a stored event says of its blocks: stage two.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Body<'e> {
    /// The blocks, in chain order.
    pub block_hashes: &'e [EngineHash],
    /// The block before the first.
    pub parent_block_hash: Option<EngineHash>,
    /// Token ids; EAGLE pairs are unfolded, so they give one token more than pairs.
    pub token_ids: &'e [u32],
    /// Whether the tokens came as EAGLE pairs.
    pub bigram: bool,
    /// Tokens per block as the producer says; 0 if it does not (there are no tokens then).
    pub block_size: u32,
    /// Adapter name.
    pub lora_name: Option<&'e str>,
    /// The event's own cache salt, other than one inside the extra keys.
    pub cache_salt: Option<&'e str>,
    /// Session name, opaque.
    pub session_id: Option<&'e str>,
    /// Per block: identifiers, salt, digests.
    pub extra_keys: ExtraKeys<'e>,
    /// Per block: multimodal objects; they replace the identifiers of the extra keys.
    pub block_mm_infos: Option<BlockMmInfos<'e>>,
}

impl Body<'_> {
    /// Token entries as the producer counts them: pairs, or single tokens.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.token_ids.len().saturating_sub(usize::from(self.bigram))
    }
}

/// A stored event.
#[derive(Debug)]
pub struct Stored<'e>(View<'e>);

/// A removed event.
#[derive(Debug)]
pub struct Removed<'e>(View<'e>);

/// A cleared event.
#[derive(Debug)]
pub struct Cleared<'e>(View<'e>);

/// Something in an event that no known producer version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift<'e> {
    /// An unknown key; `None` if it is no valid text.
    Key(Option<&'e str>),
    /// An element beyond the known layouts, by its index in the tuple.
    Slot(u32),
}

impl<'e> View<'e> {
    #[inline(always)]
    fn cursor(&self, field: Field) -> Option<Cursor<'e>> {
        self.raw.field(field).map(|offset| Cursor::new(self.payload, offset as usize))
    }

    #[inline(always)]
    fn text(&self, field: Field) -> Result<Option<&'e str>, EventError> {
        match self.cursor(field) {
            None => Ok(None),
            Some(mut cursor) => match sound(cursor.read_text()).map(text) {
                Some(Ok(text)) => Ok(Some(text)),
                Some(Err(_)) => Err(self.fail(EventErrorKind::BadUtf8, field)),
                None => Err(self.fail(EventErrorKind::WrongType, field)),
            },
        }
    }

    #[inline(always)]
    fn uint(&self, field: Field) -> Result<Option<u32>, EventError> {
        match self.cursor(field) {
            None => Ok(None),
            // Groups and most block sizes take one byte.
            Some(cursor) if cursor.peek().is_ok_and(|marker| marker < 0x80) => {
                Ok(cursor.peek().ok().map(u32::from))
            }
            Some(mut cursor) => match sound(cursor.read_int()).map(Int::to_u32) {
                Some(Some(value)) => Ok(Some(value)),
                Some(None) => Err(self.fail(EventErrorKind::OutOfRange, field)),
                None => Err(self.fail(EventErrorKind::WrongType, field)),
            },
        }
    }

    /// The error of a field's value.
    #[cold]
    #[inline(never)]
    fn fail(&self, kind: EventErrorKind, field: Field) -> EventError {
        EventError::new(self.raw.field(field).unwrap_or_default(), kind, field)
    }

    #[inline(always)]
    fn gate(&self) -> Result<Gate<'e>, EventError> {
        Ok(Gate {
            ownership: self.text(Field::Ownership)?,
            locality: self.text(Field::Locality)?,
            medium: self.text(Field::Medium)?,
            group_idx: self.uint(Field::GroupIdx)?,
            spec_kind: self.text(Field::SpecKind)?,
            sliding_window: self.uint(Field::SlidingWindow)?,
        })
    }

    #[cold]
    fn missing(&self, field: Field) -> EventError {
        EventError::new(self.raw.offset, EventErrorKind::Missing, field)
    }

    /// The event's hashes as a run of `self.hashes`.
    #[inline(always)]
    fn block_hashes(&mut self) -> Result<Run, EventError> {
        if let List::Decoded(run) = self.raw.hashes {
            return Ok(run);
        }
        self.read_block_hashes()
    }

    /// The same from the payload.
    #[inline(never)]
    fn read_block_hashes(&mut self) -> Result<Run, EventError> {
        let Some(mut cursor) = self.cursor(Field::BlockHashes) else {
            return Err(self.missing(Field::BlockHashes));
        };
        let start = mark(self.context.lists.hashes.len());
        hashes::read_list(&mut cursor, self.context.digest, &mut self.context.lists.hashes)?;
        Ok(Run { start, end: mark(self.context.lists.hashes.len()) })
    }

    /// The event's tokens as a run of `self.tokens`, and whether they came as pairs.
    #[inline(always)]
    fn token_ids(&mut self) -> Result<(Run, bool), EventError> {
        match self.raw.tokens {
            List::Decoded(run) => Ok((run, false)),
            List::Pairs(run) => Ok((run, true)),
            List::Absent if self.raw.present.contains(Field::TokenIds) => Ok((Run::default(), false)),
            List::Absent => Err(self.missing(Field::TokenIds)),
            List::Unread => self.read_token_ids(),
        }
    }

    /// The same from the payload.
    #[inline(never)]
    fn read_token_ids(&mut self) -> Result<(Run, bool), EventError> {
        let Some(mut cursor) = self.cursor(Field::TokenIds) else {
            return Err(self.missing(Field::TokenIds));
        };
        let start = mark(self.context.lists.tokens.len());
        let pairs = tokens::read_list(&mut cursor, self.context.kernels, &mut self.context.lists.tokens)?;
        Ok((Run { start, end: mark(self.context.lists.tokens.len()) }, pairs))
    }

    #[inline(always)]
    fn drift(&self) -> impl Iterator<Item = Drift<'e>> {
        let payload = self.payload;
        let range = self.drift_start as usize..self.raw.drift_end as usize;
        let drift = self.context.lists.drift.get(range).unwrap_or_default();
        drift.iter().map(move |drift| match *drift {
            RawDrift::Key(offset) => {
                let key = sound(Cursor::new(payload, offset as usize).read_text());
                Drift::Key(key.and_then(|key| std::str::from_utf8(key).ok()))
            }
            RawDrift::Slot(slot) => Drift::Slot(slot),
        })
    }
}

macro_rules! shared {
    ($($event:ident),*) => {$(
        impl<'e> $event<'e> {
            /// How the event was written.
            #[must_use]
            #[inline(always)]
            pub fn shape(&self) -> Shape {
                self.0.raw.shape
            }

            /// What no known producer version sends.
            #[inline(always)]
            pub fn drift(&self) -> impl Iterator<Item = Drift<'e>> {
                self.0.drift()
            }
        }
    )*};
}

shared!(Stored, Removed, Cleared);

impl<'e> Stored<'e> {
    /// Reads stage one.
    ///
    /// # Errors
    /// If one of its fields has the wrong type, is out of range, or is not UTF-8.
    #[inline(always)]
    pub fn gate(&self) -> Result<Gate<'e>, EventError> {
        self.0.gate()
    }

    /// Names the gate if an event with the same one was seen before, by this decoder.
    #[must_use]
    #[inline]
    pub fn gate_id(&self) -> Option<GateId> {
        self.0.raw.gate
    }

    /// Reads stage two.
    ///
    /// # Errors
    /// If a used field is malformed, or a required one missing.
    #[inline(always)]
    pub fn body(&mut self) -> Result<Body<'_>, EventError> {
        let view = &mut self.0;
        view.context.demand.wanted = view.context.demand.wanted.saturating_add(1);
        let hashes = view.block_hashes()?;
        let parent_block_hash = match view.cursor(Field::ParentBlockHash) {
            Some(cursor) => Some(hashes::read_one(cursor, view.context.digest, Field::ParentBlockHash)?),
            None => None,
        };
        let (tokens, bigram) = view.token_ids()?;
        let block_size = match view.uint(Field::BlockSize)? {
            Some(block_size) => block_size,
            None if tokens.start == tokens.end => 0,
            None => return Err(view.missing(Field::BlockSize)),
        };
        let block_mm_infos = match view.cursor(Field::BlockMmInfos) {
            Some(list) => Some(BlockMmInfos::check(list, view.context.kernels)?),
            None => None,
        };
        Ok(Body {
            parent_block_hash,
            bigram,
            block_size,
            lora_name: view.text(Field::LoraName)?,
            cache_salt: view.text(Field::CacheSalt)?,
            session_id: view.text(Field::SessionId)?,
            extra_keys: ExtraKeys::check(view.cursor(Field::ExtraKeys), view.context.kernels)?,
            block_mm_infos,
            block_hashes: hashes.of(&view.context.lists.hashes),
            token_ids: tokens.of(&view.context.lists.tokens),
        })
    }
}

impl<'e> Removed<'e> {
    /// Reads stage one.
    ///
    /// # Errors
    /// If one of its fields has the wrong type, is out of range, or is not UTF-8.
    #[inline(always)]
    pub fn gate(&self) -> Result<Gate<'e>, EventError> {
        self.0.gate()
    }

    /// Reads stage two: the blocks.
    ///
    /// # Errors
    /// If the list is missing or malformed.
    #[inline(always)]
    pub fn block_hashes(&mut self) -> Result<&[EngineHash], EventError> {
        let run = self.0.block_hashes()?;
        Ok(run.of(&self.0.context.lists.hashes))
    }
}

impl<'e> Cleared<'e> {
    /// Who manages the blocks; none means the framework.
    ///
    /// # Errors
    /// If the field is no text.
    pub fn ownership(&self) -> Result<Option<&'e str>, EventError> {
        self.0.text(Field::Ownership)
    }
}
