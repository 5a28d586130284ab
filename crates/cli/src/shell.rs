//! Completions for shells and pages for `man`, made from the commands themselves.

use clap_complete::Shell;
pub(crate) use tidewire_command::man::Man;

use crate::exit::Failure;
use crate::lab;

/// Which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the completions of this command.
    pub(crate) fn run(&self, mut command: clap::Command) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command, "tidewire", &mut text);
        show!("{}", String::from_utf8_lossy(&text));
        Ok(())
    }
}

/// Writes a page for each part of `command`, including the lab's, where the lab is found.
pub(crate) fn man(asked: &Man, command: clap::Command) -> Result<(), Failure> {
    let own = |name: &str| !lab::COMMANDS.contains(&name);
    let written = asked.write(command, true, own)?;
    let written = written + lab::pages(&asked.to)?;
    show_line!("{written} pages in {}", asked.to.display());
    Ok(())
}
