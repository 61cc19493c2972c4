//! The batch: checks a payload to its last byte and finds the rank, which comes after the events; only then hands
//! out events.

use super::cursor::{Cursor, Int};
use super::error::{WireError, WireErrorKind};
use super::event::{Context, Event, View};
use super::hashes::DigestHalf;
use super::simd::{Kernels, SimdLevel};
use super::skip::skip_value;
use super::table::{Lists, RawEvent, mark};
use super::tails::Tails;
use super::walk::{EVENT_DEPTH, NIL, Scan, Tokens, events};

/// Depth of the batch's own elements.
const ELEMENT_DEPTH: usize = 2;
/// Timestamps above this are milliseconds (Mooncake's master), below it seconds.
const MILLISECONDS_FROM: f64 = 1e11;
/// Keys of the rank in a map envelope; the first present counts.
const RANK_KEYS: [&[u8]; 3] = [b"data_parallel_rank", b"attn_dp_rank", b"dp_rank"];

/// Decodes payloads; owns the buffers that are reused from batch to batch.
///
/// ```
/// let payload = b"\x93\xcb\x41\xda\x4b\xe0\x10\x00\x00\x00\x91\x91\xb0AllBlocksCleared\x02";
/// let mut decoder = kvtap::wire::Decoder::new(kvtap::DigestHalf::Low);
/// let mut batch = decoder.read(payload)?;
/// assert_eq!(batch.dp_rank(), Some(2));
/// assert!(matches!(batch.next_event(), Some(kvtap::wire::Event::Cleared(_))));
/// assert!(batch.next_event().is_none());
/// # Ok::<(), kvtap::wire::WireError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    events: Vec<RawEvent>,
    context: Context,
    tails: Tails,
    /// Bytes.
    payload_max: u32,
}

/// How many of the stored events handed out lately had their tokens asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    pub(super) offered: u32,
    pub(super) wanted: u32,
}

impl Demand {
    /// Passing over costs a second look at those that are wanted after all, so it must be clearly the rarer case.
    fn tokens(self) -> Tokens {
        if self.wanted.saturating_mul(2) < self.offered { Tokens::PassOver } else { Tokens::Decode }
    }
}

impl Decoder {
    /// A decoder that reads digests by the given half, at the best SIMD level of this CPU. The environment variable
    /// `KVTAP_SIMD` (`scalar`, `ssse3`, `avx512`, `neon`) makes it take another that the CPU runs too.
    #[must_use]
    pub fn new(digest: DigestHalf) -> Self {
        Self::with_kernels(digest, Kernels::detect())
    }

    /// A decoder that runs integer runs at this SIMD level; `None` if this CPU cannot.
    #[must_use]
    pub fn with_simd(digest: DigestHalf, level: SimdLevel) -> Option<Self> {
        Kernels::force(level).map(|kernels| Self::with_kernels(digest, kernels))
    }

    fn with_kernels(digest: DigestHalf, kernels: Kernels) -> Self {
        let context = Context { lists: Lists::default(), demand: Demand::default(), kernels, digest };
        Self { events: Vec::new(), context, tails: Tails::new(), payload_max: u32::MAX }
    }

    /// Refuses payloads of more bytes. What a decoder keeps while it reads one is at most 16 times its size, usually far
    /// less; 4 GiB, the most that offsets can name, unless set.
    pub const fn set_payload_max(&mut self, bytes: u32) {
        self.payload_max = bytes;
    }

    /// Checks a payload to its last byte.
    ///
    /// # Errors
    /// If its msgpack structure is broken, bytes follow it, or its envelope is not a batch's. Nothing was handed out.
    pub fn read<'d>(&'d mut self, payload: &'d [u8]) -> Result<Batch<'d>, WireError> {
        if payload.len() > self.payload_max as usize {
            return Err(WireError::new(0, WireErrorKind::TooLong));
        }
        let Context { lists, demand, kernels, .. } = &mut self.context;
        let tokens = std::mem::take(demand).tokens();
        self.events.clear();
        lists.clear();
        lists.drift_more = 0;
        let mut check = Check {
            cursor: Cursor::new(payload, 0),
            scan: Scan { payload, kernels: *kernels, demand: tokens },
            events: &mut self.events,
            lists,
            tails: &mut self.tails,
            envelope: Envelope::default(),
        };
        check.payload()?;
        let envelope = check.envelope;
        Ok(Batch { decoder: self, payload, envelope, next: 0, drift_start: 0 })
    }
}

