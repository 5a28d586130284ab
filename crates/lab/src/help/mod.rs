//! What the help of this program says beside the flags; the mechanism is in `tidewire_command::help`.

mod brief;
mod examples;

pub(crate) use tidewire_command::help::Help;
use tidewire_command::help::{Texts, dressed};

const TEXTS: Texts = Texts {
    brief: brief::BRIEF,
    examples: examples::EXAMPLES,
};

/// This program's command, with all that its help shows.
pub(crate) fn shown(command: clap::Command, help: Help) -> clap::Command {
    dressed(command, help, TEXTS)
}

#[cfg(test)]
mod tests {
    use tidewire_command::help::check::Checked;

    use super::*;
    use crate::Cli;

    #[test]
    fn the_help_has_examples_statuses_and_every_flag_and_the_short_one_fits_on_a_screen() {
        let checked = Checked {
            command: <Cli as clap::CommandFactory>::command(),
            texts: TEXTS,
            elsewhere: &[],
        };
        checked.all();
    }
}
