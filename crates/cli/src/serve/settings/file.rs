//! The configuration file: a TOML file whose keys are the names of the flags. The file is turned into words that could
//! stand on a command line, and into settings that no flag can express. All mistakes in a file are found at once, each
//! with its line.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::exit::Failure;
use crate::serve::listeners::kind::Service;
use crate::serve::listeners::listen_at::ListenAt;
use crate::serve::product::{FileKey, entries};
use crate::serve::settings::schema::{Said, Schema, Setting};

/// The contents of a file.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) said: Vec<Said>,
    pub(crate) beside: Vec<Beside>,
}

/// A setting that no flag can express, so it stands in the file only.
#[derive(Debug)]
pub(crate) enum Beside {
    /// Listeners, of which some are tables.
    Listen(Vec<ListenAt>),
    /// A setting of a product.
    Product(&'static Service, &'static FileKey, Box<dyn Any>),
}

/// The key for listeners.
const LISTEN: &str = "listen";

impl Beside {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Beside::Listen(_) => LISTEN,
            Beside::Product(_, key, _) => key.name,
        }
    }
}

/// The keys of products.
fn keys() -> impl Iterator<Item = (&'static Service, &'static FileKey)> {
    let all = entries().iter();
    all.flat_map(|entry| entry.keys.iter().map(|key| (entry.service, key)))
}

/// A fault in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The line of the setting, from 1.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl File {
    /// Reads one that must be right.
    pub(crate) fn read(schema: &Schema, path: &Path) -> Result<File, Failure> {
        let text = text_of(path)?;
        let (file, problems) = File::parse(schema, &text);
        match problems.first() {
            None => Ok(file),
            Some(first) => {
                let more = match problems.len() - 1 {
                    0 => String::new(),
                    n => format!(" (and {n} more: `tidewire config check` shows them all)"),
                };
                let path = path.display();
                Err(Failure::usage(format!(
                    "configuration {path}, {first}{more}"
                )))
            }
        }
    }

    /// The settings in the text, and all mistakes in it.
    pub(crate) fn parse(schema: &Schema, text: &str) -> (File, Vec<Problem>) {
        let mut reading = Reading {
            schema,
            text,
            file: File::default(),
            problems: Vec::new(),
        };
        let (root, errors) = DeTable::parse_recoverable(text);
        for e in errors {
            reading.wrong(e.span().unwrap_or_default(), e.message());
        }
        // Settings behind a mistake of grammar may be misread.
        if reading.problems.is_empty() {
            reading.root(root.into_inner());
        }
        reading.problems.sort_by_key(|problem| problem.line);
        (reading.file, reading.problems)
    }
}

/// The text of a file, which must be one.
pub(crate) fn text_of(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| {
        let path = path.display();
        Failure::usage(format!("cannot read the configuration {path}: {e}"))
    })
}

struct Reading<'a> {
    schema: &'a Schema,
    text: &'a str,
    file: File,
    problems: Vec<Problem>,
}

