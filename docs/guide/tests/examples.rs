//! Every page of the repository with an example in Rust is in `pages.rs`, so that its examples are compiled and run.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_example_in_rust_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = listed();
    let mut found = 0;
    let mut missing = Vec::new();
    for page in pages(&root) {
        let text = fs::read_to_string(&page).unwrap();
        if !text.lines().any(|line| line.trim().starts_with("```rust")) {
            continue;
        }
        found += 1;
        if !listed.contains(&page.canonicalize().unwrap()) {
            let page = page.strip_prefix(&root).unwrap().display();
            missing.push(format!(
                "{page} has an example in Rust and is not in docs/guide/pages.rs"
            ));
        }
    }
    assert!(found > 10, "only {found} pages with examples were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The pages that `pages.rs` includes.
fn listed() -> Vec<PathBuf> {
    let book = Path::new(env!("CARGO_MANIFEST_DIR"));
    include_str!("../pages.rs")
        .split('"')
        .filter(|named| named.ends_with(".md"))
        .map(|named| book.join(named).canonicalize().unwrap())
        .collect()
}

/// README, and the pages of `docs/` except the journal's: entries of the journal quote code of their day.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("journal") && !path.ends_with("book") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages
}
