//! Arrows between files point down only: no file of the toolkit imports one that, by whatever way, imports it.

use std::path::Path;

// Not through the crate, which would have these tests build what they do not need.
#[path = "../../testkit/src/imports.rs"]
mod imports;

#[test]
fn no_file_imports_one_that_imports_it() {
    let found = imports::imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(found.files > 130 && found.arrows > 700, "{found:?}");
    assert!(found.on_circles.is_empty(), "{:#?}", found.on_circles);
}