impl<'a> Reading<'a> {
    fn wrong(&mut self, at: Range<usize>, what: impl Into<String>) {
        let before = &self.text.as_bytes()[..at.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        self.problems.push(Problem {
            line,
            what: what.into(),
        });
    }

    fn root(&mut self, root: DeTable<'a>) {
        for (key, value) in root {
            let (at, name) = (key.span(), key.into_inner());
            if name != LISTEN && self.schema.has_table(&name) && value.get_ref().is_table() {
                let DeValue::Table(table) = value.into_inner() else {
                    continue;
                };
                self.table(&name, table);
            } else if name == LISTEN {
                self.listen(at, value);
            } else if let Some(key) = keys().find(|(_, key)| key.name == name) {
                self.key(key, at, value);
            } else if let Some(setting) = self.schema.get(&name) {
                self.setting(setting, at, value);
            } else {
                let what = self.unknown(&name, &name, value.get_ref().is_table());
                self.wrong(at, what);
            }
        }
    }

    fn table(&mut self, table: &str, pairs: DeTable<'a>) {
        for (key, value) in pairs {
            let (at, key) = (key.span(), key.into_inner());
            let long = format!("{table}-{key}");
            let mut keys = keys().filter(|(of, _)| of.name == table);
            if let Some(own) = keys.find(|(_, own)| own.name == long || *own.name == *key) {
                self.key(own, at, value);
            } else if let Some(setting) = self.schema.in_table(table, &key) {
                self.setting(setting, at, value);
            } else {
                let what = match self.schema.get(&key) {
                    Some(of) => format!(
                        "`{key}` does not belong into [{table}]: put it {}",
                        of.table
                            .as_ref()
                            .map_or("above all tables".into(), |table| format!("in [{table}]"))
                    ),
                    None => self.unknown(&format!("{table}.{key}"), &long, false),
                };
                self.wrong(at, what);
            }
        }
    }

    fn unknown(&self, shown: &str, name: &str, is_table: bool) -> String {
        let what = match is_table {
            true => format!("unknown table [{shown}]"),
            false => format!("unknown setting `{shown}`"),
        };
        let short = name.split_once('-').map(|(_, short)| short);
        let similar = || {
            let whole = self.schema.similar(name);
            whole.or_else(|| self.schema.similar(short?))
        };
        match (!is_table).then(similar).flatten() {
            Some(similar) => format!("{what}: did you mean `{similar}`?"),
            None => format!("{what}: `tidewire config example` lists all of them"),
        }
    }

    fn setting(&mut self, setting: &Setting, at: Range<usize>, value: Spanned<DeValue<'a>>) {
        let name = &setting.name;
        if value.get_ref().is_table() {
            let table = self.schema.table_like(name);
            let hint = table.map_or(String::new(), |table| format!(": did you mean [{table}]?"));
            return self.wrong(at, format!("`{name}` is a value, not a table{hint}"));
        }
        let values = match texts(setting, value.get_ref()) {
            Ok(values) => values,
            Err(what) => return self.wrong(at, format!("`{name}`: {what}")),
        };
        if self.file.said.iter().any(|said| said.name == *name) {
            return self.wrong(at, format!("`{name}` is set twice"));
        }
        let said = setting.said(values);
        match self.schema.check(&said) {
            Ok(()) => self.file.said.push(said),
            Err(what) => self.wrong(at, what),
        }
    }

    fn listen(&mut self, at: Range<usize>, value: Spanned<DeValue<'a>>) {
        let is_one = value.get_ref().is_str();
        let from = ValueDeserializer::from(value);
        let read = match is_one {
            true => ListenAt::deserialize(from).map(|one| vec![one]),
            false => Vec::deserialize(from),
        };
        match read {
            Ok(all) => self.file.beside.push(Beside::Listen(all)),
            Err(e) => self.cannot_read(LISTEN, at, &e),
        }
    }

    fn key(
        &mut self,
        (service, key): (&'static Service, &'static FileKey),
        at: Range<usize>,
        value: Spanned<DeValue<'a>>,
    ) {
        match (key.read)(ValueDeserializer::from(value)) {
            Ok(value) => self.file.beside.push(Beside::Product(service, key, value)),
            // The parser's message would show the secret.
            Err(_) if key.is_secret => self.wrong(at, format!("`{}`: a text is meant", key.name)),
            Err(e) => self.cannot_read(key.name, at, &e),
        }
    }

    fn cannot_read(&mut self, name: &str, at: Range<usize>, e: &toml::de::Error) {
        self.wrong(e.span().unwrap_or(at), format!("`{name}`: {}", e.message()));
    }
}

/// The values of a setting as they would stand on a command line.
fn texts(setting: &Setting, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    match value {
        DeValue::Boolean(on) if setting.is_switch() => Ok(vec![on.to_string().into()]),
        _ if setting.is_switch() => Err("true or false".into()),
        DeValue::Array(_) if !setting.repeats() => Err("one value, not a list".into()),
        DeValue::Array(all) => all.iter().map(|one| text(one.get_ref())).collect(),
        one => Ok(vec![text(one)?]),
    }
}

fn text(value: &DeValue<'_>) -> Result<OsString, String> {
    let wrong = || Err("a text or a number is meant".into());
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Integer(n) => match i128::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => n.to_string(),
            Err(_) => return wrong(),
        },
        DeValue::Float(n) => match n.as_str().parse::<f64>() {
            Ok(n) => n.to_string(),
            Err(_) => return wrong(),
        },
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => return wrong(),
    };
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::sources::{asked_of, schema};

    fn problems(text: &str) -> Vec<String> {
        let (_, problems) = File::parse(schema(), text);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_are_wrong_are_found_with_their_lines_and_what_was_meant() {
        let text = "workers = 2\nwokers = 3\n\n[kv]\nmaxmemry = '1GiB'\nworkers = 4\n[kw]\nx = 1\n[log]\ndir = 'x'\n";
        assert_eq!(
            problems(text),
            [
                "line 2: unknown setting `wokers`: did you mean `workers`?",
                "line 5: unknown setting `kv.maxmemry`: did you mean `kv-maxmemory`?",
                "line 6: `workers` does not belong into [kv]: put it above all tables",
                "line 7: unknown table [kw]: `tidewire config example` lists all of them",
                "line 9: `log` is a value, not a table: did you mean [durable-log]?",
            ]
        );
        for (text, said) in [
            ("workers =", "line 1: "),
            (
                "\nworkers = 'many'",
                "line 2: invalid value 'many' for '--workers",
            ),
            ("engine = 'steam'", "steam"),
            ("workers = [1, 2]", "one value, not a list"),
            ("log-connections = 'yes'", "true or false"),
            ("workers = 2020-01-01", "a text or a number"),
            ("workers = -1", "-1"),
            (
                "kv-maxmemory = 1\n[kv]\nmaxmemory = 2",
                "`kv-maxmemory` is set twice",
            ),
            ("takeover = true", "takeover"),
            ("config = 'other'", "config"),
            ("services = ['--takeover']", "--takeover"),
            (
                "services = ['echo']\n[[listen]]\nservice = 'echo'\nat = '7'\nmax-conections = 7",
                "line 5: `listen`: ",
            ),
            ("listen = 7", "line 1: `listen`: "),
            ("listen = 'gopher=7'", "gopher"),
            ("kv-password = 7", "`kv-password`: "),
            ("admin-token = 'x'", "admin-token"),
            ("ingest-tokens = [{name = 'a'}]", "sha256"),
        ] {
            let all = problems(text);
            assert!(
                all.iter().any(|problem| problem.contains(said)),
                "{text}: {all:?}"
            );
        }
    }

    #[test]
    fn a_secret_is_in_no_message() {
        let all = problems("kv-password = 5353\n[kv]\npasword = '5353'\n");
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(!format!("{all:?}").contains("5353"), "{all:?}");
    }

    /// Every flag is a key of the same name, at the top and in its table, under its whole name and the rest of it.
    #[test]
    fn every_flag_is_a_key() {
        let schema = schema();
        assert!(schema.settings().len() > 80);
        for setting in schema.settings() {
            let name = &setting.name;
            let value = sample(setting);
            let short = setting.table.as_ref().map(|table| {
                let prefix = format!("{table}-");
                let short = name.strip_prefix(&prefix).unwrap_or(name);
                format!("[{table}]\n{short} = {value}\n")
            });
            let long = setting
                .table
                .as_ref()
                .map(|table| format!("[{table}]\n{name} = {value}\n"));
            let top = format!("{name} = {value}\n");
            let texts: Vec<String> = [Some(top), short, long].into_iter().flatten().collect();
            let mut shown = texts.iter().map(|text| {
                let (file, problems) = File::parse(schema, text);
                assert!(problems.is_empty(), "{text}: {problems:?}");
                assert_eq!(file.said.len() + file.beside.len(), 1, "{text}");
                let options = asked_of(schema, file).unwrap_or_else(|e| panic!("{text}: {e}"));
                format!("{options:?}")
            });
            let first = shown.next().unwrap();
            let nothing = asked_of(schema, File::default()).unwrap();
            assert_ne!(first, format!("{nothing:?}"), "{name}");
            assert!(shown.all(|other| other == first), "{name}");
        }
    }

    /// A value that is not the default, found by trying.
    fn sample(setting: &Setting) -> String {
        if setting.is_switch() {
            return "true".into();
        }
        let values = [
            "7",
            "echo",
            "epoll",
            "json",
            "info",
            "interval:1s",
            "refuse",
            "tail",
            "declared",
            "received",
            "acceptor",
            "10.0.0.0/8",
            "echo=7",
            "127.0.0.1:7",
            "127.0.0.1",
            "noeviction",
            "true",
            "file",
            "message",
        ];
        let schema = schema();
        let fits = |value: &&&str| {
            let said = setting.said(vec![value.into()]);
            schema.check(&said).is_ok()
        };
        let value = values.iter().find(fits);
        let value = value.unwrap_or_else(|| panic!("no sample for {}", setting.name));
        format!("{value:?}")
    }
}
