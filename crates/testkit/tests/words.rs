//! What programs print, and comments, name their subject: a client, a server, a file; see
//! docs/inside/words.md.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, Item, Lit, Meta};
use tidewire_testkit::imports::code_of;
use tidewire_testkit::literals::literals;

/// Words that stand in for a subject.
const REFUSED: &[&str] = &[
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "whoever",
    "whom",
    "who",
];

/// Texts that are not ours, and one that is a name.
const EXCEPTIONS: &[&str] = &["{who}"];

/// Words that no comment uses. *Who* is for people, an operator for instance.
const REFUSED_IN_COMMENTS: &[&str] = &[
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "whoever",
    "whom",
];

/// Words that no comment begins with: the comment stands without the one before it.
const BEGINNINGS: &[&str] = &[
    "It ",
    "Its ",
    "Of ",
    "Those ",
    "They ",
    "Their ",
    "The same ",
    "Ditto",
];

/// Comments that are still worded so. The number only goes down.
const LEFT: usize = 5;

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        if matches!(stem, "tests" | "testing" | "models") {
            continue;
        }
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
}

/// The texts of help: comments on what clap reads the command line into, each with its line.
fn help(code: &str) -> Vec<(usize, String)> {
    let file = syn::parse_file(code).expect("a source that compiles");
    let mut all = Vec::new();
    let mut take = |attrs: &[Attribute]| {
        for attr in attrs {
            if let Meta::NameValue(doc) = &attr.meta
                && doc.path.is_ident("doc")
                && let Expr::Lit(lit) = &doc.value
                && let Lit::Str(text) = &lit.lit
            {
                let value = text.value();
                let line = code.lines().position(|line| line.ends_with(value.as_str()));
                all.push((line.map_or(0, |line| line + 1), value));
            }
        }
    };
    let is_read_by_clap = |attrs: &[Attribute]| {
        attrs.iter().any(|attr| match &attr.meta {
            Meta::List(list) if list.path.is_ident("derive") => {
                let traits = list.tokens.to_string();
                ["Args", "Subcommand", "Parser", "ValueEnum"]
                    .iter()
                    .any(|name| traits.contains(name))
            }
            _ => false,
        })
    };
    for item in &file.items {
        match item {
            Item::Struct(s) if is_read_by_clap(&s.attrs) => {
                s.fields.iter().for_each(|field| take(&field.attrs));
            }
            Item::Enum(e) if is_read_by_clap(&e.attrs) => {
                for variant in &e.variants {
                    take(&variant.attrs);
                    variant.fields.iter().for_each(|field| take(&field.attrs));
                }
            }
            _ => {}
        }
    }
    all
}

#[test]
fn what_is_printed_names_its_subject() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut read, mut found) = (Vec::new(), 0, Vec::new());
    for entry in fs::read_dir(&crates).expect("the crates") {
        let path = entry.expect("an entry").path();
        if path.ends_with("testkit") || !path.join("src").is_dir() {
            continue;
        }
        sources(&path.join("src"), &mut files);
    }
    for path in &files {
        let text = fs::read_to_string(path).expect("a source");
        let code = code_of(&text);
        let texts = literals(code).into_iter().map(|l| (l.line, l.text));
        for (line, said) in texts.chain(help(code)) {
            read += 1;
            let mut text = said.to_lowercase();
            for exception in EXCEPTIONS {
                text = text.replace(exception, "");
            }
            let mut words = text.split(|c: char| !c.is_alphanumeric());
            let is_sentence = text.contains(' ');
            if is_sentence && words.any(|word| REFUSED.contains(&word)) {
                found.push(format!("{}:{line}: {said}", path.display()));
            }
        }
    }
    assert!(read > 10_000, "{read} literals in {} files", files.len());
    assert!(found.is_empty(), "name the subject:\n{}", found.join("\n"));
}

/// Comments of a source, each line with its number and whether the comment begins there.
fn comments(text: &str) -> Vec<(usize, &str, bool)> {
    let (mut all, mut before) = (Vec::new(), "");
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!", "//"]
            .into_iter()
            .find(|marker| line.starts_with(marker))
            .unwrap_or_default();
        if !marker.is_empty() {
            all.push((at + 1, line[marker.len()..].trim(), marker != before));
        }
        before = marker;
    }
    all
}

fn every_source(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            every_source(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
}

#[test]
fn comments_name_their_subject() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut read, mut found) = (Vec::new(), 0, Vec::new());
    every_source(&crates, &mut files);
    for path in files
        .iter()
        .filter(|path| !path.ends_with("tests/words.rs"))
    {
        let text = fs::read_to_string(path).expect("a source");
        for (line, said, is_first) in comments(&text) {
            read += 1;
            let small = said.to_lowercase();
            let mut words = small.split(|c: char| !c.is_alphanumeric());
            if words.any(|word| REFUSED_IN_COMMENTS.contains(&word))
                || is_first && BEGINNINGS.iter().any(|words| said.starts_with(words))
            {
                found.push(format!("{}:{line}: {said}", path.display()));
            }
        }
    }
    assert!(read > 20_000, "{read} lines of comments");
    let places = found.join("\n");
    assert!(found.len() <= LEFT, "name the subject:\n{places}");
}
