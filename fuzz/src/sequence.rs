//! The state machine of a live source against a list of what became of every number (`tests/support/numbers.rs`): decisions,
//! counts, cursor and watermark.
//!
//! Input: a byte, then steps of four bytes. Even, and the steps are whatever a driver may be told, in any order. Odd, and a
//! publisher sends, burns numbers, restarts and answers replays, faults included; then what the machine takes for never sent
//! was never sent, as long as replays come in order.

use kvtap::{Live, Replayed};

use crate::support::numbers::Followed;

const STEPS_MAX: usize = 400;
/// Replies in one run, so that it ends soon.
const REPLIES_MAX: usize = 4000;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((&world, steps)) = data.split_first() else { return };
    let steps = steps.chunks_exact(4).map(|step| [step[0], step[1], step[2], step[3]]).take(STEPS_MAX);
    if world.is_multiple_of(2) { any_driver(steps) } else { a_publisher(steps) }
}

fn any_driver(steps: impl Iterator<Item = [u8; 4]>) {
    let (mut both, mut left, mut last) = (Followed::default(), REPLIES_MAX, 0);
    for [kind, how, number, stamp] in steps {
        let chosen = choose_number(&both, last, how, number);
        match kind % 16 {
            0..=5 => {
                both.live(chosen, choose_timestamp(chosen, stamp));
                last = chosen;
            }
            6..=9 => {
                both.replayed(chosen, choose_timestamp(chosen, stamp));
                last = chosen;
            }
            10 | 11 => {
                // Many, some numbers left out.
                let stride = u64::from(stamp % 4 == 0) + 1;
                for at in 0..u64::from(number) * 4 {
                    let Some(number) =
                        both.next().saturating_sub(u64::from(how % 4 == 0)).checked_add(at % stride)
                    else {
                        break;
                    };
                    let said = both.replayed(number, choose_timestamp(number, stamp >> 2));
                    left = left.saturating_sub(1);
                    if said == Replayed::Done || left == 0 {
                        break;
                    }
                }
            }
            12 => drop(both.request()),
            13 => drop(both.end_replay()),
            14 => both.accept_loss(),
            // Offered again, as after a gap.
            _ => drop(both.live(last, choose_timestamp(last, stamp))),
        }
        both.check();
    }
}

/// Mostly near what is expected or was said last.
fn choose_number(both: &Followed, last: u64, how: u8, number: u8) -> u64 {
    let (next, small) = (both.next(), u64::from(number));
    match how >> 4 {
        0..=3 => next.saturating_add(small % 8),
        4..=6 => next.saturating_sub(small % 8),
        7 | 8 => last.saturating_add(1),
        9 => next.saturating_add(small << 3),
        10 | 11 => small % 12,
        12 => u64::MAX - small % 4,
        13 => next,
        14 => next.saturating_add(1 << (small % 64)),
        _ => last.saturating_sub(small % 4),
    }
}

/// Mostly one that goes with the number, in one of two lives.
fn choose_timestamp(number: u64, stamp: u8) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "one per number as far as it matters")]
    let own = number as f64;
    match stamp % 16 {
        0..=6 => Some(own),
        7 | 8 => Some(own + 0.5),
        9 => Some(own + 1e6),
        10 => Some(f64::from(stamp >> 4)),
        11 => None,
        12 => Some(f64::NAN),
        13 => Some(f64::INFINITY),
        14 => Some(f64::NEG_INFINITY),
        _ => Some(-0.0),
    }
}

/// An engine, in its present life.
#[derive(Default)]
struct Publisher {
    /// What it has sent: numbers and timestamps.
    sent: Vec<(u64, f64)>,
    next: u64,
    clock: f64,
    /// Whether it has started over.
    is_another: bool,
}

fn a_publisher(steps: impl Iterator<Item = [u8; 4]>) {
    let (mut both, mut engine, mut left) = (Followed::default(), Publisher::default(), REPLIES_MAX);
    // No replay came out of order.
    let mut is_orderly = true;
    for [kind, count, faults, kept] in steps {
        match kind % 16 {
            0..=9 => {
                let Some(message) = engine.send() else { continue };
                // Some are dropped on their way.
                if kind % 16 < 6 {
                    hear(&mut both, message, &engine.answer(faults, kept), &mut left);
                    is_orderly &= faults & 3 != 3;
                }
            }
            10 => (0..=count % 64).for_each(|_| _ = engine.send()),
            // Numbers drawn for batches that could not be encoded.
            11 | 12 => engine.next += u64::from(count % 3) + 1,
            13 => {
                let Some(&late) = engine.sent.get(usize::from(count)) else { continue };
                hear(&mut both, late, &[], &mut left);
            }
            14 => engine = Publisher { clock: engine.clock + 1.0, is_another: true, ..Publisher::default() },
            _ => (0..=u16::from(count) * 4).for_each(|_| _ = engine.send()),
        }
        both.check();
        if is_orderly && both.counts().restarts == 0 && !engine.is_another {
            // Whatever it took for never sent was not.
            let applied = both.applied_numbers().count() as u64;
            let sent = engine.sent.iter().filter(|(number, _)| *number < both.next()).count() as u64;
            assert!(both.counts().skipped_sequences + sent <= both.next(), "more never sent than there were");
            assert!(applied <= sent);
        }
    }
}

impl Publisher {
    fn send(&mut self) -> Option<(u64, f64)> {
        // Enough for every bound of the machine.
        if self.sent.len() > REPLIES_MAX {
            return None;
        }
        let message = (self.next, self.clock);
        self.sent.push(message);
        self.next += 1;
        self.clock += 1.0;
        Some(message)
    }

    /// All that is kept, with or without faults on the way.
    fn answer(&self, faults: u8, kept: u8) -> Vec<(u64, f64)> {
        let kept = if kept < 64 { self.sent.len() } else { usize::from(kept) };
        let mut answer = self.sent[self.sent.len().saturating_sub(kept)..].to_vec();
        match faults & 7 {
            1 => answer.truncate(answer.len() * usize::from(faults >> 3) / 32),
            2 => answer = answer.iter().flat_map(|&message| [message; 2]).collect(),
            3 => {
                let half = answer.len() / 2;
                answer.rotate_left(half);
            }
            7 => answer.reverse(),
            _ => {}
        }
        answer
    }
}

/// What a driver does with a message, its gap and its restart included.
fn hear(both: &mut Followed, (number, stamp): (u64, f64), answer: &[(u64, f64)], left: &mut usize) {
    loop {
        match both.live(number, Some(stamp)) {
            Live::Apply | Live::Skip => return,
            Live::Restart => {}
            Live::Gap(_) => replay(both, answer, left),
        }
    }
}

fn replay(both: &mut Followed, answer: &[(u64, f64)], left: &mut usize) {
    loop {
        let from = both.request();
        let from = answer.iter().filter(|(number, _)| *number >= from);
        for &(number, stamp) in from.take(*left) {
            *left -= 1;
            match both.replayed(number, Some(stamp)) {
                Replayed::Done | Replayed::Restart => return,
                Replayed::AskAgain => break,
                Replayed::Apply | Replayed::Skip => {}
            }
            if !both.has_gap() {
                return;
            }
        }
        if !both.has_gap() || !both.end_replay() {
            return;
        }
    }
}
