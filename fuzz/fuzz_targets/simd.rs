//! Every SIMD level against scalar code.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvtap_fuzz::simd::run(data));
