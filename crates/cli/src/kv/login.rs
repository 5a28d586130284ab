//! How the command logs in to a running server: the user and the password.

use std::path::PathBuf;

use crate::exit::Failure;
use crate::secret::Secret;

/// The credentials that are sent to a server before any command.
#[derive(Debug, clap::Args)]
pub(super) struct Login {
    /// The user of the running server to be, as ACL knows it; with --password-file [default: default]
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file whose one line is the password of the running server, or of --user
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl Login {
    /// The command that logs in, if a password is given.
    pub(super) fn command(&self) -> Result<Option<Vec<String>>, Failure> {
        let Some(file) = &self.password_file else {
            return Ok(None);
        };
        let mut command = vec!["AUTH".to_owned()];
        // Without a name servers that know no users take it, too.
        command.extend(self.user.clone());
        command.push(Secret::from_file(file)?.into_text());
        Ok(Some(command))
    }
}
