//! The event table: what one walk over a payload notes of each event. Owned by the decoder and reused, so a
//! batch costs no allocation once it has grown.
//!
//! Integers that the walk has to step over anyway (token ids, block hashes) are decoded on the way: stepping
//! over a run costs nearly as much as decoding it. Everything else is kept as an offset.

use super::error::Field;
use super::tails::GateId;
use crate::ids::EngineHash;

/// A table is full at this many events or this many decoded tokens; the rest of the payload is then only checked, and
/// walked when the events before it have been handed out. Bounds memory whatever the payload's length.
const EVENTS_MAX: usize = 1024;
const TOKENS_MAX: usize = 128 * 1024;
/// Oddities noted one by one until the table is emptied.
const DRIFT_MAX: usize = 1024;
/// Entries a list may keep room for from batch to batch.
const KEPT_MAX: usize = 4 * 1024 * 1024;

/// How an event was written: part of what producers are recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shape {
    /// A tagged tuple of this many elements, the tag included.
    Tuple(u32),
    /// A tagged map with these keys.
    Map(FieldSet),
}

impl Shape {
    /// What an event of this shape is and how it is written; for tuples with their length, tag included.
    #[must_use]
    pub fn form(self) -> String {
        match self {
            Self::Tuple(1) => "cleared, tuple of 1".to_owned(),
            // No release sends 5; a store needs as many, a removal does not.
            Self::Tuple(elements @ 0..=4) => format!("removed, tuple of {elements}"),
            Self::Tuple(elements) => format!("stored, tuple of {elements}"),
            Self::Map(fields) if fields.contains(Field::TokenIds) => "stored, map".to_owned(),
            Self::Map(fields) if fields.contains(Field::BlockHashes) => "removed, map".to_owned(),
            Self::Map(_) => "cleared, map".to_owned(),
        }
    }
}

/// A set of event fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldSet(u32);

impl FieldSet {
    /// Whether the field is in the set.
    #[must_use]
    pub const fn contains(self, field: Field) -> bool {
        self.0 & (1 << field as u32) != 0
    }

    /// The fields in the set.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |&field| self.contains(field))
    }

    pub(super) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether a field that decides if an event counts is in the set.
    pub(super) const fn has_gate(self) -> bool {
        let mut gate = Self(0);
        gate.insert(Field::Ownership);
        gate.insert(Field::Locality);
        gate.insert(Field::Medium);
        gate.insert(Field::GroupIdx);
        gate.insert(Field::SpecKind);
        gate.insert(Field::SlidingWindow);
        self.0 & gate.0 != 0
    }

    pub(super) const fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u32;
    }
}

/// Which event a tag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Stored,
    Removed,
    Cleared,
    /// Some other name, at the offset of `Field::Type`.
    Unknown,
    /// No tag, or one that is no text.
    Broken,
    /// Neither array nor map.
    NotAnEvent,
    /// A tuple without its required slots.
    Short,
}

impl Tag {
    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        // Comparisons with constants of the name's length are a load or two each.
        match name.len() {
            11 if name == b"BlockStored" => Self::Stored,
            12 if name == b"BlockRemoved" => Self::Removed,
            16 if name == b"AllBlocksCleared" => Self::Cleared,
            _ => Self::Unknown,
        }
    }
}

/// What the walk knows of an integer list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    /// Missing or nil.
    #[default]
    Absent,
    /// Decoded into the table.
    Decoded(Run),
    /// Token pairs, decoded into single tokens (one more than pairs).
    Pairs(Run),
    /// To be read from its offset: passed over on purpose, or not of the plain form.
    Unread,
}

/// A range in `Lists::tokens` or `Lists::hashes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Run {
    pub(super) fn of<T>(self, list: &[T]) -> &[T] {
        list.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// One event as the walk saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEvent {
    /// Of its marker.
    pub(super) offset: u32,
    pub(super) tag: Tag,
    pub(super) shape: Shape,
    /// Offset of each field's value; 0 (the envelope's marker, never a field) if missing or nil.
    pub(super) fields: [u32; Field::COUNT],
    /// Keys or slots that were there, nil or not.
    pub(super) present: FieldSet,
    pub(super) tokens: List,
    pub(super) hashes: List,
    /// Set if an event with the same gate was seen before.
    pub(super) gate: Option<GateId>,
    /// End of this event's entries in `Lists::drift`; they start where the event before it ends.
    pub(super) drift_end: u32,
}

impl RawEvent {
    pub(super) const fn new(offset: u32) -> Self {
        Self {
            offset,
            tag: Tag::Broken,
            shape: Shape::Tuple(0),
            fields: [0; Field::COUNT],
            present: FieldSet(0),
            tokens: List::Absent,
            hashes: List::Absent,
            gate: None,
            drift_end: 0,
        }
    }

    /// Offset of a field's value, if there is one.
    #[inline]
    pub(super) fn field(&self, field: Field) -> Option<u32> {
        self.fields.get(field as usize).copied().filter(|&offset| offset != 0)
    }

    #[inline]
    pub(super) fn set(&mut self, field: Field, offset: u32) {
        if let Some(slot) = self.fields.get_mut(field as usize) {
            *slot = offset;
        }
    }
}

/// Something a producer sent that no known version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawDrift {
    /// Unknown key, at this offset.
    Key(u32),
    /// Element no layout has, by its index in the tuple.
    Slot(u32),
}

/// What events refer to by ranges.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) tokens: Vec<u32>,
    pub(super) hashes: Vec<EngineHash>,
    pub(super) drift: Vec<RawDrift>,
    /// Drift beyond `DRIFT_MAX`, of which only the number is kept.
    pub(super) drift_more: u64,
}

impl Lists {
    pub(super) fn push_drift(&mut self, drift: RawDrift) {
        if self.drift.len() < DRIFT_MAX {
            self.drift.push(drift);
        } else {
            self.drift_more = self.drift_more.saturating_add(1);
        }
    }

    pub(super) fn clear(&mut self) {
        give_back(&mut self.tokens);
        give_back(&mut self.hashes);
        self.drift.clear();
    }
}

/// Whether no more events should be walked before these have been handed out.
#[inline]
pub(super) fn is_full(events: &[RawEvent], lists: &Lists) -> bool {
    events.len() >= EVENTS_MAX || lists.tokens.len() >= TOKENS_MAX
}

/// Empties a list; one that a giant event has made huge is freed.
fn give_back<T>(list: &mut Vec<T>) {
    list.clear();
    if list.capacity() > KEPT_MAX {
        *list = Vec::new();
    }
}

/// Length of a list as the table stores it; payloads below 4 GiB cannot hold more.
#[expect(clippy::cast_possible_truncation, reason = "one entry takes a byte of a payload below 4 GiB")]
pub(super) const fn mark(length: usize) -> u32 {
    length as u32
}
