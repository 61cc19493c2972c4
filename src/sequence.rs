//! One source's sequence numbers → apply, skip, gap, restart; and what a replay brings of a gap. Knows no socket, no
//! clock and no payload, so that every order of things can be tried.
//!
//! A publisher numbers its batches from 0, draws a number before it encodes, and starts over without a marker when its
//! engine restarts. What can be told from the numbers alone:
//!
//! * forward: the numbers in between are missing. They are asked for from the batch *before* them on: if the replay
//!   still has that one, a number absent after it was never sent (encoding failed); if the replay has it with another
//!   timestamp, the engine has restarted unnoticed.
//! * backward: a duplicate or late message, unless its batch is newer than the last applied one, or it is the third
//!   in a row that counts up: then the engine restarted.

use std::ops::Range;

/// Replies that surely fit a publisher's queue. ROUTER sockets drop silently beyond 1,000 by default, and engines send
/// all they have at once: of 10,000 replies of 10 kB some 2,000 arrived, without the end (`perf/README.md`). What such a
/// replay lacks may have been sent after all.
const TRUSTED_REPLIES: u64 = 500;
/// Messages that may wait in sockets while a position is taken over: they go backward, and count up.
const BACKLOG: u32 = 10_000;
/// Backward messages in a row, counting up, that make a restart whatever their timestamps say.
const RESTART_RUN: u32 = 3;

/// Follows one source.
///
/// ```
/// use kvtap::{Live, Sequence};
///
/// let mut sequence = Sequence::new();
/// assert_eq!(sequence.live(0, || Some(1.0)), Live::Apply);
/// sequence.applied(Some(1.0));
/// assert_eq!(sequence.live(3, || Some(4.0)), Live::Gap(1..3));
/// sequence.accept_loss(); // or ask a replay, from `request` on
/// assert_eq!(sequence.live(3, || Some(4.0)), Live::Apply);
/// assert_eq!(sequence.counts().lost_batches, 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// The number that comes after all that was applied, lost or skipped.
    next: u64,
    /// Timestamp of the last batch applied that had one. Never NaN.
    last_timestamp: Option<f64>,
    /// Timestamp of batch `next - 1`, if it is known. Never NaN.
    cursor_timestamp: Option<f64>,
    /// The last backward number, and how long a run that counts up it ends.
    backward: Option<(u64, u32)>,
    /// Messages that may still come from before the position taken over.
    backlog: u32,
    gap: Option<Gap>,
    counts: SequenceCounts,
}

/// What has happened to a source's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SequenceCounts {
    /// Times numbers were missing.
    pub gaps: u64,
    /// Batches that a replay brought.
    pub replayed_batches: u64,
    /// Batches that nothing brought.
    pub lost_batches: u64,
    /// Numbers that were never sent: absent from a replay that is complete around them.
    pub skipped_sequences: u64,
    /// Times the engine started over.
    pub restarts: u64,
    /// Messages passed over because they came twice or late.
    pub duplicates: u64,
}

/// Where a stream stands: enough for another to go on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "made by those who read it from elsewhere")]
pub struct Position {
    /// The number that comes after all that was dealt with.
    pub next: u64,
    /// Timestamp of the batch before that, if it is known.
    pub timestamp: Option<f64>,
    /// Timestamp of the last batch applied that had one.
    pub watermark: Option<f64>,
}

/// What to do with a message of the live stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each needs an action of its own")]
pub enum Live {
    /// Apply it, then say so with [`Sequence::applied`].
    Apply,
    /// It came twice or late.
    Skip,
    /// These numbers are missing before it. Ask a replay ([`Sequence::request`]) or accept the loss, then offer it again.
    Gap(Range<u64>),
    /// The engine started over: drop the source's blocks, then offer it again.
    Restart,
}

/// What to do with a batch of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each needs an action of its own")]
pub enum Replayed {
    /// Apply it, then say so with [`Sequence::applied`]. The gap may be closed now.
    Apply,
    /// It is known already.
    Skip,
    /// It lies behind the gap, which is closed: offer the live message again.
    Done,
    /// Batches between may have been dropped on their way: make another [`Sequence::request`].
    AskAgain,
    /// The publisher is not the one that was followed: drop the source's blocks, then offer the live message again.
    Restart,
}

