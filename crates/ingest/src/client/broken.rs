//! Why a conversation with a server cannot go on.

use std::time::Duration;

use crate::native::codec::{Level, Malformed, Reason, Refusal, TooLong};

/// Why a conversation ended. [`is_passing`](Broken::is_passing) says whether a new connection may
/// help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The server refused and closes.
    #[error("the server refused: {}{}", said(*reason, text), at(*reason, *id))]
    Refused {
        /// Why.
        reason: Reason,
        /// The id of the first message refused, the position of a reader, or the number of an administrator's request;
        /// zero for a hello.
        id: u64,
        /// The server's message.
        text: String,
        /// How long the client should wait before it tries again; zero if the server did not say.
        retry_after: Duration,
    },
    /// The level wanted is not to be had.
    #[error("the server grants level {granted:?} only, {wanted:?} was asked for")]
    Level {
        /// The requested level.
        wanted: Level,
        /// The level that the server can give.
        granted: Level,
    },
    /// The server has forgotten acknowledged messages.
    #[error(
        "messages were acknowledged up to {acknowledged}, but the server has lost the messages after {}",
        shown(mark)
    )]
    Lost {
        /// The last id acknowledged.
        acknowledged: u64,
        /// The last one that the server knows.
        mark: Option<u64>,
    },
    /// The server has messages of this producer that this client has not sent.
    #[error(
        "the server has messages up to {mark} of this producer, but this client has sent only messages up to {sent}: another program uses its name"
    )]
    NameTaken {
        /// The last id sent here.
        sent: u64,
        /// The last one that the server knows.
        mark: u64,
    },
    /// The server has forgotten this producer.
    #[error(
        "the server has forgotten this producer, which was away for longer than producers are \
         remembered: the server does not know which of its messages are stored, and may store them again"
    )]
    Forgotten,
    /// The server's bytes are not the protocol's.
    #[error("the server does not speak the native protocol, version 1: {0}")]
    Malformed(String),
    /// A name that cannot be sent.
    #[error("{0}")]
    TooLong(#[from] TooLong),
    /// The server sent nothing for this long, though an answer is due.
    #[error("the server sent nothing for {0:?}, though an answer is due")]
    Silent(Duration),
    /// The server did not answer the hello for this long: a server of another protocol waits for more.
    #[error(
        "no answer to the ingest hello within {0:?}: is another service at this address? Defaults: ingest at port 7400, \
         Redis protocol at 6380"
    )]
    Unanswered(Duration),
    /// Another session of this producer began, and it may be that of an earlier connection of this client's own,
    /// which was given up before the server had read its hello.
    #[error(
        "a newer session of this producer has begun, perhaps by an earlier connection whose hello the server read late"
    )]
    Overtaken,
    /// The connection ended.
    #[error("the server closed the connection")]
    Closed,
    /// The connection ended before the server answered the hello: a server of another protocol, or one that speaks TLS,
    /// does so.
    #[error(
        "the server closed the connection before it answered the ingest hello: it may expect \
         TLS, which this client does not use, or speak another protocol"
    )]
    ClosedUnanswered,
    /// Records were removed between two connections, before they were read.
    #[error("the records from {next} up to {start} were removed before they were read")]
    Gap {
        /// The position at which reading was to go on.
        next: u64,
        /// The position at which the server would begin.
        start: u64,
    },
    /// The caller gave up waiting.
    #[error("given up before everything was acknowledged")]
    Abandoned,
}

