//! The pages that follow a command and a message through the sources name functions that are in their files, and every page
//! is one that a reader gets through.

use std::fs;
use std::path::Path;

/// Pages that take longer than a quarter of an hour to read, and why.
const LONG: &[(&str, &str)] = &[
    (
        "docs/journal/0038-what-endures-and-what-an-opening-reads.md",
        "the record of a measurement, which is not rewritten",
    ),
    (
        "docs/reference/settings.md",
        "a table to look a setting up in, made from the program",
    ),
];
/// A quarter of an hour at 250 words a minute.
const WORDS: usize = 3_750;

#[test]
fn the_functions_that_are_followed_are_in_their_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/inside/follow.md")).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let code: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [path, function, ..] = code[..] else {
            continue;
        };
        seen += 1;
        let text = fs::read_to_string(root.join(path)).unwrap_or_default();
        let begins = |next: Option<char>| matches!(next, Some('(' | '<'));
        let named = format!("fn {function}");
        if !(text.match_indices(&named))
            .any(|(at, _)| begins(text[at + named.len()..].chars().next()))
        {
            wrong.push(format!("{path} has no function {function}"));
        }
    }
    assert!(seen > 25, "only {seen} steps were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_page_takes_longer_than_a_quarter_of_an_hour() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("docs")];
    let mut pages = vec![
        root.join("README.md"),
        root.join("ARCHITECTURE.md"),
        root.join("CONTRIBUTING.md"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 80, "only {} pages were found", pages.len());
    let mut long = Vec::new();
    for page in pages {
        let name = page.strip_prefix(&root).unwrap().display().to_string();
        let words = fs::read_to_string(&page)
            .unwrap()
            .split_whitespace()
            .count();
        if words > WORDS && !LONG.iter().any(|(page, _)| name == *page) {
            long.push(format!("{name}: {words} words"));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn the_architecture_is_short() {
    let page = include_str!("../../../ARCHITECTURE.md");
    let words = page.split_whitespace().count();
    assert!(words <= 3_000, "ARCHITECTURE.md has {words} words");
}

/// Pages of the documentation, but for the journal, the reports and the book, have one title and begin with their reader.
#[test]
fn every_page_says_for_whom_it_is() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut silent = Vec::new();
    for folder in [
        ".",
        "start",
        "concepts",
        "howto",
        "reference",
        "formats",
        "inside",
    ] {
        for entry in fs::read_dir(docs.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let first = text
                .lines()
                .find(|line| !line.is_empty() && !line.starts_with('#'));
            // What is between fences is code.
            let prose = text.split("\n```").step_by(2);
            let titles: usize = prose
                .map(|part| part.lines().filter(|line| line.starts_with("# ")).count())
                .sum();
            if titles != 1 || !first.is_some_and(|line| line.starts_with("For ")) {
                silent.push(path.display().to_string());
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

/// Errors and log lines that docs/reference/errors.md explains are ones that something prints.
#[test]
fn errors_that_are_explained_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    // A long text stands on several lines.
    let mut whole = String::new();
    for (at, part) in sources.split("\\\n").enumerate() {
        whole.push_str(if at == 0 { part } else { part.trim_start() });
    }
    let page = fs::read_to_string(root.join("docs/reference/errors.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let texts: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(texts.len() > 40, "only {} texts were found", texts.len());
    let unknown: Vec<&&str> = texts
        .iter()
        .filter(|text| !whole.contains(**text))
        .collect();
    assert!(unknown.is_empty(), "nothing prints {unknown:?}");
}
