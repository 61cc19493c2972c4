//! The captures that tests run over: those in `tests/corpus`, or in the directory that `KVTAP_CORPUS` names.

use std::fs;
use std::path::PathBuf;

use serde_json::Value as Json;

use super::kvcap::{self, Record};

/// A capture and what is known of it.
pub(crate) struct Capture {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) block_size: u32,
    /// The whole sidecar.
    pub(crate) sidecar: Json,
}

impl Capture {
    pub(crate) fn records(&self) -> Vec<Record> {
        kvcap::read(&fs::read(&self.path).expect("a capture"))
    }

    /// The payloads alone.
    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        self.records().into_iter().map(|record| record.payload).collect()
    }

    /// Lines of the file beside it with this ending, if there is one.
    pub(crate) fn lines(&self, ending: &str) -> Option<Vec<Json>> {
        let text = fs::read_to_string(self.path.with_extension(ending)).ok()?;
        Some(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    }
}

/// Every capture, by name.
pub(crate) fn all() -> Vec<Capture> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let directory = std::env::var("KVTAP_CORPUS").unwrap_or_else(|_| own.to_owned());
    let files = fs::read_dir(directory).expect("a directory of captures");
    let paths = files.map(|file| file.expect("a readable entry").path());
    let mut captures: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "kvcap")).map(open).collect();
    captures.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!captures.is_empty(), "no captures found");
    captures
}

/// Those below 200 kB, which is all that is not a long stream.
pub(crate) fn small() -> impl Iterator<Item = Capture> {
    all().into_iter().filter(|capture| fs::metadata(&capture.path).expect("a file").len() < 200_000)
}

/// The others, if all of their payloads are sound: what benches run over.
pub(crate) fn large() -> impl Iterator<Item = Capture> {
    let is_large = |path: &PathBuf| fs::metadata(path).expect("a file").len() >= 200_000;
    let is_sound = |capture: &Capture| capture.sidecar["expected"]["malformed_batches"] == 0;
    all().into_iter().filter(move |capture| is_large(&capture.path) && is_sound(capture))
}

fn open(path: PathBuf) -> Capture {
    let text = fs::read_to_string(path.with_extension("json")).expect("a sidecar");
    let sidecar: Json = serde_json::from_str(&text).expect("JSON");
    let block_size = sidecar["block_size"].as_u64().expect("a block size");
    let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
    Capture { name, block_size: u32::try_from(block_size).expect("a small size"), sidecar, path }
}
