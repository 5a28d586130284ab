//! The rules of ACL SETUSER and of the ACL file, applied one after the other.

use super::password::Hash;
use super::rights::Rights;
use super::selector::{Selector, Wrong};
use crate::commands::Error;

/// Passwords and selectors that a user may have.
const MOST: usize = 1024;

/// A rule that is none.
#[derive(Debug)]
pub(super) struct Bad {
    rule: Vec<u8>,
    fault: Fault,
}

impl Bad {
    /// The error reply to a client, without a code; it repeats the rule, which may contain a secret of
    /// that client.
    pub(super) fn to_client(&self) -> Error {
        let shown = &self.rule[..self.rule.len().min(256)];
        let mut error = match self.fault {
            Fault::Unmatched => {
                let before = "Unmatched parenthesis in acl selector starting at '";
                return Error::quoting(before, shown, "'.");
            }
            _ => Error::quoting("Error in ACL SETUSER modifier '", shown, "': "),
        };
        error.0.to_mut().extend_from_slice(self.why().as_bytes());
        error
    }

    /// The reason, without the client's own words.
    pub(super) fn why(&self) -> &'static str {
        self.fault.text()
    }
}

/// The reason why a rule of a user is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Unmatched,
    Rule(Wrong),
    BadHash,
    NoSuchPassword,
    TooMany,
}

impl From<Wrong> for Fault {
    fn from(wrong: Wrong) -> Fault {
        Fault::Rule(wrong)
    }
}

impl Fault {
    fn text(self) -> &'static str {
        match self {
            Fault::Unmatched => "Unmatched parenthesis of a selector",
            Fault::Rule(Wrong::Syntax) => "Syntax error",
            Fault::Rule(Wrong::Unknown) => "Unknown command or category name in ACL",
            Fault::Rule(Wrong::KeysGivenAlready) => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                 not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Fault::Rule(Wrong::ChannelsGivenAlready) => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                 does not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Fault::Rule(Wrong::FirstArgumentOfSubcommand) => {
                "Allowing first-arg of a subcommand is not supported"
            }
            Fault::Rule(Wrong::PatternTooLong) => "The pattern is longer than 65536 bytes",
            Fault::Rule(Wrong::TooManyPatterns) => {
                "The patterns of a selector have at most 1048576 bytes, each counted with 64 more"
            }
            Fault::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            Fault::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Fault::TooMany => "A user has at most 1024 passwords and 1024 selectors",
        }
    }
}

