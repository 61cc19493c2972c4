//! One source's numbers followed the obvious way: a list of what became of each, from which everything else is read off.
//! And the machine beside it, asked the same; whatever they say must be equal.

use std::ops::Range;

use kvtap::{Live, Replayed, Sequence, SequenceCounts};

/// A replay longer than this may have been cut on its way: what a ROUTER's queue holds, halved.
const TRUSTED_REPLIES: usize = 500;

/// What became of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Its batch was applied, and had this timestamp.
    Applied(Option<f64>),
    /// Likewise, out of a replay.
    Replayed(Option<f64>),
    Lost,
    NeverSent,
}

impl Fate {
    fn timestamp(self) -> Option<f64> {
        match self {
            Self::Applied(timestamp) | Self::Replayed(timestamp) => timestamp.filter(|it| !it.is_nan()),
            Self::Lost | Self::NeverSent => None,
        }
    }
}

/// What is known of a source.
#[derive(Debug, Default)]
struct Twin {
    /// This life's numbers from 0 on, in order, none left out.
    fates: Vec<(Range<u64>, Fate)>,
    /// Those of earlier lives.
    past: Vec<(Range<u64>, Fate)>,
    /// This life's live messages, and whether each went backward.
    heard: Vec<(u64, bool)>,
    /// Where the open gap ends.
    gap: Option<u64>,
    /// What the replay has said since it was asked last, and how long `fates` was then.
    answer: Vec<u64>,
    asked_at: usize,
    gaps: u64,
    restarts: u64,
    duplicates: u64,
}

impl Twin {
    fn next(&self) -> u64 {
        self.fates.last().map_or(0, |(numbers, _)| numbers.end)
    }

    fn watermark(&self) -> Option<f64> {
        self.fates.iter().rev().find_map(|(_, fate)| fate.timestamp())
    }

    fn settle(&mut self, end: u64, fate: Fate) {
        if self.next() < end {
            self.fates.push((self.next()..end, fate));
        }
    }

    fn give_up(&mut self) {
        if let Some(end) = self.gap.take() {
            self.settle(end, Fate::Lost);
        }
    }

    fn restart(&mut self) {
        self.past.append(&mut self.fates);
        let past = std::mem::take(&mut self.past);
        let Self { gaps, restarts, duplicates, .. } = *self;
        *self = Self { past, gaps, restarts: restarts + 1, duplicates, ..Self::default() };
    }

    fn live(&mut self, number: u64, timestamp: Option<f64>) -> Live {
        self.give_up();
        let next = self.next();
        let is_backward = number < next || number == u64::MAX;
        self.heard.push((number, is_backward));
        if is_backward {
            let newer = matches!((timestamp, self.watermark()), (Some(new), Some(last)) if new > last);
            let counts_up = match *self.heard {
                [.., (first, true), (second, true), (third, true)] => first < second && second < third,
                _ => false,
            };
            if number != u64::MAX && (newer || counts_up) {
                self.restart();
                return Live::Restart;
            }
            self.duplicates += 1;
            return Live::Skip;
        }
        if number > next {
            self.gaps += 1;
            self.gap = Some(number);
            self.request();
            return Live::Gap(next..number);
        }
        self.fates.push((number..number + 1, Fate::Applied(None)));
        Live::Apply
    }

    fn applied(&mut self, timestamp: Option<f64>) {
        if let Some((_, Fate::Applied(known) | Fate::Replayed(known))) = self.fates.last_mut() {
            *known = timestamp;
        }
    }

    fn request(&mut self) -> u64 {
        self.answer.clear();
        self.asked_at = self.fates.len();
        self.next().saturating_sub(1)
    }

    fn may_be_cut(&self) -> bool {
        let brought = |(_, fate): &(_, Fate)| matches!(fate, Fate::Replayed(_));
        self.gap.is_some()
            && self.answer.len() > TRUSTED_REPLIES
            && self.fates[self.asked_at..].iter().any(brought)
    }

    fn replayed(&mut self, number: u64, timestamp: Option<f64>) -> Replayed {
        let Some(end) = self.gap else { return Replayed::Skip };
        let next = self.next();
        // The batch before what is missing: told by this answer, or brought by it.
        let is_bracketed = next > 0 && self.answer.contains(&(next - 1));
        self.answer.push(number);
        let in_order = self.answer.is_sorted();
        if !in_order {
            for (_, fate) in &mut self.fates[self.asked_at..] {
                if *fate == Fate::NeverSent {
                    *fate = Fate::Lost;
                }
            }
        }
        if number < next {
            let known = self.fates.last().and_then(|(_, fate)| fate.timestamp());
            let differs =
                timestamp.filter(|it| !it.is_nan()).zip(known).is_some_and(|(one, other)| one != other);
            if number == next - 1 && !is_bracketed && differs {
                self.restart();
                return Replayed::Restart;
            }
            return Replayed::Skip;
        }
        let reached = number.min(end);
        if reached > next && self.may_be_cut() {
            return Replayed::AskAgain;
        }
        self.settle(reached, if is_bracketed && in_order { Fate::NeverSent } else { Fate::Lost });
        if number >= end {
            self.gap = None;
            return Replayed::Done;
        }
        self.fates.push((number..number + 1, Fate::Replayed(None)));
        if number + 1 == end {
            self.gap = None;
        }
        Replayed::Apply
    }