/// What surrounds the events.
#[derive(Clone, Copy, Debug, Default)]
struct Envelope {
    timestamp: f64,
    dp_rank: Option<u32>,
    negative_rank: bool,
    /// Elements of an array envelope; 0 for a map.
    elements: usize,
    /// Unknown keys or slots.
    unknown: u32,
    /// Events not in the table yet, and where they start.
    left: usize,
    left_at: u32,
}

struct Check<'a, 't> {
    cursor: Cursor<'a>,
    scan: Scan<'a>,
    events: &'t mut Vec<RawEvent>,
    lists: &'t mut Lists,
    tails: &'t mut Tails,
    envelope: Envelope,
}

impl Check<'_, '_> {
    fn payload(&mut self) -> Result<(), WireError> {
        let start = self.cursor;
        if let Some(elements) = self.cursor.read_array()? {
            if elements < 2 {
                return Err(start.fail(WireErrorKind::NotABatch));
            }
            self.array(elements)?;
        } else if let Some(pairs) = self.cursor.read_map()? {
            self.map(pairs)?;
        } else {
            // Structure first: a scalar cut short is truncated, whatever it would have been.
            self.scan.skip(&mut self.cursor, 1)?;
            return Err(start.fail(WireErrorKind::NotABatch));
        }
        if self.cursor.is_empty() { Ok(()) } else { Err(self.cursor.fail(WireErrorKind::TrailingBytes)) }
    }

    fn array(&mut self, elements: usize) -> Result<(), WireError> {
        self.envelope.elements = elements;
        self.timestamp()?;
        self.events()?;
        for slot in 2..elements {
            if slot == 2 {
                self.rank()?;
            } else {
                self.envelope.unknown = self.envelope.unknown.saturating_add(1);
                self.scan.skip(&mut self.cursor, ELEMENT_DEPTH)?;
            }
        }
        Ok(())
    }

    /// Keys in any order, the last of a name counts: first finds all values, then reads them.
    fn map(&mut self, pairs: usize) -> Result<(), WireError> {
        let (mut timestamp, mut events, mut ranks) = (None, None, [None; RANK_KEYS.len()]);
        for _ in 0..pairs {
            let key = self.cursor.read_text()?;
            if key.is_none() {
                self.scan.skip(&mut self.cursor, ELEMENT_DEPTH)?;
            }
            let value = Some(self.cursor.offset_u32());
            self.scan.skip(&mut self.cursor, ELEMENT_DEPTH)?;
            let rank = RANK_KEYS.iter().zip(&mut ranks).find(|(name, _)| Some(**name) == key);
            match (key, rank) {
                (Some(b"ts"), _) => timestamp = value,
                (Some(b"events"), _) => events = value,
                (_, Some((_, rank))) => *rank = value,
                _ => self.envelope.unknown = self.envelope.unknown.saturating_add(1),
            }
        }
        let end = self.cursor;
        self.rewind(timestamp, WireErrorKind::BadTimestamp)?;
        self.timestamp()?;
        self.rewind(events, WireErrorKind::BadEvents)?;
        self.events()?;
        if let Some(rank) = ranks.into_iter().flatten().next() {
            self.cursor.go(rank as usize);
            self.rank()?;
        }
        self.cursor = end;
        Ok(())
    }

    fn rewind(&mut self, offset: Option<u32>, missing: WireErrorKind) -> Result<(), WireError> {
        self.cursor.go(offset.ok_or_else(|| WireError::new(0, missing))? as usize);
        Ok(())
    }

    fn timestamp(&mut self) -> Result<(), WireError> {
        let Some(timestamp) = self.cursor.read_number()? else {
            return Err(self.unless_broken(WireErrorKind::BadTimestamp));
        };
        self.envelope.timestamp = if timestamp > MILLISECONDS_FROM { timestamp / 1e3 } else { timestamp };
        Ok(())
    }

    fn events(&mut self) -> Result<(), WireError> {
        let Some(count) = self.cursor.read_array()? else {
            return Err(self.unless_broken(WireErrorKind::BadEvents));
        };
        let (at, left) =
            events(self.scan, (self.events, self.lists, self.tails), self.cursor.offset(), count)?;
        self.cursor.go(at);
        self.envelope.left = left;
        self.envelope.left_at = self.cursor.offset_u32();
        for _ in 0..left {
            self.scan.skip(&mut self.cursor, EVENT_DEPTH)?;
        }
        Ok(())
    }

