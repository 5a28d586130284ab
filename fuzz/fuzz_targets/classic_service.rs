//! See `tidewire_fuzz::classic_service`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::classic_service(input));
