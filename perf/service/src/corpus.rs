//! The captures of `tests/corpus`, and what is known of each.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use kvtap::kvcap::Reader;
use serde_json::Value as Json;

/// A captured stream.
pub struct Capture {
    /// The file's name without its ending.
    pub name: String,
    /// Tokens per block.
    pub block_size: u32,
    /// The batches, in the order of the file.
    pub payloads: Vec<Vec<u8>>,
    /// Prompts that hit wholly, in part, and not at all.
    pub prompts: Vec<Vec<u32>>,
}

/// Every capture, by name.
pub fn captures() -> Vec<Capture> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let files = fs::read_dir(directory).expect("the corpus");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a readable entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "kvcap"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Capture {
    let mut reader = Reader::new(BufReader::new(File::open(path).expect("a capture"))).expect("a capture");
    let mut payloads = Vec::new();
    while let Some(record) = reader.next_record().expect("a record") {
        payloads.push(record.payload.to_vec());
    }
    let text = |ending: &str| fs::read_to_string(path.with_extension(ending)).expect("beside the capture");
    let sidecar: Json = serde_json::from_str(&text("json")).expect("JSON");
    let prompt = |line: &str| {
        let query: Json = serde_json::from_str(line).expect("JSON");
        serde_json::from_value(query[0].clone()).expect("token ids")
    };
    Capture {
        name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
        block_size: serde_json::from_value(sidecar["block_size"].clone()).expect("a size"),
        payloads,
        prompts: text("queries.jsonl").lines().map(prompt).collect(),
    }
}