impl Broken {
    /// What an operator can do about a level that the server cannot give; empty for other errors.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Broken::Level {
                wanted: Level::Replicated,
                granted: Level::Durable,
            } => {
                "ask for level durable, or check the home of the server's log: there is none, it \
                 was not reached yet, another server has it, or this stream is not replicated"
            }
            Broken::Level { .. } => "ask for level received, or have the server's log sync",
            _ => "",
        }
    }

    /// Whether a new connection may go on where this one ended. Other errors are final.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Broken::Silent(_)
            | Broken::Unanswered(_)
            | Broken::Overtaken
            | Broken::Closed
            | Broken::ClosedUnanswered => true,
            Broken::Refused { reason, .. } => matches!(
                reason,
                // After a hello, these close as well.
                Reason::Stopping
                    | Reason::DiskFull
                    | Reason::OverQuota
                    | Reason::StreamFull
                    | Reason::Moved
            ),
            _ => false,
        }
    }

    /// Where the server said that the producer belongs, `HOST:PORT`; a new connection is to be made there.
    #[must_use]
    pub fn moved(&self) -> Option<&str> {
        match self {
            Broken::Refused {
                reason: Reason::Moved,
                text,
                ..
            } => Some(text),
            _ => None,
        }
    }

    /// Adds what the client knows about a refusal of its token, where the server says no more than the reason.
    pub(super) fn of_token(mut self, has_token: bool) -> Broken {
        if let Broken::Refused {
            reason: reason @ Reason::Unauthorised,
            text,
            ..
        } = &mut self
            && (text.is_empty() || text == reason.name())
        {
            *text = match has_token {
                false => "unauthorised: the server requires a token, and none was sent",
                true => {
                    "unauthorised: the server does not know the token that was sent, or the token lacks the right for this"
                }
            }
            .to_owned();
        }
        self
    }

    /// How long the server asked to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Broken::Refused { retry_after, .. } => *retry_after,
            _ => Duration::ZERO,
        }
    }
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Broken {
        Broken::Malformed(malformed.to_string())
    }
}

impl From<Refusal<'_>> for Broken {
    fn from(refusal: Refusal<'_>) -> Broken {
        Broken::Refused {
            reason: refusal.reason,
            id: refusal.id,
            text: refusal.text.to_owned(),
            retry_after: Duration::from_millis(refusal.retry_after_ms.into()),
        }
    }
}

/// The reason, and the server's text unless it only repeats the reason. Control characters in the text are escaped: the
/// server may send anything.
fn said(reason: Reason, text: &str) -> String {
    let is_in_text = |word: &str| {
        text.split(|c: char| !c.is_alphanumeric())
            .any(|w| w == word)
    };
    if text.is_empty() {
        reason.to_string()
    } else if reason.name().split(' ').all(is_in_text) {
        printable(text)
    } else {
        format!("{reason}: {}", printable(text))
    }
}

/// The message or record that the refusal is about, for reasons that are about one.
fn at(reason: Reason, id: u64) -> String {
    match reason {
        Reason::TooLarge | Reason::OutOfOrder => format!(" (message {id})"),
        Reason::Gone | Reason::Damaged | Reason::BeyondEnd => format!(" (position {id})"),
        _ => String::new(),
    }
}

fn shown(mark: &Option<u64>) -> String {
    mark.map_or_else(|| "the beginning".to_owned(), |id| id.to_string())
}

/// Whether a terminal obeys a character instead of showing it: a control character, one that changes the
/// direction of text (so that a text may look like another one), or one that ends a line.
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    turns || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A text from the other side, in which characters that a terminal would obey are shown as escapes.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => shown.extend(c.escape_default()),
            c if is_obeyed(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: Reason, id: u64, text: &str) -> Broken {
        Broken::Refused {
            reason,
            id,
            text: text.into(),
            retry_after: Duration::ZERO,
        }
    }

    #[test]
    fn a_refusal_says_its_reason_once_and_a_number_only_where_it_means_something() {
        for (reason, id, text, said) in [
            (Reason::DiskFull, 1, "the disk is full", "the disk is full"),
            (Reason::DiskFull, 0, "disk full", "disk full"),
            (
                Reason::NoStream,
                1,
                "there is no such stream: \"typo\"",
                "there is no such stream: \"typo\"",
            ),
            (Reason::Unauthorised, 0, "", "unauthorised"),
            (Reason::TooLarge, 7, "too large", "too large (message 7)"),
            (Reason::Damaged, 9, "", "damaged (position 9)"),
            (
                Reason::LogFailed,
                3,
                "a\u{1b}[2J",
                "log failed: a\\u{1b}[2J",
            ),
        ] {
            let shown = refused(reason, id, text).to_string();
            assert_eq!(shown, format!("the server refused: {said}"));
        }
    }

    #[test]
    fn a_missing_token_and_a_wrong_one_are_told_apart() {
        let said = |text, has_token| {
            let broken = refused(Reason::Unauthorised, 0, text);
            broken.of_token(has_token).to_string()
        };
        assert!(said("unauthorised", false).contains("none was sent"));
        assert!(said("unauthorised", true).contains("does not know the token"));
        let other = said("the token is not accepted any more", true);
        assert!(
            other.ends_with("the token is not accepted any more"),
            "{other}"
        );
    }
}