/// Whether the text may be the name of a user.
pub(super) fn is_name(name: &[u8]) -> bool {
    !name
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

/// Applies rules to a user. `all_channels` is what selectors begin with.
///
/// # Errors
/// One of the words is no rule.
pub(super) fn apply(
    mut rights: Rights,
    rules: &[&[u8]],
    all_channels: bool,
) -> Result<Rights, Bad> {
    for rule in joined(rules)? {
        if let Err(fault) = apply_one(&mut rights, &rule, all_channels) {
            return Err(Bad { rule, fault });
        }
    }
    Ok(rights.settle())
}

/// The rules, with each group in parentheses as one.
fn joined(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, Bad> {
    let mut all = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for rule in rules {
        match open.as_mut() {
            Some(selector) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
            }
            None if rule.starts_with(b"(") => open = Some(rule.to_vec()),
            None => all.push(rule.to_vec()),
        }
        if open
            .as_ref()
            .is_some_and(|selector| selector.ends_with(b")"))
        {
            all.extend(open.take());
        }
    }
    match open {
        None => Ok(all),
        Some(rule) => Err(Bad {
            rule,
            fault: Fault::Unmatched,
        }),
    }
}

fn apply_one(rights: &mut Rights, rule: &[u8], all_channels: bool) -> Result<(), Fault> {
    let word = rule.to_ascii_lowercase();
    match &word[..] {
        b"on" => rights.on = true,
        b"off" => rights.on = false,
        b"nopass" => {
            rights.nopass = true;
            rights.passwords.clear();
        }
        b"resetpass" => {
            rights.nopass = false;
            rights.passwords.clear();
        }
        b"sanitize-payload" => rights.sanitize = Some(true),
        b"skip-sanitize-payload" => rights.sanitize = Some(false),
        b"clearselectors" => rights.selectors.clear(),
        b"reset" => {
            *rights = Rights::none(all_channels);
            rights.sanitize = Some(true);
        }
        _ => match rule {
            [b'>', password @ ..] => add(rights, Hash::of(password))?,
            [b'#', digits @ ..] => add(rights, Hash::parse(digits).ok_or(Fault::BadHash)?)?,
            [b'<', password @ ..] => remove(rights, Hash::of(password))?,
            [b'!', digits @ ..] => remove(rights, Hash::parse(digits).ok_or(Fault::BadHash)?)?,
            [b'(', inner @ .., b')'] => {
                if rights.selectors.len() >= MOST {
                    return Err(Fault::TooMany);
                }
                let mut selector = Selector::with_channels(all_channels);
                let parts = inner.split(|byte| byte.is_ascii_whitespace());
                for part in parts.filter(|part| !part.is_empty()) {
                    selector.apply(part)?;
                }
                rights.selectors.push(selector);
            }
            _ => rights.root.apply(rule)?,
        },
    }
    Ok(())
}

fn add(rights: &mut Rights, password: Hash) -> Result<(), Fault> {
    if !password.is_among(&rights.passwords) {
        if rights.passwords.len() >= MOST {
            return Err(Fault::TooMany);
        }
        rights.passwords.push(password);
    }
    rights.nopass = false;
    Ok(())
}

fn remove(rights: &mut Rights, password: Hash) -> Result<(), Fault> {
    let before = rights.passwords.len();
    rights.passwords.retain(|known| *known != password);
    if rights.passwords.len() == before {
        return Err(Fault::NoSuchPassword);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rules: &str) -> Result<Rights, Bad> {
        let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        apply(Rights::none(false), &rules, false)
    }

    #[test]
    fn a_line_makes_the_same_user_again() {
        for rules in [
            "on nopass ~* &* +@all",
            "on >pw ~foo* %R~ro:* %W~wo:* &ch* +@read -get +set +client|id (+get ~sel)",
            "+@all -@dangerous +config|get",
            "(+get ~a) (~b &c +@write) +select|0 +select|1",
            "reset on",
        ] {
            let line = made(rules).unwrap().line(b"u");
            let words = String::from_utf8(line.clone()).unwrap();
            let again = made(words.strip_prefix("user u ").unwrap()).unwrap();
            assert_eq!(again.line(b"u"), line, "{rules}");
        }
    }

    #[test]
    fn rules_that_are_overridden_are_not_told() {
        let shown = |rules| made(rules).unwrap().root.show_commands();
        assert_eq!(shown("-@all +@read +@write -@read"), "-@all +@write -@read");
        assert_eq!(shown("+client|id +client|list +client"), "-@all +client");
        assert_eq!(shown("+get -get +@all"), "+@all");
    }

    #[test]
    fn what_is_no_rule_changes_nothing() {
        for (rules, why) in [
            ("foo", "'foo': Syntax error"),
            ("+nosuch", "Unknown command"),
            ("+client|nosuch", "Unknown command"),
            ("+client|id|x", "first-arg of a subcommand"),
            ("+get|", "Syntax error"),
            ("~* ~x", "after the * pattern"),
            ("allchannels &x", "'allchannels' flag"),
            ("%X~x", "Syntax error"),
            ("%~x", "Syntax error"),
            ("%RR~x", "Syntax error"),
            ("(+get", "Unmatched parenthesis"),
            ("(+get (x))", "'(+get (x))': Syntax error"),
            ("#abc", "exactly 64"),
            ("<nope", "does not exist"),
        ] {
            let bad = made(rules).unwrap_err();
            let text = String::from_utf8_lossy(&bad.to_client().0).into_owned();
            assert!(!bad.why().contains("nope"), "a log gets no secret");
            assert!(text.contains(why), "{rules}: {text}");
        }
    }
}
