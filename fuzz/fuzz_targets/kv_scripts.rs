//! See `tidewire_fuzz::kv_scripts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::kv_scripts(input));
