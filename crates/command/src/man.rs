//! Pages for `man`, made from the commands themselves.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;

use crate::exit::Failure;

/// The directory for the pages.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The directory, made if need be
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
}

impl Man {
    /// Writes a page for each command below this one that `wanted` names, and for all commands
    /// below those. With `itself`, writes one for this command too. Returns the number of pages.
    pub fn write(
        &self,
        mut command: Command,
        itself: bool,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<usize, Failure> {
        let failed = |e: io::Error| {
            let to = self.to.display();
            Failure::failed(format!("cannot write the pages to {to}: {e}"))
        };
        std::fs::create_dir_all(&self.to).map_err(failed)?;
        command.build();
        let name = command.get_name();
        if itself {
            write_page(&command, name, &self.to).map_err(failed)?;
        }
        let mut written = usize::from(itself);
        for sub in below(&command).filter(|sub| wanted(sub.get_name())) {
            let name = format!("{name}-{}", sub.get_name());
            written += write(sub, &name, &self.to).map_err(failed)?;
        }
        Ok(written)
    }
}

fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
}

/// A page for the command, and one for each command below it.
fn write(command: &Command, name: &str, to: &Path) -> io::Result<usize> {
    write_page(command, name, to)?;
    let mut written = 1;
    for sub in below(command) {
        written += write(sub, &format!("{name}-{}", sub.get_name()), to)?;
    }
    Ok(written)
}

fn write_page(command: &Command, name: &str, to: &Path) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_owned())).render(&mut page)?;
    std::fs::write(to.join(format!("{name}.1")), page)
}
