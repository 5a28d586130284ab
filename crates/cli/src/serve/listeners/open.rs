//! `--open`: the services that serve every client that reaches them.

use std::str::FromStr;

use crate::serve::listeners::kind::{Kind, Named};

/// Services that are open to every client that reaches them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    All,
    These(Named),
}

impl Open {
    pub(crate) fn covers(&self, kind: Kind) -> bool {
        match self {
            Open::All => true,
            Open::These(named) => named.0.contains(&kind),
        }
    }
}

impl Open {
    /// The service that the entry names, if it names one.
    pub(crate) fn named(&self) -> Option<&Named> {
        match self {
            Open::All => None,
            Open::These(named) => Some(named),
        }
    }
}

impl FromStr for Open {
    type Err = String;

    fn from_str(text: &str) -> Result<Open, String> {
        match text {
            "all" => Ok(Open::All),
            _ => text.parse().map(Open::These),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_opened_by_name() {
        let kind = |name: &str| name.parse::<Named>().unwrap().0[0];
        let open = |text: &str, kind| text.parse::<Open>().unwrap().covers(kind);
        let binary = kind("kv/binary");
        assert!(open("all", binary) && open("kv", binary) && open("kv/binary", binary));
        assert!(!open("kv/resp", binary) && !open("echo", binary));
        assert!(
            "everything"
                .parse::<Open>()
                .unwrap_err()
                .contains("everything")
        );
    }
}
