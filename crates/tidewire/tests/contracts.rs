//! docs/reference/contracts.md names tests, and they exist.

use std::fs;
use std::path::Path;

fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push_str(&fs::read_to_string(path).expect("a source"));
        }
    }
}

#[test]
fn the_tests_that_hold_the_contracts_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text =
        fs::read_to_string(crates.join("../docs/reference/contracts.md")).expect("the document");
    let mut all = String::new();
    for of in fs::read_dir(&crates).expect("the crates").flatten() {
        for folder in ["src", "tests"].map(|f| of.path().join(f)) {
            if folder.is_dir() {
                sources(&folder, &mut all);
            }
        }
    }
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let held_by = rows.filter_map(|row| row.trim_end_matches(" |").rsplit_once("| "));
    let names = held_by.flat_map(|(_, names)| names.split('`').skip(1).step_by(2));
    let mut known = 0;
    for name in names {
        assert!(
            all.contains(&format!("fn {name}(")),
            "there is no test {name}"
        );
        known += 1;
    }
    assert!(known > 60, "only {known} names were found");
}

/// ARCHITECTURE.md says so of the words that all rooms use.
#[test]
fn the_vocabulary_depends_on_no_other_room() {
    let mut all = String::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/vocabulary");
    sources(&here, &mut all);
    let code = all
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let of_ours: Vec<&str> = code.filter(|line| line.contains("crate::")).collect();
    assert!(!of_ours.is_empty(), "nothing was read");
    let outside = |line: &&&str| !line.contains("crate::vocabulary::");
    let outside: Vec<_> = of_ours.iter().filter(outside).collect();
    assert!(outside.is_empty(), "{outside:?}");
}
