//! The texts of this program's help beside the flags; the mechanism is in `tidewire_command::help`.

mod brief;
mod examples;

pub(crate) use tidewire_command::help::Help;
use tidewire_command::help::{Texts, dressed};

use crate::commands::Cli;
use crate::lab;

const TEXTS: Texts = Texts {
    brief: brief::BRIEF,
    examples: examples::EXAMPLES,
};

/// This program's command, with all that its help shows.
pub(crate) fn command(help: Help) -> clap::Command {
    dressed(<Cli as clap::CommandFactory>::command(), help, TEXTS)
}

/// The command with the lab's commands, where the lab is found: for completions, which know every
/// flag.
pub(crate) fn with_lab() -> clap::Command {
    let mut command = command(Help::Long);
    let mut others = lab::commands();
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    // Each subcommand in its turn, because a changed subcommand becomes the last one.
    for name in names {
        let place = others.iter().position(|other| other.get_name() == name);
        let other = place.map(|place| others.swap_remove(place));
        command = command.mut_subcommand(name, |sub| other.unwrap_or(sub));
    }
    command
}

#[cfg(test)]
mod tests {
    use tidewire_command::help::check::Checked;

    use super::*;

    #[test]
    fn the_help_has_examples_statuses_and_every_flag_and_the_short_one_fits_on_a_screen() {
        let checked = Checked {
            command: <Cli as clap::CommandFactory>::command(),
            texts: TEXTS,
            elsewhere: &lab::COMMANDS,
        };
        checked.all();
    }
}
