//! See `tidewire_fuzz::classic_codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::classic_codec(input));
