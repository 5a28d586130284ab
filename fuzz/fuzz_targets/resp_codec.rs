//! See `tidewire_fuzz::resp_codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::resp_codec(input));
