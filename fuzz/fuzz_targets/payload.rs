//! Payloads of one source against the oracle.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvtap_fuzz::payload::run(data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    kvtap_fuzz::payload::mutate(data, size, max_size, seed)
});
