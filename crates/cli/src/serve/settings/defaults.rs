//! Defaults in the help. A default has one place in the code: the help shows the value that the parser uses
//! if a flag is absent.

use std::fmt;
use std::time::Duration;

use clap::Command;

use crate::span::Span;

/// Help that ends with a default which is no value that could be given.
pub(crate) fn with_default(what: &str, default: impl fmt::Display) -> String {
    format!("{what} [default: {default}]")
}

/// Seconds as a plain number, other times with their unit.
pub(crate) fn secs(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => time.as_secs().to_string(),
        _ => Span(time).to_string(),
    }
}

/// A command whose help says what the defaults are; of some flags, by their ids, there is more to say. In one pass, because each
/// takes megabytes.
pub(crate) fn told(command: Command, more: &[(&str, String)]) -> Command {
    command.mut_args(|arg| {
        let values = arg.get_default_values().iter();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let more = more.iter().filter(|(id, _)| arg.get_id() == id);
        let more: Vec<&str> = more.map(|(_, more)| &**more).collect();
        let has_default = !values.is_empty() && arg.get_action().takes_values();
        if !has_default && more.is_empty() {
            return arg;
        }
        let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        if has_default {
            help = with_default(&help, values.join(","));
        }
        for more in more {
            help = match help.strip_suffix(']') {
                Some(help) => format!("{help}; {more}]"),
                None => with_default(&help, more),
            };
        }
        arg.help(help).hide_default_value(true)
    })
}

/// The default settings, for tests.
#[cfg(test)]
pub(crate) fn of<A: clap::Args>() -> A {
    let command = A::augment_args(Command::new("serve"));
    A::from_arg_matches(&command.get_matches_from(["serve"])).expect("nothing is needed")
}
