//! Prints the circles of files in a crate: `cargo run -p tidewire-testkit --example knots -- kv`.

use std::path::Path;
use std::{env, process};

use tidewire_testkit::imports::Imports;

fn main() {
    let Some(name) = env::args().nth(1) else {
        eprintln!("usage: knots CRATE");
        process::exit(2);
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(&name)
        .join("src");
    let imports = Imports::of(&sources);
    for knot in imports.knots() {
        println!("{} files: {}", knot.len(), knot.join(", "));
    }
    for arrow in imports.arrows_on_circles() {
        println!("{arrow}");
    }
}
