//! What the help of this program says beside the flags; the mechanism is in `tidewire_command::help`.

mod brief;
mod examples;

pub(crate) use tidewire_command::help::Help;
use tidewire_command::help::{Texts, dressed};
use tidewire_load::workload::{KINDS, Purpose};

/// The texts of this program, and of each kind of load.
fn texts() -> Texts {
    let (mut brief, mut examples) = (brief::BRIEF.to_vec(), examples::EXAMPLES.to_vec());
    for kind in KINDS {
        for (purpose, above) in [(Purpose::Once, "bench"), (Purpose::Again, "bench ab")] {
            // Once for the process, which ends with its help.
            let name: &'static str = format!("{above} {}", kind.name).leak();
            examples.push((name, kind.examples(purpose)));
            brief.push((name, kind.brief));
        }
    }
    Texts {
        brief: brief.leak(),
        examples: examples.leak(),
    }
}

/// This program's command, with all that its help shows.
pub(crate) fn shown(command: clap::Command, help: Help) -> clap::Command {
    dressed(command, help, texts())
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
            texts: texts(),
            elsewhere: &[],
        };
        checked.all();
    }
}
