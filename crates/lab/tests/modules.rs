//! Arrows between files point down only: no file of the lab imports one that, by whatever way, imports it.

use std::path::Path;

use tidewire_testkit::imports::imports;

#[test]
fn no_file_imports_one_that_imports_it() {
    let found = imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(found.files > 40 && found.arrows > 150, "{found:?}");
    assert!(found.on_circles.is_empty(), "{:#?}", found.on_circles);
}
