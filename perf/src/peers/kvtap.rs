//! This crate's `Normalizer`, all of it: structure check, policy, counters, local hashes.

use super::{KVTAP, System};
use crate::support::cases::Case;
use crate::support::decoder::{Decoder, source};
use crate::support::payload::{Payload, Record};

pub(super) struct Kvtap {
    level: &'static str,
    decoder: Decoder,
}

impl Kvtap {
    pub(super) fn new(case: &Case, level: &'static str) -> Self {
        Self { level, decoder: Decoder::new(source(case, level)) }
    }
}

impl System for Kvtap {
    fn name(&self) -> String {
        format!("{KVTAP}{}", self.level)
    }

    fn decode(&mut self, payload: &Payload, records: &mut Vec<Record>) {
        self.decoder.decode(&payload.bytes, records);
    }
}
