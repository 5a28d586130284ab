//! The products. A new one is a file or a crate of its own, and a line here.

pub(super) mod ack;
mod echo;
mod http;
mod ingest;
pub(crate) mod kv;

use super::product::{self, Entry};

/// In the order of help and of lists.
static ALL: &[&Entry] = &[
    &echo::ECHO,
    &ingest::ENTRY,
    &ack::ENTRY,
    &http::ENTRY,
    &kv::ENTRY,
    &echo::DISCARD,
];

/// Lists the products for the frame.
pub(crate) fn install() {
    product::install(ALL);
}
