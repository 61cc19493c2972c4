//! Streams of events into the index against a naive model.
#![no_main]

libfuzzer_sys::fuzz_target!(|history: kvtap_fuzz::index::History| kvtap_fuzz::index::run(&history));
