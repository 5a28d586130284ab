//! Settings that may be said of one service, of each, or of all together: `[SCOPE=]VALUE`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use crate::serve::listeners::kind::{Kind, Named};

/// `[SCOPE=]VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scoped<T> {
    pub(crate) scope: Scope,
    pub(crate) value: T,
}

/// The services that a setting applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every service, by itself.
    Each,
    /// All services together: `all=`.
    All,
    /// `kv/resp=`, or all that `kv=` names, each by itself.
    Of(Named),
}

/// The value of the most specific setting for this service; of several equally specific ones, the
/// last.
pub(crate) fn of<T: Copy>(all: &[Scoped<T>], kind: Kind) -> Option<T> {
    let places = all.iter().filter_map(|scoped| match &scoped.scope {
        Scope::Each => Some((0, scoped.value)),
        Scope::Of(named) if named.0.contains(&kind) => {
            Some((1 + usize::from(named.0.len() == 1), scoped.value))
        }
        Scope::All | Scope::Of(_) => None,
    });
    places.max_by_key(|(said, _)| *said).map(|(_, value)| value)
}

pub(crate) fn of_all<T: Copy>(all: &[Scoped<T>]) -> Option<T> {
    let mut all = all.iter().filter(|scoped| scoped.scope == Scope::All);
    all.next_back().map(|scoped| scoped.value)
}

/// Adds the services that a setting names, with its own name.
pub(crate) fn scopes<T>(
    name: &'static str,
    all: &[Scoped<T>],
    to: &mut Vec<(&'static str, Named)>,
) {
    let named = all.iter().filter_map(|scoped| match &scoped.scope {
        Scope::Of(named) => Some((name, named.clone())),
        Scope::Each | Scope::All => None,
    });
    to.extend(named);
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Scoped<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Scoped<T>, String> {
        let (scope, value) = match text.split_once('=') {
            None => (Scope::Each, text),
            Some(("all", value)) => (Scope::All, value),
            Some((named, value)) => (Scope::Of(named.parse()?), value),
        };
        let value = value.parse().map_err(|e| match scope {
            Scope::Each => format!("{e}"),
            _ => format!("{value:?}: {e}"),
        })?;
        Ok(Scoped { scope, value })
    }
}

/// One value, or a list of values; each a text or a number.
pub(crate) fn several<'de, D: Deserializer<'de>, T>(from: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
{
    struct Several;
    impl<'de> Visitor<'de> for Several {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number, [SCOPE=]VALUE, or a list of them")
        }
        fn visit_i64<E: de::Error>(self, n: i64) -> Result<Vec<String>, E> {
            Ok(vec![n.to_string()])
        }
        fn visit_f64<E: de::Error>(self, n: f64) -> Result<Vec<String>, E> {
            Ok(vec![n.to_string()])
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
            Ok(vec![text.to_owned()])
        }
        fn visit_seq<A: SeqAccess<'de>>(self, all: A) -> Result<Vec<String>, A::Error> {
            let all = Vec::<One>::deserialize(SeqAccessDeserializer::new(all))?;
            Ok(all.into_iter().map(One::text).collect())
        }
    }
    let all = from.deserialize_any(Several)?;
    let all: Result<Vec<T>, _> = all.iter().map(|text| text.parse()).collect();
    all.map_err(de::Error::custom)
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum One {
    Number(u64),
    Part(f64),
    Text(String),
}

impl One {
    pub(crate) fn text(self) -> String {
        match self {
            One::Number(n) => n.to_string(),
            One::Part(n) => n.to_string(),
            One::Text(text) => text,
        }
    }
}
