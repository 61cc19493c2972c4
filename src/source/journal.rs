//! Log lines of one source, rate-limited: a publisher decides how often something happens to it. Counters never stop.

use std::fmt;
use std::time::{Duration, Instant};

use log::Level;

/// Lines in a window; more are counted and told at the start of the next.
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Writes the log of one source.
#[derive(Debug)]
pub(super) struct Journal {
    name: String,
    window: Instant,
    lines: u32,
    withheld: u64,
}

impl Journal {
    /// Names the source in every line.
    pub(super) fn new(name: String) -> Self {
        Self { name, window: Instant::now(), lines: 0, withheld: 0 }
    }

    pub(super) fn info(&mut self, line: fmt::Arguments<'_>) {
        self.write(Level::Info, line);
    }

    pub(super) fn warn(&mut self, line: fmt::Arguments<'_>) {
        self.write(Level::Warn, line);
    }

    fn write(&mut self, level: Level, line: fmt::Arguments<'_>) {
        let now = Instant::now();
        if now.duration_since(self.window) >= WINDOW {
            if self.withheld > 0 {
                log::log!(Level::Warn, "{}: {} lines withheld", self.name, self.withheld);
            }
            (self.window, self.lines, self.withheld) = (now, 0, 0);
        }
        if self.lines >= LINES_MAX {
            self.withheld += 1;
            return;
        }
        self.lines += 1;
        log::log!(level, "{}: {line}", self.name);
    }
}
