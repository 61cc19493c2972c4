//! Ends of stored events seen before: all that follows the token list.
//!
//! A producer writes block size, medium, group and the like in the same bytes event after event. Where the bytes
//! after the token list are those of an earlier event at the same place, they mean the same, and one comparison stands
//! for a walk over each of them. What decides whether the event counts is among them, so the verdict can be
//! remembered too: see [`GateId`].

use std::num::NonZeroU32;
use std::ops::Range;

use super::error::Field;
use super::table::{FieldSet, RawEvent, mark};

/// Kinds of tails remembered; a hybrid model has a handful of groups.
const TAILS: usize = 4;
/// Longer ones are walked. Today's longest, vLLM 0.33's map with every short field, has 230 bytes.
const BYTES_MAX: usize = 256;

/// Fields whose contents differ from event to event, so that remembering them would be for nothing.
const VARYING: [Field; 5] =
    [Field::ExtraKeys, Field::BlockMmInfos, Field::LookaheadTokenIds, Field::SessionId, Field::CacheSalt];

/// Names the gate of an event: two events with the same id have equal gates. Unique within a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateId(NonZeroU32);

impl GateId {
    /// Ids that a decoder has in use at a time; `slot` tells them apart.
    pub const SLOTS: usize = TAILS;

    /// Below [`GateId::SLOTS`].
    #[must_use]
    #[inline]
    pub const fn slot(self) -> usize {
        self.0.get() as usize % TAILS
    }
}

/// Where a tail begins: what it must agree in with another to mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of a map, not of a tuple.
    pub(super) named: bool,
    /// Pairs or elements to come.
    pub(super) left: usize,
    /// Keys or slots before it.
    pub(super) present: FieldSet,
}

#[derive(Debug)]
struct Tail {
    place: Place,
    /// All keys or slots of an event that ends so.
    present: FieldSet,
    /// By field: its distance from the tail's start, and all ones if the tail holds it (0 and 0 if not, or if nil).
    distance: [u32; Field::COUNT],
    holds: [u32; Field::COUNT],
    gate: GateId,
    /// An offset in `bytes` at which another tail of the same place differs: looked at first.
    telling: usize,
    /// The byte there.
    told: u8,
    len: usize,
    bytes: [u8; BYTES_MAX],
}

impl Tail {
    fn tell(&mut self, telling: usize) {
        self.telling = telling;
        self.told = self.bytes.get(telling).copied().unwrap_or_default();
    }
}

/// The tails one decoder remembers.
#[derive(Debug)]
pub(super) struct Tails {
    known: Vec<Tail>,
    /// The next to be replaced.
    oldest: usize,
    issued: u32,
}

impl Tails {
    /// None yet, with room for all there will be.
    pub(super) fn new() -> Self {
        Self { known: Vec::with_capacity(TAILS), oldest: 0, issued: 0 }
    }

    /// If the bytes at `at` are a known tail at this place, notes its fields and gives where it ends.
    #[inline]
    pub(super) fn find(&self, payload: &[u8], at: usize, place: Place, raw: &mut RawEvent) -> Option<usize> {
        // Which tail comes next is anyone's guess, so no branch is asked: all are looked at by their telling byte, and as
        // a rule one is left.
        let mut candidates = 0_u32;
        for (number, tail) in self.known.iter().enumerate() {
            let told = payload.get(at.saturating_add(tail.telling)) == Some(&tail.told);
            candidates |= u32::from(told) << number;
        }
        while let Some(tail) = self.known.get(candidates.trailing_zeros() as usize) {
            candidates &= candidates.wrapping_sub(1);
            let end = at.saturating_add(tail.len);
            if tail.place != place || payload.get(at..end) != tail.bytes.get(..tail.len) {
                continue;
            }
            let at = mark(at);
            for ((field, distance), holds) in raw.fields.iter_mut().zip(&tail.distance).zip(&tail.holds) {
                *field = field.wrapping_add(at & holds).wrapping_add(*distance);
            }
            raw.present = tail.present;
            raw.gate = Some(tail.gate);
            return Some(end);
        }
        None
    }

    /// Remembers the tail just walked, if another event may end the same.
    pub(super) fn learn(&mut self, payload: &[u8], span: Range<usize>, place: Place, raw: &RawEvent) {
        let at = mark(span.start);
        let (Some(bytes), Some(issued)) = (payload.get(span), self.issued.checked_add(1)) else { return };
        // Every element must have brought a field of its own: nothing twice, nothing unknown.
        let brought = raw.present.len().checked_sub(place.present.len());
        let fits = bytes.len() <= BYTES_MAX && brought == Some(place.left) && place.left > 0;
        if !fits || VARYING.iter().any(|&field| raw.field(field).is_some()) {
            return;
        }
        let Some(gate) = NonZeroU32::new(issued).map(GateId) else { return };
        // Issued in the order in which places are replaced, so that ids in use differ in their slot.
        debug_assert_eq!(gate.slot(), self.oldest.wrapping_add(1) % TAILS);
        self.issued = issued;
        let mut tail = Tail {
            place,
            present: raw.present,
            distance: [0; Field::COUNT],
            holds: [0; Field::COUNT],
            gate,
            telling: 0,
            told: bytes.first().copied().unwrap_or_default(),
            len: bytes.len(),
            bytes: [0; BYTES_MAX],
        };
        for ((distance, holds), &offset) in tail.distance.iter_mut().zip(&mut tail.holds).zip(&raw.fields) {
            if offset >= at {
                (*distance, *holds) = (offset.wrapping_sub(at), u32::MAX);
            }
        }
        if let Some(copy) = tail.bytes.get_mut(..bytes.len()) {
            copy.copy_from_slice(bytes);
        }
        for other in self.known.iter_mut().filter(|other| other.place == place) {
            let differs = tail.bytes.iter().zip(&other.bytes).position(|(one, two)| one != two);
            if let Some(telling) = differs.filter(|&at| at < tail.len.min(other.len)) {
                tail.tell(telling);
                other.tell(telling);
            }
        }
        match self.known.get_mut(self.oldest) {
            Some(oldest) => *oldest = tail,
            None => self.known.push(tail),
        }
        self.oldest = self.oldest.wrapping_add(1) % TAILS;
    }
}