/// Missing numbers: from `Sequence::next` up to `to`.
#[derive(Clone, Copy, Debug)]
struct Gap {
    to: u64,
    /// `next` when the replay was asked last.
    asked_next: u64,
    /// Since then.
    replies: u64,
    last_reply: Option<u64>,
    /// Whether the replay showed a batch right before `next`, so that it cannot have begun too late.
    bracketed: bool,
    in_order: bool,
    /// Counted as skipped by this answer.
    skipped: u64,
}

impl Sequence {
    /// A source that has sent nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of the last batch that was dealt with.
    #[must_use]
    pub const fn cursor(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Timestamp of the last batch applied that had one.
    #[must_use]
    pub const fn watermark(&self) -> Option<f64> {
        self.last_timestamp
    }

    /// Where the stream stands.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position { next: self.next, timestamp: self.cursor_timestamp, watermark: self.last_timestamp }
    }

    /// Goes on from where another has followed the stream to. What was counted stays; a gap that is open is forgotten.
    pub fn resume(&mut self, position: Position) {
        let Position { next, timestamp, watermark } = position;
        let known = |timestamp: Option<f64>| timestamp.filter(|timestamp| !timestamp.is_nan());
        let (cursor_timestamp, last_timestamp) = (known(timestamp), known(watermark));
        let (counts, backlog) = (self.counts, BACKLOG);
        *self = Self { next, last_timestamp, cursor_timestamp, backlog, counts, ..Self::default() };
    }

    /// Whether numbers are missing that a replay may still bring.
    #[must_use]
    pub const fn has_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counts(&self) -> SequenceCounts {
        self.counts
    }

    /// Judges a message of the live stream. Its timestamp is asked for only if it goes backward; `None` if its payload has
    /// none. A gap that is still open is given up.
    pub fn live(&mut self, number: u64, timestamp: impl FnOnce() -> Option<f64>) -> Live {
        self.accept_loss();
        // The number that marks the end of a replay is no batch's.
        if number < self.next || number == u64::MAX {
            return self.backward(number, timestamp());
        }
        (self.backward, self.backlog) = (None, 0);
        if number > self.next {
            self.counts.gaps += 1;
            self.gap = Some(Gap::new(self.next, number));
            return Live::Gap(self.next..number);
        }
        self.advance(number);
        Live::Apply
    }

    fn backward(&mut self, number: u64, timestamp: Option<f64>) -> Live {
        let is_newer = self.is_newer(timestamp);
        let is_another = self.backlog > 0 && self.is_another(number, timestamp);
        if self.backlog > 0 && !is_newer && !is_another {
            self.backlog -= 1;
            self.counts.duplicates += 1;
            return Live::Skip;
        }
        let run = match self.backward {
            Some((last, run)) if number > last => run + 1,
            _ => 1,
        };
        self.backward = Some((number, run));
        let is_restart = is_newer || is_another || run >= RESTART_RUN;
        if number != u64::MAX && is_restart {
            self.restart();
            return Live::Restart;
        }
        self.counts.duplicates += 1;
        Live::Skip
    }

    fn is_newer(&self, timestamp: Option<f64>) -> bool {
        timestamp.zip(self.last_timestamp).is_some_and(|(new, last)| new > last)
    }

    /// Whether it bears the number of the batch at the cursor, but is none that was followed.
    #[expect(clippy::float_cmp, reason = "the same bytes give the same number")]
    fn is_another(&self, number: u64, timestamp: Option<f64>) -> bool {
        let stated = timestamp.filter(|timestamp| !timestamp.is_nan());
        number.checked_add(1) == Some(self.next)
            && stated.zip(self.cursor_timestamp).is_some_and(|(one, other)| one != other)
    }

    /// Tells that the batch last admitted was applied, with its timestamp if its payload was sound.
    pub fn applied(&mut self, timestamp: Option<f64>) {
        self.cursor_timestamp = timestamp.filter(|timestamp| !timestamp.is_nan());
        self.last_timestamp = self.cursor_timestamp.or(self.last_timestamp);
    }

