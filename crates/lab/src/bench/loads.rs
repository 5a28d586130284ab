//! A command for each kind of load: what the kind itself says on the command line, and what else is said of a run.

use std::ops::Deref;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use tidewire_load::workload::{KINDS, Kind, Options, Purpose};

/// Arguments beside those of the load.
pub(crate) trait Beside: clap::Args {
    /// What the load is for.
    const PURPOSE: Purpose;
}

/// A load, and what is said beside it.
#[derive(Clone, Debug)]
pub(crate) struct Loads<R> {
    pub(super) load: Arc<dyn Options>,
    pub(super) beside: R,
}

impl<R> Deref for Loads<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.beside
    }
}

fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

impl<R: Beside> Subcommand for Loads<R> {
    fn augment_subcommands(command: Command) -> Command {
        let add = |command: Command, kind: &Kind| {
            command.subcommand(R::augment_args(kind.command(R::PURPOSE)))
        };
        KINDS.iter().fold(command, add).subcommand_required(true)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        kind(name).is_some()
    }
}

impl<R: Beside> FromArgMatches for Loads<R> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Loads<R>, clap::Error> {
        let found = matches.subcommand();
        let Some((kind, matches)) = found.and_then(|(name, of)| Some((kind(name)?, of))) else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        Ok(Loads {
            load: kind.read(R::PURPOSE, matches)?,
            beside: R::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Loads::from_arg_matches(matches)?;
        Ok(())
    }
}
