//! See `tidewire_fuzz::journal_export`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::journal_export(input));
