//! What is measured: a `Normalizer` that writes records, at a chosen SIMD level.

use kvtap::{EngineHash, Normalizer, SimdLevel, SourceConfig, StoredBlocks, Tier, Visitor, Worker};

use super::cases::Case;
use super::payload::Record;

/// Labels of the SIMD levels of this processor, best last.
pub(crate) fn levels() -> Vec<&'static str> {
    SimdLevel::available().map(SimdLevel::label).collect()
}

/// A source of the case's traffic, read at this level.
pub(crate) fn source(case: &Case, level: &str) -> SourceConfig {
    let mut source = SourceConfig::new(7);
    source.block_size = u32::try_from(case.block_size).expect("a small block");
    source.simd = SimdLevel::available().find(|available| available.label() == level);
    assert!(source.simd.is_some(), "this processor has no {level}");
    source
}

/// Payload → records.
#[derive(Debug)]
pub(crate) struct Decoder(Normalizer);

impl Decoder {
    pub(crate) fn new(source: SourceConfig) -> Self {
        Self(Normalizer::new(source).expect("a valid source"))
    }

    /// Decodes one payload, appending its records.
    pub(crate) fn decode(&mut self, payload: &[u8], records: &mut Vec<Record>) {
        self.0.read(payload, &mut Append(records)).expect("a sound payload");
    }
}

struct Append<'r>(&'r mut Vec<Record>);

impl Visitor for Append<'_> {
    fn stored(&mut self, stored: StoredBlocks<'_>) {
        let pairs = stored.engine_hashes.iter().zip(stored.local_hashes);
        let records = pairs.map(|(engine, local)| Record { engine_hash: engine.0, local_hash: local.0 });
        self.0.extend(records);
    }

    fn removed(&mut self, _: Worker, _: Tier, hashes: &[EngineHash]) {
        self.0.extend(hashes.iter().map(|hash| Record { engine_hash: hash.0, local_hash: 0 }));
    }

    fn cleared(&mut self, _: Worker) {}
}
