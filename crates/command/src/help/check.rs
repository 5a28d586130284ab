//! What the help of each program is held to: assertions for the programs' own tests.

use clap::Command;

use super::{Help, Texts, dressed};
use crate::exit;

/// A program whose help is checked.
#[derive(Debug)]
pub struct Checked<'a> {
    /// Commands of the program, as they are parsed.
    pub command: Command,
    /// What its help says beside the flags.
    pub texts: Texts,
    /// Commands of the first level that another program has.
    pub elsewhere: &'a [&'a str],
}

impl Checked<'_> {
    fn dressed(&self, help: Help, width: usize) -> Command {
        let command = dressed(self.command.clone(), help, self.texts);
        let mut command = command.term_width(width);
        command.build();
        command
    }

    fn each(&self, command: &Command, words: &str, look: &mut dyn FnMut(&str, &Command)) {
        look(words, command);
        for sub in command.get_subcommands() {
            let name = sub.get_name();
            if name == "help" || sub.is_hide_set() || self.elsewhere.contains(&name) {
                continue;
            }
            self.each(sub, format!("{words} {name}").trim(), look);
        }
    }

    /// Checks all there is to check.
    pub fn all(&self) {
        self.has_examples_and_statuses();
        self.speaks_of_known_statuses();
        self.has_examples_that_parse();
        self.is_short_where_it_should_be();
        self.is_brief_about_what_is_there();
        self.has_every_flag();
    }

    /// Every command has examples and the table of statuses; no example is of a command that is gone.
    fn has_examples_and_statuses(&self) {
        let mut seen = Vec::new();
        let command = self.dressed(Help::Long, 100);
        self.each(&command, "", &mut |words, command| {
            seen.push(words.to_owned());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:\n  "), "{words}: {help}");
            assert!(help.contains("Exit status, of all commands:"), "{words}");
        });
        let mut examples = self.texts.examples.iter();
        let stale = examples.find(|(words, _)| !seen.iter().any(|known| known == words));
        assert!(stale.is_none(), "{stale:?}");
    }

    /// A command's own text on statuses names no status that the table lacks.
    fn speaks_of_known_statuses(&self) {
        let command = self.dressed(Help::Long, 1_000);
        self.each(&command, "", &mut |words, command| {
            let help = command.clone().render_long_help().to_string();
            for own in help.lines().filter(|line| line.contains("Exit status: ")) {
                let own = own.split("Exit status: ").nth(1).unwrap_or_default();
                let mut said = own.split([' ', ';', ',', '.']);
                let is_unknown = |word: &str| {
                    word.parse::<u8>()
                        .is_ok_and(|n| !exit::TABLE.contains(&format!("\n  {n}  ")))
                };
                let unknown = said.find(|word| is_unknown(word));
                assert!(unknown.is_none(), "{words}: {unknown:?} in {own}");
            }
        });
    }

    /// Every example is a command line that this program parses.
    fn has_examples_that_parse(&self) {
        for (words, examples) in self.texts.examples {
            for example in *examples {
                let own = example
                    .split(" | ")
                    .find(|part| part.starts_with("tidewire"));
                let own = own.unwrap_or_else(|| panic!("{example}"));
                let own = own.split(" > ").next().unwrap_or(own);
                let args = own.split_whitespace().map(|word| word.trim_matches('\''));
                // A host of an example is not looked up.
                let args = args.map(|word| word.replace("db.example", "127.0.0.1"));
                let parsed = self.dressed(Help::Long, 100).try_get_matches_from(args);
                let error = parsed.err().filter(clap::Error::use_stderr);
                assert!(error.is_none(), "{example}: {}", error.unwrap());
                assert!(own.contains(words), "{example} in {words:?}");
            }
        }
    }

    /// The short help fits on a screen of 24 lines of 80 characters, each flag on a line.
    fn is_short_where_it_should_be(&self) {
        let command = self.dressed(Help::Short, 80);
        self.each(&command, "", &mut |words, command| {
            let help = command.clone().render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= 24, "{words}: {lines} lines\n{help}");
            // A line that goes on begins with more blanks than one of a flag.
            let wraps = help.lines().skip_while(|line| *line != "Options:");
            let wrapped = wraps.clone().find(|line| line.starts_with("         "));
            let is_brief = self.texts.brief.iter().any(|(of, _)| *of == words);
            assert!(!is_brief || wrapped.is_none(), "{words}: {wrapped:?}");
        });
    }

    /// The short help names flags that the commands have.
    fn is_brief_about_what_is_there(&self) {
        let all = self.dressed(Help::Long, 80);
        for (of, flags) in self.texts.brief {
            for (flag, _) in *flags {
                let mut found = false;
                self.each(&all, "", &mut |words, command| {
                    found |= words.starts_with(of)
                        && command
                            .get_arguments()
                            .any(|arg| arg.get_long().unwrap_or(arg.get_id().as_str()) == *flag);
                });
                assert!(found, "{of}: {flag}");
            }
        }
    }

    /// The long help has every flag that is not hidden.
    fn has_every_flag(&self) {
        let command = self.dressed(Help::Long, 100);
        self.each(&command, "", &mut |words, command| {
            let help = command.clone().render_long_help().to_string();
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                if let Some(long) = arg.get_long() {
                    assert!(help.contains(&format!("--{long}")), "{words}: {long}");
                }
            }
        });
    }
}
