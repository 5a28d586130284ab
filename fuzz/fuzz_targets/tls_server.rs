//! See `tidewire_fuzz::tls_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidewire_fuzz::tls_server(input));
