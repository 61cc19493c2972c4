//! Capture files on disk, read record by record behind a progress bar; every failure names its file.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressBarIter, ProgressStyle};
use kvtap::kvcap::{Reader, Record};

/// Below this many bytes the work is done before anyone could look at a bar.
const BAR_FROM_BYTES: u64 = 8 << 20;
const READ_BUFFER_BYTES: usize = 256 << 10;

/// A capture that is being read.
pub(crate) struct Capture<'p> {
    path: &'p Path,
    reader: Reader<BufReader<ProgressBarIter<File>>>,
}

impl<'p> Capture<'p> {
    pub(crate) fn open(path: &'p Path, bar: &ProgressBar) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(name)?;
        let buffered = BufReader::with_capacity(READ_BUFFER_BYTES, bar.wrap_read(file));
        Ok(Self { path, reader: Reader::new(buffered).with_context(name)? })
    }

    pub(crate) fn next_record(&mut self) -> anyhow::Result<Option<Record<'_>>> {
        self.reader.next_record().with_context(|| self.path.display().to_string())
    }
}

/// A bar over the bytes of all files; hidden unless they are long and stderr is a terminal.
pub(crate) fn progress<'p>(paths: impl Iterator<Item = &'p Path>) -> ProgressBar {
    let length = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    let bytes = paths.map(length).sum();
    if bytes < BAR_FROM_BYTES || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_file() {
        let path = Path::new("no such capture.kvcap");
        let Err(error) = Capture::open(path, &ProgressBar::hidden()) else { panic!("it is there") };
        assert!(format!("{error:#}").starts_with("no such capture.kvcap: "), "{error:#}");
    }
}
