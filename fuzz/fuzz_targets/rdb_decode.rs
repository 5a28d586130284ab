//! See `tidewire_fuzz::rdb_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::rdb_decode(input));
