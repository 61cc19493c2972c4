//! When a live command ends: SIGINT, SIGTERM, or its time is over. A second signal ends it at once.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The end of a live command.
pub(crate) struct Ending {
    signals: Receiver<()>,
    at: Option<Instant>,
}

impl Ending {
    /// Takes over the signals; ends by itself after this time, if any.
    pub(crate) fn after(duration: Option<Duration>) -> anyhow::Result<Self> {
        let mut caught = Signals::new([SIGINT, SIGTERM])?;
        let (sender, signals) = channel();
        std::thread::Builder::new().name("kvtap-signals".to_owned()).spawn(move || {
            for signal in caught.forever() {
                if sender.send(()).is_err() {
                    // Whoever waited is at its end already; then the signal means what it always meant.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
            }
        })?;
        Ok(Self { signals, at: duration.and_then(|duration| Instant::now().checked_add(duration)) })
    }

    /// Waits so long at most. Says whether the end has come.
    pub(crate) fn wait(&self, step: Duration) -> bool {
        let left = self.left(step);
        // Without anyone to send, only the time can end it.
        match self.signals.recv_timeout(left) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => self.is_over(),
        }
    }

    /// Whether the end has come.
    pub(crate) fn is_here(&self) -> bool {
        self.signals.try_recv().is_ok() || self.is_over()
    }

    /// The time until then, but no more than a step.
    pub(crate) fn left(&self, step: Duration) -> Duration {
        self.at.map_or(step, |at| at.saturating_duration_since(Instant::now()).min(step))
    }

    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }
}
