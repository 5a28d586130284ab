//! The allocator: jemalloc, told to ask for huge pages.
//!
//! Millions of small values are all over the memory; with pages of 4 KiB most of them cost a walk
//! through the page tables besides the cache miss. The figures are in the journal, entry 0008. The
//! environment variable `_RJEM_MALLOC_CONF` changes these settings.
#![allow(unsafe_code)]

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const SETTINGS: &std::ffi::CStr = c"thp:always";

/// The symbol that jemalloc reads its settings from: a pointer to a text that ends with a zero byte.
// SAFETY: jemalloc declares it as `const char *`, which a reference to the first byte is; nothing
// else has this name.
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &u8 = &SETTINGS.to_bytes_with_nul()[0];
