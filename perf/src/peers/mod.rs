//! The systems that are compared, one file each, behind one small trait.

mod dynamo;
mod floor;
mod kvtap;
mod rmp_serde;
mod rmpv;

pub(crate) use dynamo::NAME as DYNAMO;
pub(crate) use floor::NAME as FLOOR;

use crate::support::cases::{Case, Content};
use crate::support::decoder::levels;
use crate::support::payload::{Payload, Record};

/// Something that turns payloads into records.
pub(crate) trait System {
    /// As the tables name it.
    fn name(&self) -> String;

    /// Decodes one payload, appending the records of what is placed or removed.
    fn decode(&mut self, payload: &Payload, records: &mut Vec<Record>);

    /// Whether `decode` makes records at all; the floor does not.
    fn makes_records(&self) -> bool {
        true
    }
}

/// Prefix of this crate's systems, one per SIMD level.
pub(crate) const KVTAP: &str = "kvtap-";

/// Names of all systems, in the order of the tables.
pub(crate) fn names() -> Vec<String> {
    let own = levels().into_iter().rev().map(|level| format!("{KVTAP}{level}"));
    let peers = [DYNAMO, rmp_serde::NAME, rmpv::NAME].map(str::to_owned);
    [FLOOR.to_owned()].into_iter().chain(own).chain(peers).collect()
}

/// The systems that can decode the case, each fresh.
pub(crate) fn able(case: &Case) -> Vec<Box<dyn System>> {
    let mut systems: Vec<Box<dyn System>> = vec![Box::new(floor::Floor::new(case))];
    for level in levels().into_iter().rev() {
        systems.push(Box::new(kvtap::Kvtap::new(case, level)));
    }
    systems.push(Box::new(dynamo::Dynamo::new(case)));
    // Written here by hand, the plain ways know token blocks and groups; more would measure our own code.
    if case.content != Content::LoraMultimodal {
        systems.push(Box::new(rmp_serde::Typed::new(case)));
        systems.push(Box::new(rmpv::Dynamic::new(case)));
    }
    systems
}

/// Seed of local hashes.
const SEED: u64 = 1337;

/// Local hash of a block, as anybody would write it.
fn local_hash(tokens: &[u32]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytemuck::cast_slice(tokens), SEED)
}
