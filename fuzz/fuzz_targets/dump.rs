//! What a peer answers to `/dump`, loaded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvtap_fuzz::dump::run(data));
