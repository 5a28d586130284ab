//! What all commands have in common and their help shows: examples, the table of exit statuses, and a short help (`-h`)
//! that fits on a screen, where `--help` has everything.

mod brief;
mod examples;

use clap::Command;
use clap::builder::{IntoResettable, Resettable};

use self::brief::BRIEF;
use self::examples::EXAMPLES;
use crate::exit;

/// Which help is asked for, if one is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Help {
    /// `-h`.
    Short,
    /// `--help`, and what else is made of it: pages of man, completions.
    Long,
}

impl Help {
    /// As the arguments of the process ask. If it is not help that they ask for, it does not matter which.
    pub(crate) fn asked() -> Help {
        match std::env::args_os().any(|arg| arg == "-h") {
            true => Help::Short,
            false => Help::Long,
        }
    }
}

/// The command with examples, statuses and a short help.
pub(crate) fn dressed(command: Command, help: Help) -> Command {
    dress(command, "", help)
}

fn dress(mut command: Command, words: &str, help: Help) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let below = format!("{words} {name}");
        command = command.mut_subcommand(&name, |sub| dress(sub, below.trim(), help));
    }
    let notes = command.get_after_help().map(ToString::to_string);
    let mut long = notes.unwrap_or_default();
    // Also one that does something of its own where no command below it is named.
    if !command.has_subcommands() || command.is_subcommand_negates_reqs_set() {
        // What is wrong with -1 says what it is for, and not that no flag is called so.
        command = command.mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        });
        command = shortened(command, words, help);
    }
    let examples = EXAMPLES.iter().find(|(of, _)| *of == words);
    if let Some((_, examples)) = examples
        && !long.starts_with("Examples:")
    {
        let examples = format!("Examples:\n  {}", examples.join("\n  "));
        long = match long.is_empty() {
            true => examples,
            false => format!("{examples}\n\n{long}"),
        };
    }
    // Those that have commands below them say in their last lines where more is.
    let more = match command.has_subcommands() {
        true => Resettable::Reset,
        false => format!("`tidewire {words} --help` has all, with examples.").into_resettable(),
    };
    command
        .after_help(more)
        .after_long_help(format!("{long}\n\n{}", exit::TABLE))
}

/// With few flags in the short help, each on a line and without headings.
fn shortened(mut command: Command, words: &str, help: Help) -> Command {
    let is_for = |of: &str| {
        words == of
            || words
                .strip_prefix(of)
                .is_some_and(|rest| rest.starts_with(' '))
    };
    let shown: Vec<_> = BRIEF.iter().filter(|(of, _)| is_for(of)).collect();
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
            // What is changed for the short help alone must not be seen in the other.
            Some(_) if help == Help::Long => arg,
            Some((_, is)) => {
                let (says_default, takes) =
                    (is.contains("[default: "), arg.get_action().takes_values());
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn each(command: &Command, words: &str, look: &mut dyn FnMut(&str, &Command)) {
        look(words, command);
        for sub in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            each(sub, format!("{words} {}", sub.get_name()).trim(), look);
        }
    }

    fn command(help: Help, width: usize) -> Command {
        let mut command = dressed(Cli::command(), help).term_width(width);
        command.build();
        command
    }

    #[test]
    fn every_command_has_examples_and_the_statuses() {
        let mut seen = Vec::new();
        each(&command(Help::Long, 100), "", &mut |words, command| {
            seen.push(words.to_owned());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:\n  "), "{words}: {help}");
            assert!(help.contains("Exit status, of all commands:"), "{words}");
        });
        let stale = EXAMPLES
            .iter()
            .find(|(words, _)| !seen.iter().any(|known| known == words));
        assert!(stale.is_none(), "{stale:?}");
    }

    /// What a command says of its own statuses does not speak of one that the table does not have.
    #[test]
    fn no_help_speaks_of_a_status_that_is_not_in_the_table() {
        each(&command(Help::Long, 1_000), "", &mut |words, command| {
            let help = command.clone().render_long_help().to_string();
            for own in help.lines().filter(|line| line.contains("Exit status: ")) {
                let own = own.split("Exit status: ").nth(1).unwrap();
                let mut said = own.split([' ', ';', ',', '.']);
                let is_unknown = |word: &str| {
                    word.parse::<u8>()
                        .is_ok_and(|n| !crate::exit::TABLE.contains(&format!("\n  {n}  ")))
                };
                let unknown = said.find(|word| is_unknown(word));
                assert!(unknown.is_none(), "{words}: {unknown:?} in {own}");
            }
        });
    }

    #[test]
    fn every_example_is_one() {
        for (words, examples) in EXAMPLES {
            for example in *examples {
                let own = example
                    .split(" | ")
                    .find(|part| part.starts_with("tidewire"));
                let own = own.unwrap_or_else(|| panic!("{example}"));
                let own = own.split(" > ").next().unwrap();
                let args = own.split_whitespace().map(|word| word.trim_matches('\''));
                // Hosts of examples are nobody's, and are not looked up.
                let args = args.map(|word| word.replace("db.example", "127.0.0.1"));
                let parsed = command(Help::Long, 100).try_get_matches_from(args);
                let shown = parsed.as_ref().err().filter(|e| e.use_stderr());
                assert!(shown.is_none(), "{example}: {}", shown.unwrap());
                assert!(own.contains(words), "{example} in {words:?}");
            }
        }
    }

    #[test]
    fn the_short_help_fits_on_a_screen() {
        each(&command(Help::Short, 80), "", &mut |words, command| {
            let help = command.clone().render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= 24, "{words}: {lines} lines\n{help}");
            // Each flag on a line: two stand in front of those that go on.
            let wraps = help.lines().skip_while(|line| *line != "Options:");
            let wrapped = wraps.clone().find(|line| line.starts_with("         "));
            let is_brief = BRIEF.iter().any(|(of, _)| *of == words);
            assert!(!is_brief || wrapped.is_none(), "{words}: {wrapped:?}");
        });
    }

    #[test]
    fn what_is_said_in_brief_is_of_flags_that_are_there() {
        let all = command(Help::Long, 80);
        for (of, flags) in BRIEF {
            for (flag, _) in *flags {
                let mut found = false;
                each(&all, "", &mut |words, command| {
                    found |= words.starts_with(of)
                        && command
                            .get_arguments()
                            .any(|arg| arg.get_long().unwrap_or(arg.get_id().as_str()) == *flag);
                });
                assert!(found, "{of}: {flag}");
            }
        }
    }

    #[test]
    fn the_long_help_has_every_flag() {
        each(&command(Help::Long, 100), "", &mut |words, command| {
            let help = command.clone().render_long_help().to_string();
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                if let Some(long) = arg.get_long() {
                    assert!(help.contains(&format!("--{long}")), "{words}: {long}");
                }
            }
        });
    }
}
