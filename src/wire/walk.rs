//! One walk over the events of a payload into the table: checks structure, notes where fields are.

#![expect(clippy::inline_always, reason = "a call that is not inlined puts the position in memory")]

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

/// What a walk reads and fills, and how. The position is passed beside it, so that it can stay in registers.
pub(super) struct Walk<'a, 't> {
    pub(super) payload: &'a [u8],
    pub(super) table: &'t mut Table,
    pub(super) kernels: Kernels,
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

impl<'a> Walk<'a, '_> {
    /// Walks `count` events from `at`, until the table is full; gives where it ended and how many are left.
    pub(super) fn events(&mut self, mut at: usize, count: usize) -> Result<(usize, usize), WireError> {
        for done in 0..count {
            if self.table.is_full() {
                return Ok((at, count.saturating_sub(done)));
            }
            at = self.event(at)?;
        }
        Ok((at, 0))
    }

    #[inline]
    fn event(&mut self, at: usize) -> Result<usize, WireError> {
        let mut cursor = self.cursor(at);
        let mut raw = RawEvent::new(cursor.offset_u32());
        let drift_start = self.table.drift.len();
        let end = if let Some(count) = cursor.read_array()? {
            positional::walk(self, cursor.offset(), &mut raw, count)?
        } else if let Some(pairs) = cursor.read_map()? {
            named::walk(self, cursor.offset(), &mut raw, pairs)?
        } else {
            raw.tag = Tag::NotAnEvent;
            self.skip(&mut cursor, EVENT_DEPTH)?;
            cursor.offset()
        };
        if !matches!(raw.tag, Tag::Stored | Tag::Removed | Tag::Cleared) {
            // Drift is of known events; others are counted as a whole.
            self.table.drift.truncate(drift_start);
        }
        raw.drift_end = mark(self.table.drift.len());
        self.table.events.push(raw);
        Ok(end)
    }

    #[inline(always)]
    pub(super) const fn cursor(&self, at: usize) -> Cursor<'a> {
        Cursor::new(self.payload, at)
    }

    #[inline(always)]
    pub(super) fn skip(&self, at: &mut Cursor<'_>, depth: usize) -> Result<(), WireError> {
        skip_value(at, depth, self.kernels)
    }

    /// Notes and steps over the value of `field`; the last one counts. Lists have methods of their own.
    #[inline(always)]
    pub(super) fn field(
        &self,
        at: &mut Cursor<'_>,
        raw: &mut RawEvent,
        field: Field,
    ) -> Result<(), WireError> {
        note(at, raw, field)?;
        self.skip(at, FIELD_DEPTH)
    }

    /// Notes and steps over the block hashes, decoding them if they are integers.
    #[inline(always)]
    pub(super) fn block_hashes(&mut self, at: &mut Cursor<'_>, raw: &mut RawEvent) -> Result<(), WireError> {
        let start = at.offset();
        note(at, raw, Field::BlockHashes)?;
        let Some(count) = at.read_array()? else {
            raw.hashes = if at.peek()? == NIL { List::Absent } else { List::Unread };
            return self.skip(at, FIELD_DEPTH);
        };
        let from = mark(self.table.hashes.len());
        match self.kernels.read_hashes(at.rest(), count, &mut self.table.hashes) {
            Some(bytes) => {
                raw.hashes = List::Decoded(Run { start: from, end: mark(self.table.hashes.len()) });
                at.advance(bytes)
            }
            None => {
                raw.hashes = List::Unread;
                at.go(start);
                self.skip(at, FIELD_DEPTH)
            }
        }
    }

    /// Notes and steps over the token ids, decoding them if they are of the plain form and likely to be asked for.
    #[inline(always)]
    pub(super) fn token_ids(&mut self, at: &mut Cursor<'_>, raw: &mut RawEvent) -> Result<(), WireError> {
        let start = at.offset();
        note(at, raw, Field::TokenIds)?;
        let count = match at.read_array()? {
            Some(count) if self.demand == Tokens::Decode => count,
            list => {
                raw.tokens = if list.is_none() && at.peek()? == NIL { List::Absent } else { List::Unread };
                at.go(start);
                return self.skip(at, FIELD_DEPTH);
            }
        };
        let from = mark(self.table.tokens.len());
        let (rest, tokens) = (at.rest(), &mut self.table.tokens);
        let pairs = count > 0 && rest.first() == Some(&PAIR);
        let read = if pairs {
            self.kernels.read_pairs(rest, count, tokens)
        } else {
            self.kernels.read_tokens(rest, count, tokens)
        };
        if let Some(bytes) = read {
            let run = Run { start: from, end: mark(self.table.tokens.len()) };
            raw.tokens = if pairs { List::Pairs(run) } else { List::Decoded(run) };
            return at.advance(bytes);
        }
        raw.tokens = List::Unread;
        at.go(start);
        self.skip(at, FIELD_DEPTH)
    }

    #[cold]
    pub(super) fn drift(&mut self, drift: RawDrift) {
        self.table.drift.push(drift);
    }
}

/// Notes where the value of `field` is; nil is nowhere.
#[inline(always)]
fn note(at: &Cursor<'_>, raw: &mut RawEvent, field: Field) -> Result<(), WireError> {
    raw.present.insert(field);
    let nil = at.peek()? == NIL;
    raw.set(field, if nil { 0 } else { at.offset_u32() });
    Ok(())
}
