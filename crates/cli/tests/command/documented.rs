//! Commands by which documents and comments name a test of this program: cargo takes a name that no
//! test has for a selection of none, and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMED_BY: &str = "--test command ";

#[test]
fn each_documented_selection_selects_a_test() {
    let listed = Command::new(std::env::current_exe().unwrap())
        .args(["--list", "--format", "terse"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    let mut seen = 0;
    for file in documents() {
        let text = fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices(NAMED_BY) {
            let rest = &text[at + NAMED_BY.len()..];
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            let name = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
            if name.is_empty() {
                continue;
            }
            seen += 1;
            let selects = tests.iter().any(|test| test.contains(name));
            assert!(selects, "{}: no test is {name}", file.display());
        }
    }
    assert!(seen > 0, "nothing was looked at");
}

/// What is read by people: the pages, and the sources of these tests.
fn documents() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    let within = |folder: PathBuf| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    within(root.clone())
        .chain(within(root.join("docs")))
        .chain(within(here.join("tests/command")))
        .filter(|path| path.extension().is_some_and(|it| it == "md" || it == "rs"))
        .collect()
}
