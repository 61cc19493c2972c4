//! What the library logs, on stderr: a line each, as all else that is not data.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::note;

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("kvtap")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let warning = if record.level() <= Level::Warn { "warning: " } else { "" };
            note(&format!("{warning}{}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// From now on, up to a level. Nobody else sets a logger in this program.
pub(crate) fn start(level: LevelFilter) {
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
