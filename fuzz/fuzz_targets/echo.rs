//! See `tidewire_fuzz::echo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::echo(input));