    /// Starts asking for a gap: the number to ask a replay from. It is the last one known, if any, to see whether the
    /// replay reaches back far enough.
    pub const fn request(&mut self) -> u64 {
        if let Some(gap) = &mut self.gap {
            *gap = Gap::new(self.next, gap.to);
        }
        self.next.saturating_sub(1)
    }

    /// Judges a batch that came as the answer to a request. Its timestamp is asked for only if it is the one before the gap.
    pub fn replayed(&mut self, number: u64, timestamp: impl FnOnce() -> Option<f64>) -> Replayed {
        let Some(mut gap) = self.gap else { return Replayed::Skip };
        gap.replies += 1;
        if gap.last_reply.is_some_and(|last| number < last) {
            // Out of order, it proves nothing by what it lacks.
            self.counts.skipped_sequences -= gap.skipped;
            self.lose(gap.skipped);
            gap.skipped = 0;
            gap.in_order = false;
        }
        gap.last_reply = Some(number);
        self.gap = Some(gap);
        if number < self.next {
            return self.known(number, gap, timestamp);
        }
        let reached = number.min(gap.to);
        let missing = reached - self.next;
        if missing > 0 && self.may_lack(gap) {
            return Replayed::AskAgain;
        }
        if gap.bracketed && gap.in_order {
            self.counts.skipped_sequences = self.counts.skipped_sequences.saturating_add(missing);
            gap.skipped = gap.skipped.saturating_add(missing);
        } else {
            self.lose(missing);
        }
        if number >= gap.to {
            self.next = gap.to;
            self.cursor_timestamp = None;
            self.gap = None;
            return Replayed::Done;
        }
        gap.bracketed = true;
        self.counts.replayed_batches += 1;
        self.advance(number);
        self.gap = Some(gap).filter(|gap| self.next < gap.to);
        Replayed::Apply
    }

    /// A reply below the gap: the batch before it, which shows whose replay this is, or one that came twice.
    fn known(&mut self, number: u64, gap: Gap, timestamp: impl FnOnce() -> Option<f64>) -> Replayed {
        // What this answer has brought needs no proof.
        if number + 1 == self.next && !gap.bracketed {
            if self.is_another(number, timestamp()) {
                self.restart();
                return Replayed::Restart;
            }
            self.gap = Some(Gap { bracketed: true, ..gap });
        }
        Replayed::Skip
    }

    /// Whether the replay so far was so long that its rest, and its end, may have been dropped on the way.
    #[must_use]
    pub fn may_be_cut(&self) -> bool {
        self.gap.is_some_and(|gap| self.may_lack(gap))
    }

    /// Ends a replay: its end was told, or it fell silent. Says whether another [`Sequence::request`] may bring more; if
    /// not, what is still missing is lost.
    #[must_use]
    pub fn end_replay(&mut self) -> bool {
        let again = self.may_be_cut();
        if !again {
            self.accept_loss();
        }
        again
    }

    /// Gives up what is missing.
    pub fn accept_loss(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.lose(gap.to - self.next);
            self.next = gap.to;
            self.cursor_timestamp = None;
        }
    }

    /// Whether a long replay may have lost batches on its way; it must have brought some, so that asking again ends.
    const fn may_lack(&self, gap: Gap) -> bool {
        gap.replies > TRUSTED_REPLIES && self.next > gap.asked_next
    }

    const fn lose(&mut self, batches: u64) {
        self.counts.lost_batches = self.counts.lost_batches.saturating_add(batches);
    }

    const fn advance(&mut self, number: u64) {
        self.next = number.saturating_add(1);
        self.cursor_timestamp = None;
    }

    /// Starts over; what was counted stays.
    fn restart(&mut self) {
        let counts = SequenceCounts { restarts: self.counts.restarts + 1, ..self.counts };
        *self = Self { counts, ..Self::default() };
    }
}

impl Gap {
    const fn new(next: u64, to: u64) -> Self {
        Self {
            to,
            asked_next: next,
            replies: 0,
            last_reply: None,
            bracketed: false,
            in_order: true,
            skipped: 0,
        }
    }
}
