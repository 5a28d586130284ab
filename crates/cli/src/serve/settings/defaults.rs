//! Defaults in help. They have one place in the code: help says what the parser takes where nothing is said.

use std::fmt;
use std::time::Duration;

use clap::Command;

use crate::span::Span;

/// Help that ends with a default which is no value that could be given.
pub(crate) fn with_default(what: &str, default: impl fmt::Display) -> String {
    format!("{what} [default: {default}]")
}

/// Says of a flag of the frame what a product takes, behind the default of others if there is one.
pub(crate) fn also(command: Command, flag: &'static str, default: &str) -> Command {
    // In place, because the order of the flags is that of the file.
    command.mut_args(|arg| {
        if arg.get_id() != flag {
            return arg;
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        match help.strip_suffix(']') {
            Some(help) => arg.help(format!("{help}; {default}]")),
            None => arg.help(with_default(&help, default)),
        }
    })
}

/// Seconds as a plain number, other times with their unit.
pub(crate) fn secs(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => time.as_secs().to_string(),
        _ => Span(time).to_string(),
    }
}

/// A command whose help says what the defaults are.
pub(crate) fn told(command: Command) -> Command {
    command.mut_args(|arg| {
        let values = arg.get_default_values().iter();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        if values.is_empty() || !arg.get_action().takes_values() {
            return arg;
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = with_default(&help, values.join(","));
        arg.help(help).hide_default_value(true)
    })
}

/// Settings of which nothing is said, for tests.
#[cfg(test)]
pub(crate) fn of<A: clap::Args>() -> A {
    let command = A::augment_args(Command::new("serve"));
    A::from_arg_matches(&command.get_matches_from(["serve"])).expect("nothing is needed")
}
