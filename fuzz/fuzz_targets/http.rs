//! Requests to the service without sockets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvtap_fuzz::http::run(data));
