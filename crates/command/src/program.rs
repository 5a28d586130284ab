//! The beginning and the end of a program: what was asked for, and the status with which it ends.

use std::process::ExitCode;

use clap::{Command, FromArgMatches};

use crate::exit::{self, Failure};

/// Reads the arguments of the process.
///
/// # Errors
/// The status with which the program ends at once: help or a version was asked for, or the arguments are wrong. What there
/// is to say was printed.
pub fn asked<C: FromArgMatches>(command: Command) -> Result<C, ExitCode> {
    let parsed = command
        .try_get_matches()
        .and_then(|matches| C::from_arg_matches(&matches));
    parsed.map_err(|e| {
        // Help and version come this way too; what cannot be printed has nowhere to go.
        let _ = e.print();
        match e.use_stderr() {
            true => exit::USAGE.into(),
            false => ExitCode::SUCCESS,
        }
    })
}

/// The status of a program that is done. A failure is printed on stderr.
pub fn ended(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, message }) => {
            say!("tidewire: {message}");
            status.into()
        }
    }
}
