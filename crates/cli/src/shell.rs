//! What shells and `man` are told of the commands, made from the commands themselves.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

use crate::exit::Failure;

/// Which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Where to.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The directory, made if need be
    #[arg(value_name = "DIR")]
    to: PathBuf,
}

impl Completions {
    /// Prints them.
    pub(crate) fn run(&self, mut command: Command) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "tidewire", &mut text);
        show!("{}", String::from_utf8_lossy(&text));
        Ok(())
    }
}

impl Man {
    /// Writes a page for each command.
    pub(crate) fn run(&self, mut command: Command) -> Result<(), Failure> {
        let failed = |e: io::Error| {
            let to = self.to.display();
            Failure::failed(format!("cannot write the pages to {to}: {e}"))
        };
        std::fs::create_dir_all(&self.to).map_err(failed)?;
        command.build();
        let written = write(&command, "tidewire", &self.to).map_err(failed)?;
        show_line!("{written} pages in {}", self.to.display());
        Ok(())
    }
}

/// One for the command, one for each below it. How many.
fn write(command: &Command, name: &str, to: &Path) -> io::Result<usize> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_owned())).render(&mut page)?;
    std::fs::write(to.join(format!("{name}.1")), page)?;
    let mut written = 1;
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        written += write(sub, &format!("{name}-{}", sub.get_name()), to)?;
    }
    Ok(written)
}
