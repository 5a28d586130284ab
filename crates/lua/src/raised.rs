//! The error of a command that a script has called, on its way through Lua, and the texts of errors.

use mlua::Error;

/// The error of a command, to be raised.
#[derive(Debug)]
pub(crate) struct Raised(pub(crate) Vec<u8>);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Raised {}

/// The error reply of a command, if the error is one.
pub(crate) fn raised(error: &Error) -> Option<&[u8]> {
    match error {
        Error::CallbackError { cause, .. } => raised(cause),
        error => error.downcast_ref::<Raised>().map(|raised| &raised.0[..]),
    }
}

/// The text of an error, which may be any bytes.
pub(crate) fn plain(error: &Error) -> Vec<u8> {
    match raised(error) {
        Some(text) => text.to_vec(),
        None => message(error).into_bytes(),
    }
}

/// The text of an error, without what mlua tells of the way it took.
pub(crate) fn message(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. }
        | Error::RuntimeError(message)
        | Error::MemoryError(message) => {
            let first = message.split("\nstack traceback:").next();
            first.unwrap_or_default().to_owned()
        }
        Error::CallbackError { cause, .. } => message(cause),
        other => other.to_string(),
    }
}
