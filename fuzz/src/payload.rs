//! Payloads of one source against the oracle: the same acceptance, events, placements, counts, digest and answers.
//!
//! Input: a byte that says what the source is, then payloads, each behind its length (two bytes, little-endian); the last
//! may be shorter than it says.

use kvtap::{Config, Engine};

use crate::support::fast::Fast;
use crate::support::mutate;
use crate::support::oracle::{Copies, Digest, Oracle, OracleConfig};
use crate::support::pack::Choices;

/// Applies the payloads of one input on both sides.
pub fn run(data: &[u8]) {
    let Some((&setup, rest)) = data.split_first() else { return };
    let config = config(setup);
    let mut oracle = Oracle::new(config);
    let mut fast = fast(config, if setup & 16 == 0 { 1 } else { 2 });
    for (sequence, payload) in (0..).zip(payloads(rest)) {
        // In a block of its own size, so that reading past its end is seen.
        let payload: Box<[u8]> = payload.into();
        let mut slow = oracle.apply(sequence, &payload);
        slow.rejection = None;
        assert_eq!(fast.apply(sequence, &payload), slow);
    }
    fast.flush();
    assert_eq!(fast.summary(), oracle.summary());
    let prefixes = oracle.stored_prefixes();
    for &prefix in prefixes.iter().step_by(prefixes.len() / 8 + 1) {
        let (chain, found) = fast.query_stored(prefix);
        assert_eq!(found, oracle.query_prefixes(&chain));
    }
}

fn config(setup: u8) -> OracleConfig {
    let block_size = [4, 16, 1, 64][usize::from(setup & 3)];
    OracleConfig {
        copies: if setup & 4 == 0 { Copies::Count } else { Copies::Set },
        dp_rank: u32::from(setup & 32 > 0),
        digest: if setup & 8 == 0 { Digest::Low } else { Digest::High },
        ..OracleConfig::new(block_size)
    }
}

/// The first byte of inputs for a source with blocks of this size.
pub(crate) fn setup(block_size: u64) -> u8 {
    match block_size {
        4 => 0,
        1 => 2,
        64 => 3,
        _ => 1,
    }
}

fn fast(config: OracleConfig, shards: usize) -> Fast {
    let mut engine = Config::default();
    engine.shards = shards;
    engine.hash_seed = Some(7);
    Fast::over(Engine::new(engine).expect("an engine"), config)
}

fn payloads(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while let Some((&len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(len)).min(after.len());
        let (payload, after) = after.split_at(len);
        payloads.push(payload);
        rest = after;
    }
    payloads
}

/// An input of these payloads, as many as fit.
pub(crate) fn join(setup: u8, payloads: &[Vec<u8>], max: usize) -> Vec<u8> {
    let mut input = vec![setup];
    for payload in payloads {
        let Ok(len) = u16::try_from(payload.len()) else { continue };
        if input.len() + 2 + payload.len() <= max {
            input.extend(len.to_le_bytes());
            input.extend(payload);
        }
    }
    input
}

/// Changes an input at the level of payloads and msgpack values, or blindly inside one payload.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut choices = Choices::new(seed.into());
    if size < 4 || choices.percent(10) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let setup = data[0];
    let mut all: Vec<Vec<u8>> = payloads(&data[1..size]).into_iter().map(<[u8]>::to_vec).collect();
    if all.is_empty() {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let (at, other) = (choices.below(all.len()), choices.below(all.len()));
    match choices.below(14) {
        0 => drop(all.remove(at)),
        // The same again after its groups were learned to be of other kinds.
        12 | 13 => {
            let (taught, again) = (mutate::teach(&mut choices, &all[at]), all[at].clone());
            all.splice(at + 1..at + 1, [taught, again]);
        }
        1 => all.swap(at, other),
        2 => {
            let twin = all[at].clone();
            all.insert(other, twin);
        }
        3..7 => {
            let payload = &mut all[at];
            let len = payload.len();
            payload.resize(len + 64, 0);
            let len = libfuzzer_sys::fuzzer_mutate(payload, len, len + 64);
            payload.truncate(len);
        }
        _ => all[at] = mutate::mutate(choices.u64(), &all[at], &all[other]),
    }
    let joined = join(setup, &all, max_size);
    data[..joined.len()].copy_from_slice(&joined);
    joined.len()
}
