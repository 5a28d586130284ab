//! What all commands have in common and `--help` shows: examples, the table of exit statuses, and a short help that
//! fits on a screen, where `--help` has everything.

use std::env;

use clap::Command;

use crate::exit;

/// Of each command, by its words, how it is used.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "tidewire serve",
            "tidewire send app.log",
            "tidewire read --from first",
            "tidewire serve --help",
        ],
    ),
    (
        "serve",
        &[
            "tidewire serve",
            "tidewire serve kv --durability sync --data /var/lib/tidewire",
            "tidewire serve ingest --listen ingest=logs.example:7400 --ingest-token-file token",
            "tidewire serve kv/resp --listen kv/resp=unix:/run/tidewire/kv.sock",
            "tidewire serve --config /etc/tidewire.toml --takeover",
        ],
    ),
    (
        "send",
        &[
            "tidewire send --producer app app.log",
            "tail -n 0 -F app.log | tidewire send --to logs.example:7400",
            "tidewire send --to 127.0.0.1:7400 --stream web --level received access.log",
        ],
    ),
    (
        "ship",
        &["tidewire ship '/var/log/nginx/*.log' --to logs.example:7400"],
    ),
    (
        "read",
        &[
            "tidewire read --from first",
            "tidewire read --stream web --since 10m --follow --raw",
            "tidewire read --cursor reports --json --count 100",
            "tidewire read --data tidewire-data --from first",
        ],
    ),
    (
        "stream",
        &[
            "tidewire stream list",
            "tidewire stream create web --retain-age 7d",
        ],
    ),
    ("stream list", &["tidewire stream list --json"]),
    ("stream show", &["tidewire stream show web"]),
    (
        "stream create",
        &["tidewire stream create web --retain-bytes 10GiB --retain-age 7d"],
    ),
    ("stream set", &["tidewire stream set web --retain-age none"]),
    ("stream delete", &["tidewire stream delete web --yes"]),
    (
        "stream delete-cursor",
        &["tidewire stream delete-cursor web reports"],
    ),
    (
        "info",
        &[
            "tidewire info",
            "tidewire info --admin https://db.example:7480 --json",
        ],
    ),
    (
        "top",
        &["tidewire top --admin 127.0.0.1:7480 --interval 500ms"],
    ),
    (
        "log",
        &[
            "tidewire log info --data /var/lib/tidewire",
            "tidewire log check",
        ],
    ),
    (
        "log info",
        &["tidewire log info --data /var/lib/tidewire/kv"],
    ),
    ("log streams", &["tidewire log streams"]),
    ("log check", &["tidewire log check --data /backup/today"]),
    ("log dump", &["tidewire log dump --records"]),
    (
        "log backup",
        &["tidewire log backup --data /var/lib/tidewire /backup/today"],
    ),
    (
        "log restore",
        &["tidewire log restore --data /var/lib/tidewire /backup/today"],
    ),
    (
        "log repair",
        &["tidewire log repair", "tidewire log repair --yes"],
    ),
    ("kv", &["tidewire kv import dump.rdb --to 127.0.0.1:6380"]),
    (
        "kv import",
        &["tidewire kv import dump.rdb --to 127.0.0.1:6380 --replace"],
    ),
    (
        "kv export",
        &["tidewire kv export --data /var/lib/tidewire dump.rdb"],
    ),
    (
        "bench",
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire bench ab echo --a engine=epoll --b engine=uring",
        ],
    ),
    (
        "bench echo",
        &[
            "tidewire bench echo --connections 50 --size 512 --duration 3s",
            "tidewire bench echo --addr db.example:12345 --rate 20k",
        ],
    ),
    (
        "bench ack",
        &["tidewire bench ack --preset sync --rounds 5"],
    ),
    (
        "bench kv",
        &[
            "tidewire bench kv --connections 50 --pipeline 16",
            "tidewire bench kv --addr 127.0.0.1:6379",
        ],
    ),
    (
        "bench http",
        &["tidewire bench http --connections 64 --path /bytes/1000"],
    ),
    (
        "bench discard",
        &["tidewire bench discard --size 4096 --duration 3s"],
    ),
    (
        "bench idle",
        &["tidewire bench idle --connections 10000 --duration 10s"],
    ),
    (
        "bench connect",
        &["tidewire bench connect --connections 50 --duration 3s"],
    ),
    (
        "bench ab",
        &["tidewire bench ab echo --a engine=epoll --b engine=uring --rounds 20"],
    ),
    (
        "bench ab echo",
        &["tidewire bench ab echo --a engine=epoll --b engine=uring --rounds 20"],
    ),
    (
        "bench ab ack",
        &["tidewire bench ab ack --a engine=epoll --b engine=uring"],
    ),
    (
        "bench ab kv",
        &["tidewire bench ab kv --a engine=uring --b 'addr=127.0.0.1:6379,name=redis'"],
    ),
    (
        "bench ab http",
        &["tidewire bench ab http --a workers=1 --b workers=2"],
    ),
    (
        "bench ab discard",
        &["tidewire bench ab discard --a engine=threads --b engine=uring"],
    ),
    (
        "bench ab idle",
        &["tidewire bench ab idle --a engine=epoll --b engine=uring"],
    ),
    (
        "bench ab connect",
        &["tidewire bench ab connect --a placement=shared --b placement=acceptor"],
    ),
    (
        "bench compare",
        &["tidewire bench compare before.json after.json --threshold 5"],
    ),
    (
        "lab",
        &[
            "tidewire lab engines --plan",
            "tidewire lab kv --json kv.json --html kv.html",
        ],
    ),
    (
        "config",
        &[
            "tidewire config example > tidewire.toml",
            "tidewire config check tidewire.toml",
        ],
    ),
    (
        "config example",
        &["tidewire config example > tidewire.toml"],
    ),
    (
        "config check",
        &["tidewire config check /etc/tidewire.toml"],
    ),
    (
        "completions",
        &["tidewire completions bash > ~/.local/share/bash-completion/completions/tidewire"],
    ),
    ("man", &["tidewire man /usr/local/share/man/man1"]),
];

