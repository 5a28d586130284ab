//! See `tidewire_fuzz::native_codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::native_codec(input));