    fn end_replay(&mut self) -> bool {
        let again = self.may_be_cut();
        if !again {
            self.give_up();
        }
        again
    }

    /// How many numbers, of all lives, had a fate; at most what 64 bits hold.
    fn count(&self, of: impl Fn(Fate) -> bool) -> u64 {
        let fates = self.past.iter().chain(&self.fates).filter(|(_, fate)| of(*fate));
        fates.fold(0, |sum, (numbers, _)| sum.saturating_add(numbers.end - numbers.start))
    }
}

/// The machine and the list, asked the same.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    machine: Sequence,
    twin: Twin,
    /// A count may have passed 64 bits: where it stands from then on depends on the order.
    is_past_counting: bool,
}

impl Followed {
    /// Offers a live message; applies it if it is to be.
    pub(crate) fn live(&mut self, number: u64, timestamp: Option<f64>) -> Live {
        let is_backward = number < self.next() || number == u64::MAX;
        let given_up = self.machine.has_gap();
        let said = self.machine.live(number, || {
            assert!(is_backward || given_up, "only backward messages need a timestamp");
            timestamp
        });
        assert_eq!(said, self.twin.live(number, timestamp), "live {number} of {timestamp:?}");
        if said == Live::Apply {
            self.applied(timestamp);
        }
        said
    }

    /// Offers a reply; applies it if it is to be.
    pub(crate) fn replayed(&mut self, number: u64, timestamp: Option<f64>) -> Replayed {
        let said = self.machine.replayed(number, || timestamp);
        assert_eq!(said, self.twin.replayed(number, timestamp), "reply {number} of {timestamp:?}");
        if said == Replayed::Apply {
            self.applied(timestamp);
        }
        said
    }

    fn applied(&mut self, timestamp: Option<f64>) {
        self.machine.applied(timestamp);
        self.twin.applied(timestamp);
    }

    pub(crate) fn request(&mut self) -> u64 {
        let from = self.machine.request();
        assert_eq!(from, self.twin.request());
        from
    }

    pub(crate) fn end_replay(&mut self) -> bool {
        assert_eq!(self.machine.may_be_cut(), self.twin.may_be_cut());
        let again = self.machine.end_replay();
        assert_eq!(again, self.twin.end_replay());
        again
    }

    pub(crate) fn accept_loss(&mut self) {
        self.machine.accept_loss();
        self.twin.give_up();
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.machine.has_gap()
    }

    /// The number that is expected.
    pub(crate) fn next(&self) -> u64 {
        self.twin.next()
    }

    pub(crate) fn counts(&self) -> SequenceCounts {
        self.machine.counts()
    }

    /// Numbers of this life that were applied, in the order in which they were.
    pub(crate) fn applied_numbers(&self) -> impl Iterator<Item = u64> {
        let is_applied = |fate: &Fate| matches!(fate, Fate::Applied(_) | Fate::Replayed(_));
        self.twin.fates.iter().filter(move |(_, fate)| is_applied(fate)).map(|(numbers, _)| numbers.start)
    }

    /// Compares all that can be asked. Costs the length of the list.
    pub(crate) fn check(&mut self) {
        let Self { machine, twin, is_past_counting } = self;
        assert_eq!(machine.cursor(), twin.next().checked_sub(1));
        assert_eq!(machine.watermark(), twin.watermark());
        assert_eq!(machine.has_gap(), twin.gap.is_some());
        assert_eq!(machine.may_be_cut(), twin.may_be_cut());
        let counts = machine.counts();
        assert_eq!(
            (counts.gaps, counts.restarts, counts.duplicates),
            (twin.gaps, twin.restarts, twin.duplicates)
        );
        assert_eq!(counts.replayed_batches, twin.count(|fate| matches!(fate, Fate::Replayed(_))));
        // None is applied twice, none out of order, and each is accounted for.
        let mut end = 0;
        for (numbers, _) in &twin.fates {
            assert!(numbers.start == end && numbers.end > end, "{numbers:?} after {end}");
            end = numbers.end;
        }
        let (lost, never_sent) = (twin.count(|it| it == Fate::Lost), twin.count(|it| it == Fate::NeverSent));
        *is_past_counting |= lost.saturating_add(never_sent) == u64::MAX;
        if !*is_past_counting {
            assert_eq!((counts.lost_batches, counts.skipped_sequences), (lost, never_sent));
        }
    }
}

// It owns no memory, so that nothing a publisher sends can make it grow.
const _: () = assert!(!std::mem::needs_drop::<Sequence>() && size_of::<Sequence>() <= 256);