    fn rank(&mut self) -> Result<(), WireError> {
        if self.cursor.peek()? == NIL {
            return self.cursor.advance(1);
        }
        let start = self.cursor;
        match self.cursor.read_int()? {
            Some(Int::Negative(_)) => self.envelope.negative_rank = true,
            Some(int) => {
                let rank = int.to_u32().ok_or_else(|| start.fail(WireErrorKind::BadRank))?;
                self.envelope.dp_rank = Some(rank);
            }
            None => return Err(self.unless_broken(WireErrorKind::BadRank)),
        }
        Ok(())
    }

    /// The error of a wrong value here, or what is wrong with its structure.
    fn unless_broken(&self, kind: WireErrorKind) -> WireError {
        let mut ahead = self.cursor;
        match skip_value(&mut ahead, ELEMENT_DEPTH, self.scan.kernels) {
            Ok(()) => self.cursor.fail(kind),
            Err(error) => error,
        }
    }
}

/// A payload checked to its last byte. Hands out its events one by one.
#[derive(Debug)]
pub struct Batch<'d> {
    decoder: &'d mut Decoder,
    payload: &'d [u8],
    envelope: Envelope,
    /// Index in the table of the next event.
    next: usize,
    drift_start: u32,
}

impl Batch<'_> {
    /// Unix seconds, whatever unit the producer used.
    #[must_use]
    pub const fn timestamp(&self) -> f64 {
        self.envelope.timestamp
    }

    /// The rank, if the batch names one. A negative one counts as none.
    #[must_use]
    pub const fn dp_rank(&self) -> Option<u32> {
        self.envelope.dp_rank
    }

    /// Whether the producer sent a negative rank.
    #[must_use]
    pub const fn has_negative_rank(&self) -> bool {
        self.envelope.negative_rank
    }

    /// Elements of an array envelope; `None` for a map envelope.
    #[must_use]
    pub const fn envelope_elements(&self) -> Option<usize> {
        match self.envelope.elements {
            0 => None,
            elements => Some(elements),
        }
    }

    /// Envelope keys or slots no known version sends.
    #[must_use]
    pub const fn unknown_envelope_fields(&self) -> u32 {
        self.envelope.unknown
    }

    /// Keys and slots no known version sends that were not shown with their events, because there were too many.
    #[must_use]
    pub const fn unlisted_drift(&self) -> u64 {
        self.decoder.context.lists.drift_more
    }

    /// The next event, in wire order.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        if self.next >= self.decoder.events.len() {
            self.refill()?;
        }
        let Decoder { events, context, .. } = &mut *self.decoder;
        let raw = events.get(self.next)?;
        self.next = self.next.saturating_add(1);
        let drift_start = std::mem::replace(&mut self.drift_start, raw.drift_end);
        Some(Event::new(View { payload: self.payload, raw, context, drift_start }))
    }

    /// Calls `each` with every event left, in wire order. Twice as fast as `next_event`: a view is made where it is
    /// used, and moving one costs more than all else about it.
    #[inline(always)]
    pub fn for_each(&mut self, mut each: impl FnMut(&mut Event<'_>)) {
        loop {
            let Decoder { events, context, .. } = &mut *self.decoder;
            let mut drift_start = self.drift_start;
            for raw in events.get(self.next..).unwrap_or_default() {
                let payload = self.payload;
                each(&mut Event::new(View { payload, raw, context, drift_start }));
                drift_start = raw.drift_end;
            }
            self.next = events.len();
            if self.refill().is_none() {
                return;
            }
        }
    }

    /// Walks on where the full table ended.
    #[cold]
    fn refill(&mut self) -> Option<()> {
        if self.envelope.left == 0 {
            return None;
        }
        self.next = 0;
        self.drift_start = 0;
        let Decoder { events: table, context, tails, .. } = &mut *self.decoder;
        let Context { lists, demand, kernels, .. } = context;
        table.clear();
        lists.clear();
        let scan = Scan { payload: self.payload, kernels: *kernels, demand: demand.tokens() };
        let from = self.envelope.left_at as usize;
        let walked = events(scan, (table, lists, tails), from, self.envelope.left);
        debug_assert!(walked.is_ok(), "structure was checked");
        let (at, left) = walked.unwrap_or_default();
        self.envelope.left = left;
        self.envelope.left_at = mark(at);
        Some(())
    }
}
