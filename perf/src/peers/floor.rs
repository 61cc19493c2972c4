//! What no decoder can go below: XXH3 of the tokens that count, decoded and in L1, and one copy of the payload.

use std::hint::black_box;

use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_64_with_seed};

use super::{SEED, System};
use crate::support::cases::{Case, Content};
use crate::support::payload::{Payload, Record, blocks};

pub(crate) const NAME: &str = "floor";

/// XXH3 derives this from the seed on every call above 240 bytes; knowing it beforehand gives the same hash sooner.
static SECRET: [u8; 192] = const_custom_default_secret(SEED);

/// Blocks that are hashed over and over; XXH3 takes no longer for one than for another.
const HOT_BLOCKS: usize = 16;

pub(super) struct Floor {
    case: Case,
    hot: Vec<u32>,
    copy: Vec<u8>,
}

impl Floor {
    pub(super) fn new(case: &Case) -> Self {
        let pair = u32::from(case.content == Content::Bigram);
        let tokens = u32::try_from(case.block_size * HOT_BLOCKS).expect("a few blocks") + pair;
        Self { case: case.clone(), hot: (0..tokens).collect(), copy: Vec::new() }
    }
}

impl System for Floor {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn decode(&mut self, payload: &Payload, _: &mut Vec<Record>) {
        self.copy.clear();
        self.copy.extend_from_slice(&payload.bytes);
        black_box(&self.copy);
        if self.case.content == Content::Removed {
            return;
        }
        let mut left = payload.records.len();
        while left > 0 {
            for block in blocks(&self.case, &self.hot).take(left) {
                let bytes: &[u8] = bytemuck::cast_slice(black_box(block));
                black_box(if bytes.len() > 240 {
                    xxh3_64_with_secret(bytes, &SECRET)
                } else {
                    xxh3_64_with_seed(bytes, SEED)
                });
                left -= 1;
            }
        }
    }

    fn makes_records(&self) -> bool {
        false
    }
}
