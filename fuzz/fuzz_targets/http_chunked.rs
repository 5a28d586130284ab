//! See `tidewire_fuzz::http_chunked`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::http_chunked(input));
