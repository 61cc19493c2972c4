//! One walk over the events of a payload into the table: checks structure, notes where fields are.

use super::cursor::Cursor;
use super::error::{Field, WireError};
use super::simd::Kernels;
use super::skip::skip_value;
use super::table::{List, RawDrift, RawEvent, Run, Table, Tag, mark};
use super::{named, positional};

/// Depth of an event inside a batch, and of an event's fields.
pub(super) const EVENT_DEPTH: usize = 3;
pub(super) const FIELD_DEPTH: usize = 4;

/// Marker of a two-element array, as EAGLE pairs are written.
const PAIR: u8 = 0x92;
/// Marker of nil.
pub(super) const NIL: u8 = 0xc0;

/// The walk's state: a position, and what it fills.
pub(super) struct Walk<'a, 't> {
    pub(super) cursor: Cursor<'a>,
    pub(super) table: &'t mut Table,
    pub(super) kernels: Kernels,
    /// Whether token lists are decoded on the way or passed over.
    pub(super) demand: Tokens,
}

/// What the walk does with a token list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    /// Most stored events are placed: decode at once.
    Decode,
    /// Most are filtered: only step over; the few that are placed are decoded when asked for.
    PassOver,
}

impl Walk<'_, '_> {
    /// Walks `count` events, until the table is full; gives how many are left.
    pub(super) fn events(&mut self, count: usize) -> Result<usize, WireError> {
        for done in 0..count {
            if self.table.is_full() {
                return Ok(count.saturating_sub(done));
            }
            self.event()?;
        }
        Ok(0)
    }

    fn event(&mut self) -> Result<(), WireError> {
        let mut raw = RawEvent::new(self.cursor.offset_u32());
        let drift_start = self.table.drift.len();
        if let Some(count) = self.cursor.read_array()? {
            positional::walk(self, &mut raw, count)?;
        } else if let Some(pairs) = self.cursor.read_map()? {
            named::walk(self, &mut raw, pairs)?;
        } else {
            raw.tag = Tag::NotAnEvent;
            self.skip(EVENT_DEPTH)?;
        }
        if !matches!(raw.tag, Tag::Stored | Tag::Removed | Tag::Cleared) {
            // Drift is of known events; others are counted as a whole.
            self.table.drift.truncate(drift_start);
        }
        raw.drift_end = mark(self.table.drift.len());
        self.table.events.push(raw);
        Ok(())
    }

    #[inline]
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), WireError> {
        skip_value(&mut self.cursor, depth, self.kernels)
    }

    /// Notes and steps over the value of `field`; the last one counts. Lists have methods of their own.
    #[inline]
    pub(super) fn field(&mut self, raw: &mut RawEvent, field: Field) -> Result<(), WireError> {
        self.field_at(raw, field, FIELD_DEPTH)
    }

    /// As `field`, for a value nested at another depth.
    #[inline]
    pub(super) fn field_at(
        &mut self,
        raw: &mut RawEvent,
        field: Field,
        depth: usize,
    ) -> Result<(), WireError> {
        raw.present.insert(field);
        let nil = self.cursor.peek()? == NIL;
        raw.set(field, if nil { 0 } else { self.cursor.offset_u32() });
        self.skip(depth)
    }

    /// Notes and steps over the block hashes, decoding them if they are integers.
    #[inline]
    pub(super) fn block_hashes(&mut self, raw: &mut RawEvent) -> Result<(), WireError> {
        raw.hashes = List::Absent;
        if self.cursor.peek()? == NIL {
            return self.field(raw, Field::BlockHashes);
        }
        raw.present.insert(Field::BlockHashes);
        raw.set(Field::BlockHashes, self.cursor.offset_u32());
        raw.hashes = self.hashes()?;
        Ok(())
    }

    /// Notes and steps over the token ids, decoding them if they are of the plain form and likely to be asked for.
    #[inline]
    pub(super) fn token_ids(&mut self, raw: &mut RawEvent) -> Result<(), WireError> {
        raw.tokens = List::Absent;
        if self.cursor.peek()? == NIL {
            return self.field(raw, Field::TokenIds);
        }
        raw.present.insert(Field::TokenIds);
        raw.set(Field::TokenIds, self.cursor.offset_u32());
        raw.tokens = self.tokens()?;
        Ok(())
    }

    #[inline]
    fn hashes(&mut self) -> Result<List, WireError> {
        let start = self.cursor;
        let Some(count) = self.cursor.read_array()? else {
            self.skip(FIELD_DEPTH)?;
            return Ok(List::Unread);
        };
        let from = mark(self.table.hashes.len());
        match self.kernels.read_hashes(self.cursor.rest(), count, &mut self.table.hashes) {
            Some(bytes) => {
                self.cursor.advance(bytes)?;
                Ok(List::Decoded(Run { start: from, end: mark(self.table.hashes.len()) }))
            }
            None => self.unread(start),
        }
    }

    #[inline]
    fn tokens(&mut self) -> Result<List, WireError> {
        let start = self.cursor;
        if self.demand == Tokens::PassOver {
            return self.unread(start);
        }
        let Some(count) = self.cursor.read_array()? else { return self.unread(start) };
        let from = mark(self.table.tokens.len());
        let (rest, tokens) = (self.cursor.rest(), &mut self.table.tokens);
        let pairs = count > 0 && rest.first() == Some(&PAIR);
        let read = if pairs {
            self.kernels.read_pairs(rest, count, tokens)
        } else {
            self.kernels.read_tokens(rest, count, tokens)
        };
        let Some(bytes) = read else { return self.unread(start) };
        self.cursor.advance(bytes)?;
        let run = Run { start: from, end: mark(self.table.tokens.len()) };
        Ok(if pairs { List::Pairs(run) } else { List::Decoded(run) })
    }

    /// Goes back to the list's start and steps over it.
    #[inline(never)]
    fn unread(&mut self, start: Cursor<'_>) -> Result<List, WireError> {
        debug_assert!(start.offset() <= self.cursor.offset());
        self.cursor.rewind(start.offset_u32());
        self.skip(FIELD_DEPTH)?;
        Ok(List::Unread)
    }

    pub(super) fn drift(&mut self, drift: RawDrift) {
        self.table.drift.push(drift);
    }
}
