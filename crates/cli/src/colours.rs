//! Decides whether output has colours.

use std::env;

/// Whether to colour what is shown: as `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` say, else on a terminal.
pub(crate) fn wanted(is_terminal: bool) -> bool {
    wanted_by(
        |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
        is_terminal,
    )
}

fn wanted_by(get: impl Fn(&str) -> Option<String>, is_terminal: bool) -> bool {
    let set = |name| get(name).filter(|value| !value.is_empty());
    match (set("NO_COLOR"), set("CLICOLOR_FORCE"), set("CLICOLOR")) {
        (Some(_), _, _) => false,
        (None, Some(force), _) if force != "0" => true,
        (_, _, Some(wish)) if wish == "0" => false,
        _ => is_terminal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_as_is_wished() {
        let wishes = |all: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = all.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        for (all, terminal, expected) in [
            (&[][..], true, true),
            (&[], false, false),
            (&[("NO_COLOR", "1")], true, false),
            (&[("NO_COLOR", "")], true, true),
            (&[("CLICOLOR", "0")], true, false),
            (&[("CLICOLOR", "1")], false, false),
            (&[("CLICOLOR_FORCE", "1")], false, true),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, false),
            (&[("CLICOLOR_FORCE", "0"), ("CLICOLOR", "0")], true, false),
        ] {
            assert_eq!(
                wanted_by(wishes(all), terminal),
                expected,
                "{all:?} {terminal}"
            );
        }
    }
}