/// What `-h` shows of a command with many flags. The others are in `--help`.
enum Shown {
    Only(&'static [&'static str]),
    But(&'static [&'static str]),
}

/// Of a command, by its words, and of those below it.
const SHORT: &[(&str, Shown)] = &[
    (
        "serve",
        Shown::Only(&[
            "config",
            "services",
            "engine",
            "workers",
            "bind",
            "listen",
            "data",
            "durability",
            "kv-maxmemory",
            "kv-password-file",
            "ingest-token-file",
            "tls-cert",
            "tls-key",
            "admin",
            "log",
            "takeover",
        ]),
    ),
    (
        "ship",
        Shown::Only(&[
            "what",
            "to",
            "stream",
            "producer",
            "state",
            "token-file",
            "once",
            "exclude",
            "multiline-start",
            "journal",
        ]),
    ),
    (
        "bench",
        Shown::But(&[
            "pid",
            "server-args",
            "arrivals",
            "ramp",
            "seed",
            "processes",
            "sources",
            "connect-within",
            "stall",
            "client-engine",
            "client-workers",
            "client-busy-poll",
            "congestion",
            "data",
            "server-cpu",
            "client-cpu",
            "no-pin",
            "sweep",
            "ceiling",
            "live",
            "warmup",
            "hgrm",
        ]),
    ),
    (
        "send",
        Shown::But(&["first-id", "accept-duplicates", "oversized"]),
    ),
    ("read", Shown::But(&[])),
    ("stream", Shown::But(&["timeout"])),
    ("info", Shown::But(&[])),
    ("top", Shown::But(&[])),
];

/// The same with examples, statuses and a short help.
pub(crate) fn dressed(command: Command) -> Command {
    dress(command, "")
}

