//! See `tidewire_fuzz::log_recovery`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::log_recovery(input));
