//! Captures: any bytes read, and what was written read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvtap_fuzz::capture::run(data));
