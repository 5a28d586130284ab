//! Which streams are meant: by their names, or by how the names begin.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Names of streams; a name that ends in `*` stands for all names that begin like that. The default
/// takes every stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Option<Arc<[Named]>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Whole(Box<str>),
    Beginning(Box<str>),
}

/// A pattern that names no streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no streams: it should be a name of 1 to 255 bytes, or the beginning of names and a * behind it"
)]
pub struct BadSelection(String);

impl FromStr for Named {
    type Err = BadSelection;

    fn from_str(text: &str) -> Result<Named, BadSelection> {
        let (name, is_beginning) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        // A * elsewhere means more than is understood here.
        if text.is_empty() || text.len() > 255 || name.contains('*') {
            return Err(BadSelection(text.to_owned()));
        }
        Ok(match is_beginning {
            true => Named::Beginning(name.into()),
            false => Named::Whole(name.into()),
        })
    }
}

impl Selection {
    /// The streams that any of `names` stands for; without names, every stream.
    ///
    /// # Errors
    /// The first name that is empty, longer than 255 bytes, or has a `*` that is not at its end.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Selection, BadSelection> {
        let named: Arc<[Named]> = names
            .into_iter()
            .map(str::parse)
            .collect::<Result<_, BadSelection>>()?;
        Ok(Selection((!named.is_empty()).then_some(named)))
    }

    /// Whether this stream is one of the selected streams.
    #[must_use]
    pub fn takes(&self, stream: &str) -> bool {
        self.0.as_deref().is_none_or(|named| {
            named.iter().any(|named| match named {
                Named::Whole(name) => **name == *stream,
                Named::Beginning(beginning) => stream.starts_with(&**beginning),
            })
        })
    }

    /// Whether every stream is.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(named) = &self.0 else {
            return f.write_str("*");
        };
        for (number, named) in named.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match named {
                Named::Whole(name) => write!(f, "{comma}{name}")?,
                Named::Beginning(name) => write!(f, "{comma}{name}*")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_are_told_apart() {
        let some = Selection::of(["app", "db-*"]).unwrap();
        for (stream, takes) in [
            ("app", true),
            ("app2", false),
            ("ap", false),
            ("db-", true),
            ("db-1", true),
            ("db", false),
            ("", false),
        ] {
            assert_eq!(some.takes(stream), takes, "{stream}");
        }
        assert_eq!(some.to_string(), "app,db-*");
        assert!(!some.is_all());
        assert!(Selection::of(["*"]).unwrap().takes("x"));
    }

    #[test]
    fn nothing_said_is_every_stream() {
        let all = Selection::of([]).unwrap();
        assert_eq!(all, Selection::default());
        assert!(all.is_all() && all.takes("x"));
        assert_eq!(all.to_string(), "*");
    }

    #[test]
    fn what_names_no_streams_is_refused() {
        let long = "x".repeat(256);
        for bad in ["", "a*b", "**", "*a", &*long] {
            assert!(Selection::of([bad]).is_err(), "{bad}");
        }
    }
}
