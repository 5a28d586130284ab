//! Every public type and trait shows how it is used: what the crate exports has an example, which
//! `cargo test` runs.

use std::fs;
use std::path::Path;

/// Left out, because another item's example is theirs.
const COVERED: [(&str, &str); 24] = [
    ("Around", "`Layered`"),
    ("Bell", "`Alarm`"),
    ("Layer", "`Layered`"),
    ("LayeredConn", "`Layered`"),
    ("Traced", "`Tracer`"),
    ("Wrap", "`Layered`"),
    ("Counters", "made by a macro; `Running`"),
    ("EndpointError", "`Endpoint`"),
    ("Left", "`Progress`"),
    ("NetworkError", "`Network`"),
    ("RateError", "`Rate`"),
    ("Listening", "`Running::listeners`"),
    ("OnInput", "`on_input`"),
    ("OnInputConn", "`on_input`"),
    ("PlainId", "`PlainState`"),
    ("LoopId", "`SimService`"),
    ("LoopView", "`Observer`"),
    ("Process", "`Identity`"),
    ("Reasons", "`Counters`"),
    ("ServiceFn", "`service_fn`"),
    ("Delimited", "`LengthDelimited`"),
    ("TooLong", "`Lines`"),
    ("Event", "`Sim::record`"),
    ("What", "`Sim::record`"),
];

/// The same in `tidewire-http`.
const COVERED_OF_HTTP: [(&str, &str); 4] = [
    ("HttpConn", "`Http`"),
    ("HttpLocal", "`Http`"),
    ("Data", "`Exchange`"),
    ("Message", "`Later`"),
];

fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// The names that `pub use` lines export.
fn exported(source: &str) -> Vec<String> {
    let lines = source.split(';').filter_map(|item| {
        let (_, path) = item.trim().rsplit_once("pub use ")?;
        Some(
            path.rsplit_once("::")
                .map_or(path, |(_, names)| names)
                .to_owned(),
        )
    });
    let names = lines.flat_map(|names| {
        let names = names.trim_matches(['{', '}']).to_owned();
        names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect::<Vec<_>>()
    });
    names
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect()
}

/// Whether the documentation right above this line has a block of code.
fn has_example(lines: &[&str], at: usize) -> bool {
    let above = lines[..at].iter().rev();
    let mut docs = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
    docs.any(|line| line.starts_with("/// ```"))
}

/// What the sources in `folder` export without an example.
fn without_example(folder: &Path, covered: &[(&str, &str)], at_least: usize) -> Vec<String> {
    let mut all = Vec::new();
    sources(folder, &mut all);
    let names: Vec<String> = all.iter().flat_map(|source| exported(source)).collect();
    assert!(names.len() > at_least, "only {names:?}");
    let mut bare = Vec::new();
    for name in names {
        if name.to_uppercase() == name || covered.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let defines = |line: &str| {
            let rest = ["struct ", "enum ", "trait "].iter().find_map(|kind| {
                line.strip_prefix("pub ")?
                    .strip_prefix(kind)?
                    .strip_prefix(name.as_str())
            });
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        };
        let shown = all.iter().any(|source| {
            let lines: Vec<&str> = source.lines().collect();
            let at = lines.iter().position(|line| defines(line));
            at.is_some_and(|at| has_example(&lines, at))
        });
        if !shown {
            bare.push(name);
        }
    }
    bare
}

#[test]
fn what_is_exported_has_an_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut bare = without_example(&here.join("src"), &COVERED, 40);
    let http = here.join("../http/src");
    bare.extend(without_example(&http, &COVERED_OF_HTTP, 15));
    assert!(bare.is_empty(), "no example: {bare:?}");
}
