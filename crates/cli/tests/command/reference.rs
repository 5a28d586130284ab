//! The pages of docs/reference that are made from the program say what it says. `docs/reference/make` writes them anew.

use std::process::Stdio;

use crate::common::{Running, stdout, tidewire};

/// The lab is a program of its own, and `help` is in every list.
const ELSEWHERE: [&str; 3] = ["bench", "lab", "help"];

/// What the program prints on a terminal of 80 columns.
fn said(words: &[&str]) -> String {
    let mut command = tidewire(words);
    command.env("COLUMNS", "80");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = Running::from(child.spawn().unwrap()).end();
    assert!(output.status.success(), "{words:?}: {output:?}");
    stdout(&output)
}

/// A page without the text before its first heading of the second order.
fn body(page: &str) -> &str {
    page.find("\n## ").map_or("", |at| &page[at..])
}

fn heading(name: &str) -> String {
    format!("\n## {name}\n\n| setting | meaning |\n|---|---|\n")
}

#[test]
fn the_page_of_settings_is_the_programs() {
    let mut page = heading("server");
    let mut help: Vec<&str> = Vec::new();
    let mut rows = 0;
    let example = said(&["config", "example"]);
    for line in example.lines() {
        if let Some(section) = line.strip_prefix("# ---- ") {
            let name = section.trim_end_matches(" ----");
            if name == "In this file alone" {
                break;
            }
            page.push_str(&heading(name));
        } else if let Some(text) = line.strip_prefix("# ") {
            help.push(text);
        } else if let Some((setting, _)) = line.split_once(" = ") {
            let meaning = help.join(" ").replace('|', "\\|");
            let name = &setting[1..];
            page.push_str(&format!("| `{name}` | {meaning} |\n"));
            rows += 1;
        } else {
            help.clear();
        }
    }
    assert!(rows > 100, "only {rows} settings were found");
    let written = include_str!("../../../../docs/reference/settings.md");
    assert_eq!(
        body(written),
        page,
        "run docs/reference/make target/debug/tidewire"
    );
}

/// Writes what `-h` prints of a command, and of each command below it.
fn describe(words: &[&str], page: &mut String) {
    let short = said(&[words, &["-h"]].concat());
    let name = [&["tidewire"][..], words].concat().join(" ");
    let text = short.trim_end();
    page.push_str(&format!("\n## {name}\n\n```text\n{text}\n```\n"));
    let listed = short
        .split_once("\nCommands:\n")
        .map_or("", |(_, rest)| rest);
    for line in listed.lines().take_while(|line| !line.is_empty()) {
        // A second line of a command's description stands further in.
        let command = line
            .strip_prefix("  ")
            .filter(|line| !line.starts_with(' '));
        let name = command.and_then(|line| line.split_whitespace().next());
        if let Some(name) = name.filter(|name| !ELSEWHERE.contains(name)) {
            describe(&[words, &[name]].concat(), page);
        }
    }
}

#[test]
fn the_page_of_commands_is_what_the_program_prints() {
    let mut page = String::new();
    describe(&[], &mut page);
    let written = include_str!("../../../../docs/reference/commands.md");
    assert_eq!(
        body(written),
        page,
        "run docs/reference/make target/debug/tidewire"
    );
}
