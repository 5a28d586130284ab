//! Commands that are several: which ones, and how many arguments each takes.

use super::Error;

/// Subcommands in lower case, each with the number of its arguments, the command's and its own name
/// included; negative for at least that many.
pub(crate) type Subcommands = &'static [(&'static str, i16)];

/// Checks the subcommand of a call, and how many arguments it has; its name.
///
/// # Errors
/// The subcommand is unknown, or takes another number of arguments.
pub(crate) fn check(
    command: &str,
    known: Subcommands,
    args: &[&[u8]],
) -> Result<&'static str, Error> {
    let is_given = |name: &str| args[1].eq_ignore_ascii_case(name.as_bytes());
    let Some(&(name, arity)) = known.iter().find(|(name, _)| is_given(name)) else {
        return Err(unknown(command, args[1], ""));
    };
    let least = usize::from(arity.unsigned_abs());
    if args.len() == least || arity < 0 && args.len() > least {
        Ok(name)
    } else {
        Err(Error::arity(&format!("{command}|{name}")))
    }
}

/// A subcommand that is not known, or as `or` says.
pub(crate) fn unknown(command: &str, given: &[u8], or: &str) -> Error {
    let help = format!("'. Try {} HELP.", command.to_ascii_uppercase());
    let before = format!("ERR unknown subcommand{or} '");
    Error::quoting(&before, &given[..given.len().min(128)], &help)
}
