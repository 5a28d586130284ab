//! Names on the command line: they are checked before anything else is done.

/// Most bytes of a name; the native protocol writes its length in one byte.
const MOST: usize = 255;

fn checked(name: &str) -> Result<String, String> {
    if name.len() > MOST {
        return Err(format!(
            "it has {} bytes; a name has at most {MOST}",
            name.len()
        ));
    }
    match name.chars().find(|char| char.is_control()) {
        Some(found) => Err(format!(
            "it has the control character {found:?}; a name has none"
        )),
        None => Ok(name.to_owned()),
    }
}

/// A stream. An empty name is mostly a variable of a shell that is not set.
pub(crate) fn stream(name: &str) -> Result<String, String> {
    match name {
        "" => Err(
            "a stream's name is not empty; `default` is the stream of clients that name none"
                .into(),
        ),
        name => checked(name),
    }
}

/// A producer. Empty: without a name.
pub(crate) fn producer(name: &str) -> Result<String, String> {
    checked(name)
}

/// A cursor of a reader. Empty: none.
pub(crate) fn cursor(name: &str) -> Result<String, String> {
    match name.starts_with('@') {
        true => Err("cursors whose names begin with @ are the server's own".into()),
        false => checked(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_server_takes_are_refused() {
        let long = "x".repeat(MOST + 1);
        for name in ["", "a\tb", "a\n", "\u{9b}31m", &long] {
            assert!(stream(name).is_err(), "{name:?}");
        }
        for name in ["default", "a b", "a/b", "\u{e9}", "@home", &long[1..]] {
            assert_eq!(stream(name).as_deref(), Ok(name));
        }
        assert_eq!(producer("").as_deref(), Ok(""));
        assert!(producer("a\u{1b}").is_err() && producer(&long).is_err());
        assert_eq!(cursor("").as_deref(), Ok(""));
        assert!(cursor("@home").is_err() && cursor(&long).is_err());
    }
}
