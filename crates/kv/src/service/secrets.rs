//! Which arguments of a call are secrets: SLOWLOG and MONITOR show `(redacted)` in their place.

use super::table::Entry;

/// The text that is shown in place of a secret.
pub(super) const REDACTED: &[u8] = b"(redacted)";

/// Settings whose values are secrets.
const SETTINGS: [&str; 5] = [
    "requirepass",
    "masterauth",
    "masteruser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
];

/// The arguments without secrets, for other clients. A word that brings a secret is heeded wherever it stands: the call
/// may be wrong, and the secret right.
pub(super) fn shown<'a>(entry: &Entry, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut shown = args.to_vec();
    let is = |arg: &[u8], word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
    // How many arguments behind each one are secret.
    let behind = |at: usize| -> usize {
        let arg = args[at];
        match (entry.name, at) {
            ("auth", 0) => args.len(),
            ("hello", 1..) if is(arg, "auth") => 2,
            ("migrate", 1..) if is(arg, "auth") => 1,
            ("migrate", 1..) if is(arg, "auth2") => 2,
            ("acl", 1) if is(arg, "setuser") || is(arg, "deluser") => args.len(),
            ("config", 1..) if SETTINGS.iter().any(|setting| is(arg, setting)) => 1,
            _ => 0,
        }
    };
    for at in 0..args.len() {
        for secret in shown.iter_mut().skip(at + 1).take(behind(at)) {
            *secret = REDACTED;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::table::table;

    #[test]
    fn no_secret_is_shown() {
        for (call, expected) in [
            ("AUTH s3cret", "AUTH (redacted)"),
            ("auth user s3cret", "auth (redacted) (redacted)"),
            (
                "HELLO 3 AUTH user s3cret SETNAME me",
                "HELLO 3 AUTH (redacted) (redacted) SETNAME me",
            ),
            ("HELLO AUTH user s3cret", "HELLO AUTH (redacted) (redacted)"),
            (
                "ACL SETUSER user on >s3cret",
                "ACL SETUSER (redacted) (redacted) (redacted)",
            ),
            ("ACL LIST", "ACL LIST"),
            (
                "CONFIG SET timeout 5 masterauth s3cret hz 10",
                "CONFIG SET timeout 5 masterauth (redacted) hz 10",
            ),
            (
                "CONFIG SET 5 RequirePass s3cret",
                "CONFIG SET 5 RequirePass (redacted)",
            ),
            (
                "MIGRATE host 6379 key 0 100 COPY AUTH s3cret",
                "MIGRATE host 6379 key 0 100 COPY AUTH (redacted)",
            ),
            (
                "MIGRATE host 6379 key 0 100 auth2 user s3cret KEYS a",
                "MIGRATE host 6379 key 0 100 auth2 (redacted) (redacted) KEYS a",
            ),
            ("SET auth s3cret-of-nobody", "SET auth s3cret-of-nobody"),
        ] {
            let args: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
            let entry = table().find(args[0]).expect("a command");
            let shown = shown(entry, &args).join(&b' ');
            assert_eq!(String::from_utf8_lossy(&shown), expected);
        }
    }
}
