//! The commands of a program as JSON, for another program that completes them in a shell.
//!
//! `tidewire completions` completes `tidewire bench` as well, which is another program: it asks `tidewire-lab` for its
//! commands in this form. The form contains only what generators of completions read.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command with its arguments and the commands below it.
#[derive(Debug, Deserialize, Serialize)]
pub struct Tree {
    name: String,
    about: Option<String>,
    /// Whether `--help` has more than `-h`.
    has_more: bool,
    no_help_command: bool,
    arguments: Vec<Argument>,
    below: Vec<Tree>,
}

/// A flag, or a place.
#[derive(Debug, Deserialize, Serialize)]
struct Argument {
    id: String,
    long: Option<String>,
    short: Option<char>,
    aliases: Vec<String>,
    help: Option<String>,
    kind: Kind,
    hidden: bool,
    required: bool,
    value_names: Vec<String>,
    /// Fewest and most values of one use.
    values: Option<(usize, usize)>,
    possible: Vec<(String, Option<String>)>,
    is_path: bool,
    conflicts: Vec<String>,
}

/// The effect of an argument.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
enum Kind {
    /// Gives it a value.
    Value,
    /// Gives it one more value.
    OneMore,
    /// Is all there is to say.
    Flag,
    /// Is counted.
    Counted,
}

impl From<&Command> for Tree {
    /// Takes a command before [`Command::build`] has added help to it.
    fn from(command: &Command) -> Tree {
        Tree {
            name: command.get_name().to_owned(),
            about: command.get_about().map(ToString::to_string),
            has_more: command.get_after_long_help().is_some(),
            no_help_command: command.is_disable_help_subcommand_set(),
            arguments: command
                .get_arguments()
                .map(|arg| Argument::of(command, arg))
                .collect(),
            below: command.get_subcommands().map(Tree::from).collect(),
        }
    }
}

impl From<Tree> for Command {
    fn from(tree: Tree) -> Command {
        let command = Command::new(tree.name)
            .disable_help_subcommand(tree.no_help_command)
            .args(tree.arguments.into_iter().map(Arg::from))
            .subcommands(tree.below.into_iter().map(Command::from));
        let command = match tree.about {
            Some(about) => command.about(about),
            None => command,
        };
        match tree.has_more {
            true => command.after_long_help(" "),
            false => command,
        }
    }
}

impl Argument {
    fn of(command: &Command, arg: &Arg) -> Argument {
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        let names = arg.get_value_names().unwrap_or_default();
        let conflicts = command.get_arg_conflicts_with(arg);
        Argument {
            id: arg.get_id().to_string(),
            long: arg.get_long().map(str::to_owned),
            short: arg.get_short(),
            aliases: aliases.into_iter().map(str::to_owned).collect(),
            help: arg.get_help().map(ToString::to_string),
            kind: match arg.get_action() {
                ArgAction::Append => Kind::OneMore,
                ArgAction::Count => Kind::Counted,
                action if action.takes_values() => Kind::Value,
                _ => Kind::Flag,
            },
            hidden: arg.is_hide_set(),
            required: arg.is_required_set(),
            value_names: names.iter().map(ToString::to_string).collect(),
            values: arg
                .get_num_args()
                .map(|range| (range.min_values(), range.max_values())),
            possible: arg
                .get_possible_values()
                .iter()
                .filter(|value| !value.is_hide_set())
                .map(|value| {
                    let help = value.get_help().map(ToString::to_string);
                    (value.get_name().to_owned(), help)
                })
                .collect(),
            is_path: matches!(
                arg.get_value_hint(),
                ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
            ),
            conflicts: conflicts
                .iter()
                .map(|other| other.get_id().to_string())
                .collect(),
        }
    }
}

impl From<Argument> for Arg {
    fn from(argument: Argument) -> Arg {
        let takes_values = matches!(argument.kind, Kind::Value | Kind::OneMore);
        let mut arg = Arg::new(argument.id)
            .action(match argument.kind {
                Kind::Value => ArgAction::Set,
                Kind::OneMore => ArgAction::Append,
                Kind::Flag => ArgAction::SetTrue,
                Kind::Counted => ArgAction::Count,
            })
            .hide(argument.hidden)
            .required(argument.required)
            .visible_aliases(argument.aliases)
            .conflicts_with_all(argument.conflicts);
        if let Some(long) = argument.long {
            arg = arg.long(long);
        }
        if let Some(short) = argument.short {
            arg = arg.short(short);
        }
        if let Some(help) = argument.help {
            arg = arg.help(help);
        }
        if !takes_values {
            return arg;
        }
        if !argument.value_names.is_empty() {
            arg = arg.value_names(argument.value_names);
        }
        if let Some((fewest, most)) = argument.values {
            arg = arg.num_args(fewest..=most);
        }
        if argument.is_path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        if argument.possible.is_empty() {
            return arg;
        }
        let possible = argument.possible.into_iter().map(|(name, help)| {
            let value = PossibleValue::new(name);
            match help {
                Some(help) => value.help(help),
                None => value,
            }
        });
        arg.value_parser(possible.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_its_description() {
        let one = Command::new("run")
            .about("Runs it")
            .arg(Arg::new("rate").long("rate").value_name("N").help("A rate"))
            .arg(
                Arg::new("kind")
                    .short('k')
                    .long("kind")
                    .visible_alias("sort")
                    .conflicts_with("rate")
                    .value_parser(["a", "b"]),
            )
            .arg(Arg::new("all").long("all").action(ArgAction::SetTrue));
        let whole = Command::new("lab").subcommand(one);
        let described = serde_json::to_string(&Tree::from(&whole)).unwrap();
        let again: Tree = serde_json::from_str(&described).unwrap();
        let mut again = Command::from(again);
        assert_eq!(
            serde_json::to_string(&Tree::from(&again)).unwrap(),
            described
        );
        assert!(
            again
                .try_get_matches_from_mut(["lab", "run", "-k", "a"])
                .is_ok()
        );
        assert!(
            again
                .try_get_matches_from_mut(["lab", "run", "-k", "c"])
                .is_err()
        );
        let both = ["lab", "run", "-k", "a", "--rate", "1"];
        assert!(again.try_get_matches_from_mut(both).is_err());
    }
}
