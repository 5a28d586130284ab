//! `tidewire config`: the configuration file of `serve`, without a server.

use std::path::PathBuf;

use crate::exit::Failure;
use crate::serve;

/// The configuration file of serve.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Config {
    /// Prints a file with every setting of serve, all commented out
    Example,
    /// Says what is wrong with a file, each with its line: unknown names, with what was perhaps meant, and
    /// values; then whether a server could have these settings, for which it reads the files that they name
    Check {
        /// The file
        file: PathBuf,
    },
}

impl Config {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Config::Example => {
                show!("{}", serve::example());
                Ok(())
            }
            Config::Check { file } => check(&file),
        }
    }
}

fn check(path: &std::path::Path) -> Result<(), Failure> {
    let problems = serve::check(path)?;
    let shown = path.display();
    for problem in &problems {
        show_line!("{shown}:{}: {}", problem.line, problem.what);
    }
    match problems.len() {
        0 => {
            show_line!("{shown}: a server can have these settings");
            Ok(())
        }
        1 => Err(Failure::failed(format!("{shown}: 1 setting is wrong"))),
        n => Err(Failure::failed(format!("{shown}: {n} settings are wrong"))),
    }
}
