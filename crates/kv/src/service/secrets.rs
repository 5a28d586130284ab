//! Which arguments of a call are secrets: SLOWLOG and MONITOR show `(redacted)` in their place.

use super::table::{Entry, table};

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

/// Calls that are arguments of calls, as of `COMMAND GETKEYS ACL DRYRUN user AUTH secret`: so many are looked into.
const DEPTH: usize = 8;

/// The arguments without secrets, for other clients. A word that brings a secret is heeded wherever it stands: the call
/// may be wrong, and the secret right.
pub(super) fn shown<'a>(entry: &Entry, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut shown = args.to_vec();
    let mut call = Some((entry, 0));
    for _ in 0..DEPTH {
        let Some((entry, from)) = call else {
            return shown;
        };
        redact(entry, &args[from..], &mut shown[from..]);
        call = asked_about(entry, &args[from..]).map(|(entry, at)| (entry, from + at));
    }
    if let Some((_, from)) = call {
        shown[from..].fill(REDACTED);
    }
    shown
}

/// The call that a call only asks about, and where it begins.
fn asked_about(entry: &Entry, args: &[&[u8]]) -> Option<(&'static Entry, usize)> {
    let is = |words: &[&str]| {
        let sub = args.get(1);
        sub.is_some_and(|sub| {
            words
                .iter()
                .any(|word| sub.eq_ignore_ascii_case(word.as_bytes()))
        })
    };
    let at = match entry.name {
        "acl" if is(&["dryrun"]) => 3,
        "command" if is(&["getkeys", "getkeysandflags"]) => 2,
        _ => return None,
    };
    Some((table().find(args.get(at)?)?, at))
}

/// Takes the secrets out of one call.
fn redact(entry: &Entry, args: &[&[u8]], shown: &mut [&[u8]]) {
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
    if !matches!(entry.name, "auth" | "hello" | "migrate" | "acl" | "config") {
        return;
    }
    for at in 0..args.len() {
        for secret in shown.iter_mut().skip(at + 1).take(behind(at)) {
            *secret = REDACTED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (
                "CONFIG SET requirepass s3cret masterauth s3cret maxmemory 0",
                "CONFIG SET requirepass (redacted) masterauth (redacted) maxmemory 0",
            ),
            (
                "ACL DRYRUN user AUTH name s3cret",
                "ACL DRYRUN user AUTH (redacted) (redacted)",
            ),
            (
                "acl dryrun user config set requirepass s3cret",
                "acl dryrun user config set requirepass (redacted)",
            ),
            (
                "COMMAND GETKEYS MIGRATE host 6379 key 0 100 AUTH s3cret",
                "COMMAND GETKEYS MIGRATE host 6379 key 0 100 AUTH (redacted)",
            ),
            (
                "command getkeysandflags acl setuser u >s3cret",
                "command getkeysandflags acl setuser (redacted) (redacted)",
            ),
            (
                "COMMAND GETKEYS ACL DRYRUN a COMMAND GETKEYS HELLO 3 AUTH user s3cret",
                "COMMAND GETKEYS ACL DRYRUN a COMMAND GETKEYS HELLO 3 AUTH (redacted) (redacted)",
            ),
            (
                "ACL DRYRUN auth GET s3cret-of-nobody",
                "ACL DRYRUN auth GET s3cret-of-nobody",
            ),
            ("SET auth s3cret-of-nobody", "SET auth s3cret-of-nobody"),
        ] {
            let args: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
            let entry = table().find(args[0]).expect("a command");
            let shown = shown(entry, &args).join(&b' ');
            assert_eq!(String::from_utf8_lossy(&shown), expected);
        }
    }

    #[test]
    fn a_call_within_calls_without_end_shows_nothing_of_the_last() {
        let mut words = ["COMMAND", "GETKEYS"].repeat(100_000);
        words.extend(["AUTH", "s3cret"]);
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let entry = table().find(args[0]).expect("a command");
        let shown = shown(entry, &args);
        assert_eq!(shown.len(), args.len());
        assert!(!shown.contains(&&b"s3cret"[..]));
    }
}
