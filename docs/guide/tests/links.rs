//! Links of all pages of the repository lead somewhere: to a file or folder that is there, and to a heading that is in it.
//! Paths that pages name in code (`docs/howto/measure.md`) are there, too, and so are pages that sources name. What is on
//! other machines is not asked for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders in which there are others' pages, or what was built.
const NOT_OURS: &[&str] = &["target", ".git", "node_modules", "book"];
/// What begins a path that is named in code, from the root.
const FOLDERS: &[&str] = &[
    "clients/",
    "crates/",
    "docs/",
    "fuzz/",
    "golden/",
    "packaging/",
    "peers/",
];

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = pages(&root);
    assert!(pages.len() > 50, "{} pages", pages.len());
    let mut seen = 0;
    let mut dead = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        let here = page.strip_prefix(&root).unwrap().display().to_string();
        for link in links(&text) {
            seen += 1;
            if !leads_somewhere(page, &text, link) {
                dead.push(format!("{here}: link to {link}"));
            }
            // A book is its own pages alone.
            if here.starts_with("docs/guide/src/") && link.starts_with("..") {
                dead.push(format!("{here}: {link} is not in the book"));
            }
        }
        for path in paths(&text) {
            seen += 1;
            if !root.join(path).exists() {
                dead.push(format!("{here}: `{path}` is not there"));
            }
        }
    }
    assert!(seen > 200, "{seen} links");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Errors, help and comments name pages; a page that was moved or divided is not forgotten there.
#[test]
fn every_page_that_sources_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut seen, mut dead) = (0, Vec::new());
    for source in files(&root, &["rs", "py", "toml", "js", "service", "socket", "c"]) {
        let text = fs::read_to_string(&source).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let rest = &text[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c));
            let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            if path.ends_with(".md") {
                seen += 1;
                if !root.join(path).exists() {
                    dead.push(format!("{}: {path}", source.display()));
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} pages were named");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

fn pages(root: &Path) -> Vec<PathBuf> {
    files(root, &["md"])
}

/// Our files whose names end so.
fn files(root: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                if !NOT_OURS.iter().any(|not| name == *not) {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|extension| endings.iter().any(|end| extension == *end))
            {
                found.push(path);
            }
        }
    }
    found
}

/// Targets of links and pictures. In blocks of code there are none.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for prose in prose(text) {
        for (before, after) in [("](", ")"), ("src=\"", "\""), ("srcset=\"", "\"")] {
            for (at, _) in prose.match_indices(before) {
                let rest = &prose[at + before.len()..];
                found.extend(rest.find(after).map(|end| &rest[..end]));
            }
        }
    }
    found.retain(|link| !link.contains("://") && !link.starts_with("mailto:"));
    found
}

/// Paths in code, but for patterns and parts of addresses.
fn paths(text: &str) -> Vec<&str> {
    let code = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = code.filter_map(|code| code.split_whitespace().next());
    let is_plain = |path: &&str| {
        FOLDERS.iter().any(|folder| path.starts_with(folder))
            && !path.contains(['*', '{', '<', '$', ':'])
            && !path
                .chars()
                .any(|c| c.is_ascii_uppercase() && !path.ends_with(".md"))
    };
    words.filter(is_plain).collect()
}

/// Lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence && !line.starts_with("    ")
    })
}

fn leads_somewhere(page: &Path, text: &str, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = page.parent().unwrap().join(path);
    match (path.is_empty(), heading.is_empty()) {
        (_, true) => target.exists(),
        (true, false) => headings(text).contains(heading),
        (false, false) => {
            fs::read_to_string(target).is_ok_and(|text| headings(&text).contains(heading))
        }
    }
}

/// What headings are called in links: in small letters, blanks as hyphens, and no other signs.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = prose(text).filter(|line| line.starts_with('#'));
    let name = |title: &str| {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(name).collect()
}
