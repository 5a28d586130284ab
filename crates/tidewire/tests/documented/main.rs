//! What users can reach shows how it is used: each public type, function and method of these crates is named in an
//! example that `cargo test` runs. Methods on the page of their type or trait; a type that goes with
//! another one may be shown there.

mod examples;
mod items;

use std::path::Path;

use items::{Kind, Public};

/// Types of `tidewire-http` without an example: a program can only hand one on.
const OPAQUE: [(&str, &str); 4] = [
    ("http: HttpConn", "the connection of `Http`"),
    ("http: HttpLocal", "the state of `Http` on a loop"),
    ("http: Message", "what `Later` posts"),
    (
        "http: Malformed",
        "the error of `testing::replies`, for `unwrap`",
    ),
];

/// What has none, named like `Type::method`.
fn bare(of: &str, at_least: usize) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let found = items::of_crate(&crates.join(of).join("src"));
    let all = &found.items;
    assert!(all.len() > at_least, "only {} of {of}", all.len());
    let everywhere = examples::runnable(&found.everything);
    let shown = |item: &Public| {
        let code = examples::runnable(&item.page);
        let has_its_own = item.kind == Kind::Type && !code.is_empty();
        has_its_own
            || match item.kind {
                Kind::Type | Kind::Function => examples::names(&everywhere, item),
                Kind::Associated | Kind::Method => examples::names(&code, item),
            }
    };
    let bare = all.iter().filter(|item| !shown(item));
    bare.map(|item| match item.kind {
        Kind::Type | Kind::Function => format!("{of}: {}", item.name),
        Kind::Associated | Kind::Method => format!("{of}: {}::{}", item.of, item.name),
    })
    .collect()
}

#[test]
fn what_is_public_has_an_example_that_runs() {
    let crates = [("tidewire", 400), ("tls", 30), ("async", 8), ("pool", 18)];
    let all = crates.iter().flat_map(|(of, at_least)| bare(of, *at_least));
    let bare: Vec<_> = all.collect();
    assert!(bare.is_empty(), "no example names {bare:#?}");
}

/// Enums that users are to match on whole, because a variant more is another contract.
const WHOLE: [(&str, &str); 6] = [
    ("Next", "what `received` may say"),
    ("Origin", "accepted or dialled"),
    ("Delimited", "a frame, or how much is missing"),
    (
        "Outcome",
        "how a run of a simulation ended, each an answer that a test must give",
    ),
    ("PlainState", "a stream's states"),
    ("Shape", "one for each kind of driver"),
];

#[test]
fn enums_that_will_grow_say_so() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let all = ["tidewire", "tls", "async", "pool"]
        .iter()
        .flat_map(|of| items::of_crate(&crates.join(of).join("src")).closed_enums);
    let (known, rest): (Vec<_>, Vec<_>) =
        all.partition(|name| WHOLE.iter().any(|(known, _)| known == name));
    assert!(
        rest.is_empty(),
        "`#[non_exhaustive]`, or a reason: {rest:?}"
    );
    assert_eq!(known.len(), WHOLE.len(), "{known:?}");
}

/// The types of the other crates for users have examples, too.
#[test]
fn types_of_http_have_examples() {
    let bare = bare("http", 80);
    let types = bare.iter().filter(|name| !name.contains("::"));
    let known = |name: &&String| OPAQUE.iter().any(|(known, _)| known == *name);
    let (known, bare): (Vec<_>, Vec<_>) = types.partition(known);
    assert!(bare.is_empty(), "no example names {bare:#?}");
    assert_eq!(known.len(), OPAQUE.len(), "one of them has an example now");
}
