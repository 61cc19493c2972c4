//! One source's stream without its sockets: checked messages → sequence → [`Ingest`]. Data plane, but for what goes wrong.

use std::ops::Range;

use super::examples::{Examples, Watch};
use super::journal::Journal;
use super::options::SourceOptions;
use super::status::{Glance, Report, Status};
use super::takeover::SourceState;
use crate::wire::{Decoder, WireError};
use crate::{Copies, Ingest, Live, LoadError, Message, Placement, Reason, Replayed, Sequence, Worker};

/// What follows a source's messages, in order.
#[derive(Debug)]
pub(super) struct Stream {
    sequence: Sequence,
    ingest: Ingest,
    /// For timestamps of batches that may not be applied.
    peek: Decoder,
    losses: Losses,
    examples: Examples,
    journal: Journal,
    last_error: Option<String>,
    /// Times events of another block size were told.
    mismatches_told: u64,
    /// Blocks taken over from another listener.
    taken_blocks: u64,
    /// How stores are to count, while taken blocks of unknown age keep copies from being counted.
    undated: Option<Copies>,
    /// Blocks that were too many when that was told.
    refusals_told: u64,
}

/// Whether the index may differ from what the workers hold.
#[derive(Debug, Default)]
pub(super) struct Losses {
    degraded: bool,
    /// Cleared since; when these are all ranks, nothing is left that could be wrong.
    cleared: Vec<Worker>,
}

/// What to do with the rest of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Read on.
    More,
    /// Nothing of it is needed any more.
    Done,
    /// Ask for it again.
    AskAgain,
}

impl Stream {
    pub(super) fn new(options: &SourceOptions, ingest: Ingest) -> Self {
        let mut peek = Decoder::new(options.ingest.digest);
        peek.set_payload_max(options.ingest.payload_max);
        let worker = Worker { worker_id: options.ingest.worker_id, dp_rank: options.ingest.dp_rank };
        Self {
            sequence: Sequence::new(),
            ingest,
            peek,
            losses: Losses::default(),
            examples: Examples::default(),
            journal: Journal::new(format!("worker {worker} at {}", options.endpoint.escape_debug())),
            last_error: None,
            mismatches_told: 0,
            taken_blocks: 0,
            undated: None,
            refusals_told: 0,
        }
    }

    /// Whether another listener may know more.
    pub(super) const fn wants_more(&self) -> bool {
        self.losses.degraded || self.sequence.cursor().is_none()
    }

    /// All that another listener needs to go on from here.
    pub(super) fn state(&self) -> SourceState {
        let position = Some(self.sequence.position()).filter(|position| position.next > 0);
        SourceState { ranks: self.ingest.held(), position, degraded: self.losses.degraded }
    }

    /// Goes on from where another listener stood, if that one knows more. Says whether it does.
    pub(super) fn take(&mut self, state: &SourceState) -> Result<bool, LoadError> {
        if !state.is_worth_taking(self.sequence.position().next, self.losses.degraded) {
            return Ok(false);
        }
        self.ingest.load(&state.ranks)?;
        self.taken_blocks = state.blocks() as u64;
        self.losses = Losses { degraded: state.degraded, cleared: Vec::new() };
        let blocks = self.taken_blocks;
        if let Some(position) = state.position {
            self.sequence.resume(position);
            let before = position.next;
            self.journal.info(format_args!("{blocks} blocks taken over, as of the batches before {before}"));
        } else {
            // A replay may tell of stores that are among these blocks: counted again, they would never be gone.
            self.undated = Some(self.ingest.copies());
            self.ingest.set_copies(Copies::Set);
            self.losses.degraded = true;
            self.journal
                .warn(format_args!("{blocks} blocks of unknown age taken over; degraded until cleared"));
        }
        Ok(true)
    }

    /// Blocks of unknown age are gone, or known not to be the engine's.
    fn count_copies_again(&mut self) {
        if let Some(copies) = self.undated.take() {
            self.ingest.set_copies(copies);
        }
    }