fn dress(mut command: Command, words: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let below = format!("{words} {name}");
        command = command.mut_subcommand(&name, |sub| dress(sub, below.trim()));
    }
    let notes = command.get_after_help().map(ToString::to_string);
    let mut long = notes.unwrap_or_default();
    let is_for = |of: &str| {
        words == of
            || words
                .strip_prefix(of)
                .is_some_and(|rest| rest.starts_with(' '))
    };
    if !command.has_subcommands()
        && let Some((_, shown)) = SHORT.iter().find(|(of, _)| is_for(of))
    {
        command = shortened(command, words, shown);
    }
    let examples = EXAMPLES.iter().find(|(of, _)| *of == words);
    if let Some((_, examples)) = examples
        && !long.starts_with("Examples:")
    {
        let examples = format!("Examples:\n  {}", examples.join("\n  "));
        long = match long.is_empty() {
            true => examples,
            false => format!("{examples}\n\n{long}"),
        };
    }
    command.after_long_help(format!("{long}\n\n{}", exit::TABLE))
}

/// With few flags in the short help, the first sentence of each, and a word where the others are.
fn shortened(command: Command, words: &str, shown: &Shown) -> Command {
    command
        .mut_args(|arg| {
            let name = arg.get_long().unwrap_or(arg.get_id().as_str());
            let is_shown = match shown {
                Shown::Only(these) => these.contains(&name),
                // Who speaks TLS looks it up.
                Shown::But(these) => {
                    arg.get_help_heading() != Some("TLS") && !these.contains(&name)
                }
            };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            match is_shown {
                true => arg.help(first_sentence(&help)).long_help(help),
                false => arg.hide_short_help(true),
            }
        })
        .after_help(format!(
            "`tidewire {words} --help` has all flags, examples and notes."
        ))
}

/// Up to a full stop or a semicolon, and the default.
fn first_sentence(help: &str) -> String {
    let (text, default) = match help.split_once(" [default: ") {
        Some((text, rest)) => (text, format!(" [default: {rest}")),
        None => (help, String::new()),
    };
    let ends = [". ", "; "].iter().filter_map(|end| text.find(end));
    let end = ends.min().unwrap_or(text.len());
    format!("{}{default}", &text[..end])
}

/// Whether to colour what is shown: as `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` say, else on a terminal.
pub(crate) fn colours(is_terminal: bool) -> bool {
    colours_by(
        |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
        is_terminal,
    )
}

fn colours_by(get: impl Fn(&str) -> Option<String>, is_terminal: bool) -> bool {
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
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn each(command: &Command, words: &str, look: &mut dyn FnMut(&str, &Command)) {
        look(words, command);
        for sub in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            each(sub, format!("{words} {}", sub.get_name()).trim(), look);
        }
    }

    fn command() -> Command {
        let mut command = dressed(Cli::command()).term_width(100);
        command.build();
        command
    }

    #[test]
    fn every_command_has_examples_and_the_statuses() {
        let mut seen = Vec::new();
        each(&command(), "", &mut |words, command| {
            seen.push(words.to_owned());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:\n  "), "{words}: {help}");
            assert!(help.contains("Exit status, of all commands:"), "{words}");
        });
        let stale = EXAMPLES
            .iter()
            .find(|(words, _)| !seen.iter().any(|known| known == words));
        assert!(stale.is_none(), "{stale:?}");
    }

    #[test]
    fn every_example_is_one() {
        for (words, examples) in EXAMPLES {
            for example in *examples {
                let own = example
                    .split(" | ")
                    .find(|part| part.starts_with("tidewire"));
                let own = own.unwrap_or_else(|| panic!("{example}"));
                let own = own.split(" > ").next().unwrap();
                let args = own.split_whitespace().map(|word| word.trim_matches('\''));
                // Hosts of examples are nobody's, and are not looked up.
                let args = args.map(|word| word.replace("db.example", "127.0.0.1"));
                let parsed = command().try_get_matches_from(args);
                let shown = parsed.as_ref().err().filter(|e| e.use_stderr());
                assert!(shown.is_none(), "{example}: {}", shown.unwrap());
                assert!(own.contains(words), "{example} in {words:?}");
            }
        }
    }

    #[test]
    fn the_short_help_fits_on_a_screen() {
        each(&command(), "", &mut |words, command| {
            let help = command.clone().term_width(100).render_help().to_string();
            assert!(
                help.lines().count() <= 60,
                "{words}: {} lines\n{help}",
                help.lines().count()
            );
        });
    }

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
                colours_by(wishes(all), terminal),
                expected,
                "{all:?} {terminal}"
            );
        }
    }
}
