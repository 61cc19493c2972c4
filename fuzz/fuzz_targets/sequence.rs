//! The numbers of one source against a list.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvtap_fuzz::sequence::run(data));