    pub(super) const fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Deals with a live message. Gives the numbers that are missing before it: then it must be offered again, once a
    /// replay has brought what it can or the loss is accepted.
    pub(super) fn live(&mut self, message: &Message<'_>) -> Option<Range<u64>> {
        loop {
            let payload = message.payload;
            let peek = &mut self.peek;
            match self.sequence.live(message.sequence, || timestamp(peek, payload)) {
                Live::Apply => {
                    self.apply(message);
                    return None;
                }
                Live::Skip => return None,
                Live::Gap(range) => {
                    self.journal.info(format_args!(
                        "batches {} to {} are missing",
                        range.start,
                        range.end - 1
                    ));
                    return Some(range);
                }
                // The same message, as the first of a new stream, is applied or shows a gap.
                Live::Restart => self.restart(message.sequence),
            }
        }
    }

    /// The number to ask a replay from.
    pub(super) const fn request(&mut self) -> u64 {
        self.sequence.request()
    }

    /// Deals with a replayed batch.
    pub(super) fn replayed(&mut self, message: &Message<'_>) -> Rest {
        let payload = message.payload;
        let peek = &mut self.peek;
        match self.sequence.replayed(message.sequence, || timestamp(peek, payload)) {
            Replayed::Apply => {
                self.apply(message);
                if self.sequence.has_gap() {
                    return Rest::More;
                }
                Rest::Done
            }
            Replayed::Skip => Rest::More,
            Replayed::Done => Rest::Done,
            Replayed::AskAgain => Rest::AskAgain,
            Replayed::Restart => {
                self.restart(message.sequence);
                Rest::Done
            }
        }
    }

    /// The replay has ended, or says nothing any more.
    pub(super) fn end_replay(&mut self) -> Rest {
        if self.sequence.end_replay() { Rest::AskAgain } else { Rest::Done }
    }

    /// Gives up what is missing. For that and for whatever a replay gave up: marks and tells what was lost.
    pub(super) fn settle(&mut self, lost_before: u64) {
        self.sequence.accept_loss();
        let lost = self.sequence.counts().lost_batches - lost_before;
        if lost > 0 {
            self.losses = Losses { degraded: true, cleared: Vec::new() };
            self.journal.warn(format_args!("{lost} batches are lost; degraded until its blocks are cleared"));
        }
    }

    /// Tells how a replay ended.
    pub(super) fn tell_replayed(&mut self) {
        let counts = self.sequence.counts();
        self.journal.info(format_args!(
            "replay done: {} batches replayed so far, {} numbers never sent",
            counts.replayed_batches, counts.skipped_sequences,
        ));
    }

    pub(super) fn may_be_cut(&self) -> bool {
        self.sequence.may_be_cut()
    }

    pub(super) const fn cursor(&self) -> Option<u64> {
        self.sequence.cursor()
    }

    pub(super) const fn lost_batches(&self) -> u64 {
        self.sequence.counts().lost_batches
    }

    fn apply(&mut self, message: &Message<'_>) {
        if message.sequence == 0 && self.undated.is_some() {
            // From here on everything is told.
            self.ingest.restart();
            self.losses = Losses::default();
            self.count_copies_again();
        }
        let was_degraded = self.losses.degraded;
        let losses = was_degraded.then_some(&mut self.losses);
        let mut watch = Watch::new(message.sequence, &mut self.examples, losses);
        let applied = self.ingest.apply_observed(message.payload, &mut watch);
        if was_degraded {
            self.losses.judge(self.ingest.workers());
            if !self.losses.degraded {
                self.count_copies_again();
                self.journal.info(format_args!("its blocks are cleared; no longer degraded"));
            }
        }
        self.sequence.applied(applied.as_ref().ok().map(|applied| applied.timestamp));
        if let Err(error) = applied {
            self.refused(message.sequence, error);
        }
        if self.ingest.counters().filtered(Reason::BlockSizeMismatch) > self.mismatches_told {
            self.tell_block_sizes();
        }
        if self.ingest.counters().filtered(Reason::TooManyBlocks) > self.refusals_told {
            self.tell_refusals();
        }
    }

