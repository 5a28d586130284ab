//! The allocator: mimalloc, which asks for huge pages.
//!
//! Millions of small values are all over the memory; with pages of 4 KiB most of them cost a walk
//! through the page tables besides the cache miss. The figures are in the journal, entry 0008.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Tells the key-value store, which counts memory, what an allocation really takes.
pub(crate) fn announce() {
    tidewire_kv::allocator::set(tidewire_kv::allocator::Allocator::Mimalloc);
}

/// Switches huge pages off for this process. Huge pages are for the key-value data. Connections
/// would take two megabytes where they need a few kilobytes, and each of thousands of threads
/// allocates from pages of its own, most of which would stay empty.
pub(crate) fn small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "cannot do without huge pages: threads will take more memory");
    }
}
