//! Passwords and tokens: from files and the environment, where other users of the machine cannot
//! see them, never from the command line, where they can.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;

use crate::exit::Failure;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

impl Secret {
    /// Reads a secret from a file, without the end of its last line.
    pub(crate) fn from_file(path: &Path) -> Result<Secret, Failure> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|e| Failure::usage(format!("cannot read the secret in {shown}: {e}")))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() || line.contains('\n') {
            return Err(Failure::usage(format!(
                "the secret in {shown}: the file must hold one line that is not empty"
            )));
        }
        Ok(Secret(line.to_owned()))
    }

    /// Reads a secret from a variable of the environment, if the variable is set.
    pub(crate) fn from_environment(name: &str) -> Result<Option<Secret>, Failure> {
        match std::env::var(name) {
            Ok(text) if text.is_empty() => Err(Failure::usage(format!(
                "the variable {name} is empty: put the secret into it, or unset it"
            ))),
            Ok(text) => Ok(Some(Secret(text))),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("the variable {name} is not UTF-8")))
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// Whether users other than the owner may read this file.
pub(crate) fn is_exposed(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tidewire-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_file_holds_one_line() {
        for (text, secret) in [
            ("s3cret", Some("s3cret")),
            ("s3cret\n", Some("s3cret")),
            (" with blanks \r\n", Some(" with blanks ")),
            ("", None),
            ("\n", None),
            ("one\ntwo\n", None),
        ] {
            let path = file("secret", text);
            let read = Secret::from_file(&path).ok().map(Secret::into_text);
            assert_eq!(read.as_deref(), secret, "{text:?}");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn it_is_not_shown() {
        let secret = Secret("s3cret".into());
        assert!(!format!("{secret:?}").contains("s3"));
    }

    #[test]
    fn a_file_that_others_may_read_is_noticed() {
        let path = file("exposed", "x");
        for (mode, exposed) in [(0o600, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_exposed(&path), exposed, "{mode:o}");
        }
        fs::remove_file(path).unwrap();
    }
}
