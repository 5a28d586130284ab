//! The examples of a page, and what they name.

use crate::items::{Kind, Public};

/// The code of all examples in this documentation that `cargo test` runs.
pub(crate) fn runnable(page: &str) -> String {
    let mut code = String::new();
    let mut inside = None;
    for line in page.lines() {
        let line = line.trim_start();
        match (line.strip_prefix("```"), inside) {
            (Some(info), None) => {
                let runs = |word: &str| matches!(word, "" | "rust" | "should_panic");
                inside = Some(info.split(',').all(|word| runs(word.trim())));
            }
            (Some(_), Some(_)) => inside = None,
            (None, Some(true)) => {
                // What rustdoc hides is run too.
                let line = line.strip_prefix("# ").unwrap_or(line);
                code.push_str(line.split("//").next().unwrap_or_default());
                code.push('\n');
            }
            (None, _) => {}
        }
    }
    code
}

/// Whether this code names it, in the way that its kind is used.
pub(crate) fn names(code: &str, item: &Public) -> bool {
    // `call`: what may follow the name.
    let by = |before: &str, call: &[&str]| {
        let wanted = format!("{before}{}", item.name);
        code.match_indices(&wanted).any(|(at, _)| {
            let (start, rest) = (&code[..at], &code[at + wanted.len()..]);
            let within = |c: char| c.is_alphanumeric() || c == '_';
            let begins = before.starts_with('.') || !start.ends_with(within);
            let follows = call.is_empty() || call.iter().any(|next| rest.starts_with(next));
            begins && !rest.starts_with(within) && follows
        })
    };
    // Called, or handed on as a function.
    let called = &["(", "::<", ")", ","];
    let of_type = format!("{}::", item.of);
    let written = by("fn ", &["(", "<"]);
    match item.kind {
        Kind::Type => by("", &[]),
        Kind::Function => by("", called),
        Kind::Associated => by(&of_type, called) || written,
        Kind::Method => by(".", called) || by(&of_type, called) || written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str) -> Public {
        Public {
            of: "Link".into(),
            name: name.into(),
            kind: Kind::Method,
            page: String::new(),
        }
    }

    #[test]
    fn only_what_runs_counts() {
        let page = "a.one()\n```\n# a.two();\nb.three() // a.four()\n```\n```no_run\na.five()\n```\n\
            ```rust,should_panic\na.six()\n```\n";
        let code = runnable(page);
        for (name, is) in [
            ("one", false),
            ("two", true),
            ("three", true),
            ("four", false),
            ("five", false),
            ("six", true),
        ] {
            assert_eq!(names(&code, &method(name)), is, "{name}");
        }
    }

    #[test]
    fn a_name_is_whole_and_called() {
        for (code, is) in [
            ("link.full()", true),
            ("link.fully()", false),
            ("link.full = 1", false),
            ("map(Link::full)", true),
            ("map(MyLink::full)", false),
            ("fn full(&self)", true),
            ("fn full<S>(&self)", true),
            ("fn fuller(&self)", false),
            ("full()", false),
        ] {
            assert_eq!(names(code, &method("full")), is, "{code}");
        }
    }
}