    #[cold]
    fn refused(&mut self, sequence: u64, error: WireError) {
        let sentence = format!("batch {sequence} refused: {error}");
        self.journal.warn(format_args!("{sentence}"));
        self.last_error = Some(sentence);
    }

    /// Told when it begins and whenever it has doubled: nothing of these events is placed.
    #[cold]
    fn tell_block_sizes(&mut self) {
        self.mismatches_told = self.ingest.counters().filtered(Reason::BlockSizeMismatch) * 2;
        for (worker, block_size, events) in self.ingest.mismatched_block_sizes() {
            self.journal.warn(format_args!(
                "rank {} publishes blocks of {block_size} tokens, another size is configured: {events} events not placed",
                worker.dp_rank,
            ));
        }
    }

    /// As often.
    #[cold]
    fn tell_refusals(&mut self) {
        let blocks = self.ingest.counters().filtered(Reason::TooManyBlocks);
        self.refusals_told = blocks * 2;
        self.journal.warn(format_args!(
            "it holds as many blocks as it may: {blocks} new ones not placed, and answers may name less than it has"
        ));
    }

    fn restart(&mut self, sequence: u64) {
        self.ingest.restart();
        self.losses = Losses::default();
        self.count_copies_again();
        self.journal.warn(format_args!(
            "the engine has restarted (seen at batch {sequence}); its blocks are dropped"
        ));
    }

    /// Notes what went wrong with its sockets.
    pub(super) fn fail(&mut self, sentence: String) {
        self.journal.warn(format_args!("{sentence}"));
        self.last_error = Some(sentence);
    }

    pub(super) fn post(&self, status: &mut Status) {
        status.cursor = self.sequence.cursor();
        status.watermark = self.sequence.watermark();
        status.sequence = self.sequence.counts();
        status.degraded = self.losses.degraded;
        status.taken_blocks = self.taken_blocks;
        status.counters.clone_from(self.ingest.counters());
        if self.last_error != status.last_error {
            status.last_error.clone_from(&self.last_error);
        }
        status.mismatched_block_sizes.clear();
        status.mismatched_block_sizes.extend(self.ingest.mismatched_block_sizes());
    }

    /// What can be said at once.
    pub(super) fn glance(&self) -> Glance {
        Glance {
            workers: self.ingest.workers().collect(),
            entries: self.ingest.entries(),
            bytes: self.ingest.bytes(),
            shapes: self.ingest.shapes().collect(),
            drift: self.drift(),
            examples: self.examples.all(),
        }
    }

    fn drift(&self) -> Vec<(String, u64)> {
        self.ingest.drift().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    /// Waits until all is visible, then sums up.
    pub(super) fn report(&mut self, status: Status) -> Report {
        self.ingest.flush();
        Report {
            status,
            workers: self.ingest.workers().collect(),
            entries: self.ingest.entries(),
            digest: self.ingest.digest(),
            bytes: self.ingest.bytes(),
            shapes: self.ingest.shapes().collect(),
            drift: self.drift(),
        }
    }
}

fn timestamp(peek: &mut Decoder, payload: &[u8]) -> Option<f64> {
    peek.read(payload).ok().map(|batch| batch.timestamp())
}

impl Losses {
    pub(super) fn placement(&mut self, worker: Worker, placement: Placement) {
        if placement == Placement::Clear && !self.cleared.contains(&worker) {
            self.cleared.push(worker);
        }
    }

    fn judge(&mut self, mut ranks: impl Iterator<Item = Worker>) {
        if !self.cleared.is_empty() && ranks.all(|rank| self.cleared.contains(&rank)) {
            *self = Self::default();
        }
    }
}
