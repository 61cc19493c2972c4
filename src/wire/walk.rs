//! One walk over the events of a payload into the table: checks structure, notes where fields are.

use std::ops::Range;

use super::cursor::Cursor;
use super::error::{Field, WireError};
use super::simd::Kernels;
use super::skip::skip_value;
use super::table::{List, Lists, RawDrift, RawEvent, Run, Tag, is_full, mark};
use super::tails::{Place, Tails};
use super::{named, positional};
use crate::ids::EngineHash;

/// Depth of an event inside a batch, and of an event's fields.
pub(super) const EVENT_DEPTH: usize = 3;
pub(super) const FIELD_DEPTH: usize = 4;

/// Marker of a two-element array, as EAGLE pairs are written.
const PAIR: u8 = 0x92;
/// Marker of nil.
pub(super) const NIL: u8 = 0xc0;

/// What is walked, and how.
#[derive(Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) payload: &'a [u8],
    pub(super) kernels: Kernels,
    pub(super) demand: Tokens,
}

impl Scan<'_> {
    #[inline(always)]
    pub(super) fn skip(&self, at: &mut Cursor<'_>, depth: usize) -> Result<(), WireError> {
        skip_value(at, depth, self.kernels)
    }
}

/// A walk over one event. The position is passed beside it, so that it can stay in registers.
pub(super) struct Walk<'a, 't> {
    scan: Scan<'a>,
    pub(super) lists: &'t mut Lists,
    tails: &'t mut Tails,
}

/// What the walk does with a token list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tokens {
    /// Most stored events are placed: decode at once.
    Decode,
    /// Most are filtered: only step over; the few that are placed are decoded when asked for.
    PassOver,
}

/// Walks `count` events from `at`, until the table is full; gives where it ended and how many are left.
pub(super) fn events(
    scan: Scan<'_>,
    (events, lists, tails): (&mut Vec<RawEvent>, &mut Lists, &mut Tails),
    mut at: usize,
    count: usize,
) -> Result<(usize, usize), WireError> {
    for done in 0..count {
        if is_full(events, lists) {
            return Ok((at, count.saturating_sub(done)));
        }
        // Made where it stays: an event is filled in all over, and large to move.
        events.push(RawEvent::new(mark(at)));
        if let Some(raw) = events.last_mut() {
            at = Walk { scan, lists, tails }.event(at, raw)?;
        }
    }
    Ok((at, 0))
}

impl<'a> Walk<'a, '_> {
    #[inline]
    fn event(&mut self, at: usize, raw: &mut RawEvent) -> Result<usize, WireError> {
        let mut cursor = self.cursor(at);
        let drift_start = self.lists.drift.len();
        let end = if let Some(count) = cursor.read_array()? {
            positional::walk(self, cursor.offset(), raw, count)?
        } else if let Some(pairs) = cursor.read_map()? {
            named::walk(self, cursor.offset(), raw, pairs)?
        } else {
            raw.tag = Tag::NotAnEvent;
            self.skip(&mut cursor, EVENT_DEPTH)?;
            cursor.offset()
        };
        if !matches!(raw.tag, Tag::Stored | Tag::Removed | Tag::Cleared) {
            // Drift is of known events; others are counted as a whole.
            self.lists.drift.truncate(drift_start);
        }
        raw.drift_end = mark(self.lists.drift.len());
        Ok(end)
    }

    #[inline(always)]
    pub(super) const fn cursor(&self, at: usize) -> Cursor<'a> {
        Cursor::new(self.scan.payload, at)
    }

    #[inline(always)]
    pub(super) fn skip(&self, at: &mut Cursor<'_>, depth: usize) -> Result<(), WireError> {
        self.scan.skip(at, depth)
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
        let from = mark(self.lists.hashes.len());
        // Decoding publishes block by block: one full-width hash is the most common list there is.
        if count == 1
            && let Some((&[0xcf | 0xd3, hash @ ..], _)) = at.rest().split_first_chunk::<9>()
        {
            self.lists.hashes.push(EngineHash(u64::from_be_bytes(hash)));
            raw.hashes = List::Decoded(Run { start: from, end: from.saturating_add(1) });
            return at.advance(9);
        }
        match self.scan.kernels.read_hashes(at.rest(), count, &mut self.lists.hashes) {
            Some(bytes) => {
                raw.hashes = List::Decoded(Run { start: from, end: mark(self.lists.hashes.len()) });
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
        let Some(count) = at.read_array()? else {
            raw.tokens = if at.peek()? == NIL { List::Absent } else { List::Unread };
            return self.skip(at, FIELD_DEPTH);
        };
        if self.scan.demand == Tokens::PassOver
            && let Some(bytes) = self.scan.kernels.skip_tokens(at.rest(), count)
        {
            raw.tokens = List::Unread;
            return at.advance(bytes);
        }
        let from = mark(self.lists.tokens.len());
        let (rest, tokens) = (at.rest(), &mut self.lists.tokens);
        let pairs = count > 0 && rest.first() == Some(&PAIR);
        let read = if pairs {
            self.scan.kernels.read_pairs(rest, count, tokens)
        } else {
            self.scan.kernels.read_tokens(rest, count, tokens)
        };
        if let Some(bytes) = read {
            let run = Run { start: from, end: mark(self.lists.tokens.len()) };
            raw.tokens = if pairs { List::Pairs(run) } else { List::Decoded(run) };
            return at.advance(bytes);
        }
        raw.tokens = List::Unread;
        at.go(start);
        self.skip(at, FIELD_DEPTH)
    }

    /// Steps over all that follows the token list, if another event ended the same.
    #[inline(always)]
    pub(super) fn known_tail(&self, at: usize, place: Place, raw: &mut RawEvent) -> Option<usize> {
        if raw.tag != Tag::Stored || place.present.has_gate() {
            return None;
        }
        self.tails.find(self.scan.payload, at, place, raw)
    }

    /// Remembers what followed the token list.
    #[inline(never)]
    pub(super) fn learn_tail(&mut self, span: Range<usize>, place: Place, raw: &RawEvent) {
        if raw.tag == Tag::Stored && !place.present.has_gate() {
            self.tails.learn(self.scan.payload, span, place, raw);
        }
    }

    #[cold]
    pub(super) fn drift(&mut self, drift: RawDrift) {
        self.lists.push_drift(drift);
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
