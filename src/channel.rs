//! Bounded both ways: full record batches out, empty ones back. A full channel holds its source up; nothing is dropped.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};

use crate::placement::{Placed, Record, Slot};

/// Records of one shard, in order. Its buffer goes back to the sources once applied.
pub(crate) type RecordBatch = Vec<Record>;

/// Records a batch holds before it is sent.
pub(crate) const BATCH_RECORDS: usize = 256;
/// Batches on their way to one shard.
const CHANNEL_BATCHES: usize = 64;

/// How long a shard that has caught up lets batches gather.
const NAP: Duration = Duration::from_micros(50);

/// What a shard receives.
pub(crate) enum Message {
    Records(RecordBatch),
    /// Answered when everything before it has been applied.
    Flush(Sender<()>),
    /// Asks for all blocks of a slot.
    Blocks(Slot, Sender<Vec<Placed>>),
}

/// The sources' end of one shard's channel.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    full: Sender<Message>,
    empty: Receiver<RecordBatch>,
}

/// A shard that receives nothing any more.
#[derive(Debug)]
pub(crate) struct Dead;

/// The shard's end.
#[derive(Debug)]
pub(crate) struct Inlet {
    full: Receiver<Message>,
    empty: Sender<RecordBatch>,
}

/// A channel to one shard.
pub(crate) fn channel() -> (Outlet, Inlet) {
    let (full_in, full_out) = bounded(CHANNEL_BATCHES);
    let (empty_in, empty_out) = bounded(CHANNEL_BATCHES);
    (Outlet { full: full_in, empty: empty_out }, Inlet { full: full_out, empty: empty_in })
}

impl Outlet {
    /// An empty batch: a recycled one if there is any.
    pub(crate) fn empty_batch(&self) -> RecordBatch {
        self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_RECORDS))
    }

    /// Sends a batch; says whether it had to wait for room. An error if the shard's thread has died, which it does only by a
    /// defect: it ends after every outlet is gone.
    pub(crate) fn send(&self, batch: RecordBatch) -> Result<bool, Dead> {
        match self.full.try_send(Message::Records(batch)) {
            Ok(()) => Ok(false),
            Err(TrySendError::Full(message)) => self.full.send(message).map(|()| true).map_err(|_| Dead),
            Err(TrySendError::Disconnected(_)) => Err(Dead),
        }
    }

    /// Messages on their way.
    pub(crate) fn waiting(&self) -> usize {
        self.full.len()
    }

    /// All blocks of a slot, after everything sent before.
    pub(crate) fn blocks(&self, slot: Slot) -> Vec<Placed> {
        let (answer, answers) = bounded(1);
        drop(self.full.send(Message::Blocks(slot, answer)));
        answers.recv().unwrap_or_default()
    }

    /// Asks for a sign that everything sent before has been applied: that it is dropped.
    pub(crate) fn flush(&self, sign: Sender<()>) -> Result<(), Dead> {
        self.full.send(Message::Flush(sign)).map_err(|_| Dead)
    }
}

impl Inlet {
    /// The next message; an error when every outlet is gone.
    pub(crate) fn receive(&self) -> Result<Message, RecvError> {
        if let Some(message) = self.look_twice()? {
            return Ok(message);
        }
        self.full.recv()
    }

    /// The next message; `None` if nothing comes for so long.
    pub(crate) fn receive_within(&self, time: Duration) -> Result<Option<Message>, RecvError> {
        if let Some(message) = self.look_twice()? {
            return Ok(Some(message));
        }
        match self.full.recv_timeout(time) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(RecvError),
        }
    }

    /// To wake a thread costs a source more than to fill a batch. So a shard that has caught up looks again after a while
    /// before it asks to be woken: under load sources never wake it, and it finds several batches at once.
    fn look_twice(&self) -> Result<Option<Message>, RecvError> {
        let message = self.try_receive()?;
        if message.is_some() {
            return Ok(message);
        }
        #[expect(clippy::disallowed_methods, reason = "nothing waits for it: it lets batches gather")]
        std::thread::sleep(NAP);
        self.try_receive()
    }

    /// The next message if there is one already; an error when every outlet is gone.
    pub(crate) fn try_receive(&self) -> Result<Option<Message>, RecvError> {
        match self.full.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RecvError),
        }
    }

    /// Gives a batch's buffer back.
    pub(crate) fn recycle(&self, mut batch: RecordBatch) {
        batch.clear();
        // With enough of them on their way back, one more is not needed.
        drop(self.empty.try_send(batch));
    }
}
