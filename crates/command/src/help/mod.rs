//! What all commands have in common and their help shows: examples, the table of exit statuses, and a short help (`-h`)
//! that fits on a screen, where `--help` has everything.

pub mod check;

use clap::Command;
use clap::builder::{IntoResettable, Resettable};

use crate::exit;

/// The kind of help that was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Help {
    /// `-h`.
    Short,
    /// `--help`, and everything else that is made of it: man pages, completions.
    Long,
}

impl Help {
    /// The help that the process's arguments ask for. If they ask for none, any value will do.
    pub fn asked() -> Help {
        match std::env::args_os().any(|arg| arg == "-h") {
            true => Help::Short,
            false => Help::Long,
        }
    }
}

/// Texts of a program about its commands, beside the texts of their flags. A command is named by its words:
/// `bench ab echo`.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    /// The short help of a command and of its subcommands: flags and arguments in the order of the
    /// help, each with a few words. If several entries name a flag, the later one counts.
    pub brief: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// How each command is used, for the end of its `--help`.
    pub examples: &'static [(&'static str, &'static [&'static str])],
}

/// The command with examples, statuses and a short help.
pub fn dressed(command: Command, help: Help, texts: Texts) -> Command {
    dress(command, "", help, texts)
}

fn dress(mut command: Command, words: &str, help: Help, texts: Texts) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let below = format!("{words} {name}");
        command = command.mut_subcommand(&name, |sub| dress(sub, below.trim(), help, texts));
    }
    let notes = command.get_after_help().map(ToString::to_string);
    let mut long = notes.unwrap_or_default();
    // A command with subcommands counts too, if it does something of its own without one.
    if !command.has_subcommands() || command.is_subcommand_negates_reqs_set() {
        // The error about -1 says what the value is for, and not that no such flag exists.
        command = command.mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        });
        command = shortened(command, words, help, texts);
    }
    let examples = texts.examples.iter().find(|(of, _)| *of == words);
    if let Some((_, examples)) = examples
        && !long.starts_with("Examples:")
    {
        let examples = format!("Examples:\n  {}", examples.join("\n  "));
        long = match long.is_empty() {
            true => examples,
            false => format!("{examples}\n\n{long}"),
        };
    }
    // Commands with subcommands say in their last lines where more is.
    let more = match command.has_subcommands() {
        true => Resettable::Reset,
        false => format!("`tidewire {words} --help` has all, with examples.").into_resettable(),
    };
    command
        .after_help(more)
        .after_long_help(format!("{long}\n\n{}", exit::TABLE))
}

/// With few flags in the short help, each on a line and without headings.
fn shortened(mut command: Command, words: &str, help: Help, texts: Texts) -> Command {
    let is_for = |of: &str| {
        words == of
            || words
                .strip_prefix(of)
                .is_some_and(|rest| rest.starts_with(' '))
    };
    let shown: Vec<_> = texts.brief.iter().filter(|(of, _)| is_for(of)).collect();
    if shown.is_empty() {
        return command;
    }
    if help == Help::Short
        && let Some(about) = command.get_about().map(ToString::to_string)
    {
        command = command.about(first_sentence(&about).to_owned());
    }
    command.mut_args(|arg| {
        let name = arg.get_long().unwrap_or(arg.get_id().as_str());
        let flags = shown.iter().rev().flat_map(|(_, flags)| *flags);
        match flags.clone().find(|(flag, _)| *flag == name) {
            None => {
                // Pages of man have nothing to say of what has a short help only, and hides it.
                let help = arg.get_long_help().or_else(|| arg.get_help());
                let help = help.cloned().unwrap_or_default();
                arg.long_help(help).hide_short_help(true)
            }
            // Changes for the short help must not be seen in the long one.
            Some(_) if help == Help::Long => arg,
            Some((_, is)) => {
                let says_default = is.contains("[default: ") || arg.is_hide_default_value_set();
                let takes = arg.get_action().takes_values();
                arg.help(*is)
                    .help_heading(None)
                    .hide_default_value(takes && says_default)
                    .hide_possible_values(takes)
            }
        }
    })
}

/// Up to a full stop or a semicolon.
fn first_sentence(text: &str) -> &str {
    let ends = [". ", "; ", ": "].iter().filter_map(|end| text.find(end));
    &text[..ends.min().unwrap_or(text.len())]
}
