//! The commands of `tidewire-lab`.

use clap::{Parser, Subcommand};
use tidewire_command::man::Man;
use tidewire_command::version;

use crate::{bench, lab};

/// Loads servers, measures them, and says what may be believed.
#[derive(Debug, Parser)]
#[command(name = "tidewire", bin_name = "tidewire", version = version::short(), long_version = version::long(), max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Loads a server and measures it, or compares two.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Runs a matrix of workloads and servers, and compares them.
    Lab(lab::Args),
    /// Describes these commands as JSON, for completions.
    #[command(hide = true)]
    Commands,
    /// Writes pages for man, one for each command.
    #[command(hide = true)]
    Man(Man),
}
