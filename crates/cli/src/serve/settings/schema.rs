//! The schema of the settings of `serve`, made from its flags. The names of a setting in the configuration file and in
//! the environment, its meaning, and whether it may be repeated follow from its flag. So a new flag is a new key and a
//! new variable.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;

use crate::size::Size;
use crate::span::Span;

/// Flags that are no settings.
const NO_SETTINGS: [&str; 2] = ["config", "help"];

/// Flags that make sense for one start of the server only.
const OF_ONE_START: [&str; 2] = ["takeover", "takeover-forget"];

/// The prefix of the environment variables.
const VARIABLES: &str = "TIDEWIRE_";

/// All settings.
pub(crate) struct Schema {
    command: Command,
    settings: Vec<Setting>,
    /// Settings that only a command line may have, because they are for one start.
    of_one_start: Vec<Setting>,
}

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The name of the flag, without dashes.
    pub(crate) name: String,
    /// The table of the file that it may stand in.
    pub(crate) table: Option<String>,
    arg: Arg,
}

/// A setting as it was given, in the form of a command line.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) name: String,
    pub(crate) words: Vec<OsString>,
}

/// The value of a setting and its source.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) name: String,
    /// The name without that of the table.
    pub(crate) key: String,
    pub(crate) table: Option<String>,
    pub(crate) value: Value,
}

impl Schema {
    /// The schema of a command's flags. `table` names the table of the file for a heading of the help.
    pub(crate) fn of(command: Command, table: impl Fn(&str) -> String) -> Schema {
        let mut command = command.no_binary_name(true);
        command.build();
        let flags = command
            .get_arguments()
            .filter_map(|arg| Setting::of(arg, &table));
        let (of_one_start, settings) =
            flags.partition(|flag: &Setting| OF_ONE_START.contains(&&*flag.name));
        Schema {
            command,
            settings,
            of_one_start,
        }
    }

    /// All settings, in the order of the help.
    pub(crate) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// The name of the setting that a key in a table means: its own, or that without the table's in front.
    pub(crate) fn in_table(&self, table: &str, key: &str) -> Option<&Setting> {
        let within = |setting: &&Setting| setting.table.as_deref() == Some(table);
        let long = format!("{table}-{key}");
        let mut settings = self.settings.iter().filter(within);
        settings
            .clone()
            .find(|setting| setting.name == long)
            .or_else(|| settings.find(|setting| setting.name == key))
    }

    /// Whether there is a table of this name.
    pub(crate) fn has_table(&self, table: &str) -> bool {
        let mut settings = self.settings.iter();
        settings.any(|setting| setting.table.as_deref() == Some(table))
    }

    /// The table that a user perhaps means when writing a setting as a table.
    pub(crate) fn table_like(&self, name: &str) -> Option<&str> {
        let mut tables = self
            .settings
            .iter()
            .filter_map(|setting| setting.table.as_deref());
        tables.find(|table| table.split('-').any(|word| word == name))
    }

    /// The setting that was perhaps meant.
    pub(crate) fn similar(&self, name: &str) -> Option<String> {
        let asked = self
            .command
            .clone()
            .try_get_matches_from([format!("--{name}")]);
        match asked.err()?.get(ContextKind::SuggestedArg)? {
            ContextValue::String(flag) => {
                let known = self.get(flag.trim_start_matches('-'));
                known.map(|setting| setting.name.clone())
            }
            _ => None,
        }
    }

    /// Whether this could stand on the command line, as far as it can be told of one setting.
    pub(crate) fn check(&self, said: &Said) -> Result<(), String> {
        let Err(e) = self.command.clone().try_get_matches_from(&said.words) else {
            return Ok(());
        };
        match e.kind() {
            ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
            _ => Err(in_words(&e)),
        }
    }

    /// Parses all given settings as flags.
    pub(crate) fn read(&self, all: &[Said]) -> Result<ArgMatches, String> {
        let words = all.iter().flat_map(|said| &said.words);
        let read = self.command.clone().try_get_matches_from(words);
        read.map_err(|e| in_words(&e))
    }

    /// The given value of each setting, or its default.
    pub(crate) fn values(&self, matches: &ArgMatches) -> Vec<Shown> {
        let shown = |setting: &Setting| {
            let raw = matches.get_raw(setting.arg.get_id().as_str());
            let raw = raw.into_iter().flatten();
            Shown {
                name: setting.name.clone(),
                key: setting.key().to_owned(),
                table: setting.table.clone(),
                value: setting.shown(raw.map(|value| value.to_string_lossy().into_owned())),
            }
        };
        self.settings.iter().map(shown).collect()
    }

    /// The settings that a command line gives.
    pub(crate) fn said(&self, matches: &ArgMatches) -> Vec<Said> {
        let given = |setting: &&Setting| {
            let source = matches.value_source(setting.arg.get_id().as_str());
            source == Some(clap::parser::ValueSource::CommandLine)
        };
        let flags = self.settings.iter().chain(&self.of_one_start);
        let said = flags.filter(given);
        said.map(|setting| {
            let values = matches.get_raw(setting.arg.get_id().as_str());
            let values = values.into_iter().flatten().map(OsString::from).collect();
            setting.said(values)
        })
        .collect()
    }
}

impl Setting {
    fn of(arg: &Arg, table: impl Fn(&str) -> String) -> Option<Setting> {
        let name = arg.get_long().unwrap_or(arg.get_id().as_str());
        if NO_SETTINGS.contains(&name) {
            return None;
        }
        Some(Setting {
            name: name.to_owned(),
            table: arg.get_help_heading().map(table),
            arg: arg.clone(),
        })
    }

    /// Whether the setting is a switch, without a value.
    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::SetTrue)
    }

    /// Whether the setting may have several values.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::Append)
    }

    /// The setting's variable of the environment.
    pub(crate) fn variable(&self) -> String {
        variable(&self.name)
    }

    /// The help text of the setting.
    pub(crate) fn help(&self) -> String {
        let help = self.arg.get_long_help().or(self.arg.get_help());
        help.map(StyledStr::to_string).unwrap_or_default()
    }

    /// The default of the setting, if it is a value that could be given.
    pub(crate) fn default(&self) -> Option<String> {
        let value = self.arg.get_default_values().first()?;
        Some(value.to_string_lossy().into_owned()).filter(|_| !self.is_switch())
    }

    /// The key of the setting in its table: its name, without the name of the table.
    pub(crate) fn key(&self) -> &str {
        let table = self.table.as_deref().unwrap_or_default();
        let own = self
            .name
            .strip_prefix(table)
            .and_then(|rest| rest.strip_prefix('-'));
        own.unwrap_or(&self.name)
    }

    /// Values of the setting as JSON: bytes and seconds are numbers.
    fn shown(&self, values: impl Iterator<Item = String>) -> Value {
        let shown = |text: String| match self.value_name() {
            "SIZE" => text
                .parse::<Size>()
                .map_or(Value::Null, |Size(bytes)| bytes.into()),
            "SECS" | "TIME" => text
                .parse::<Span>()
                .map_or(Value::Null, |Span(time)| time.as_secs_f64().into()),
            _ => match (text.parse::<u64>(), text.parse::<bool>()) {
                (Ok(number), _) => number.into(),
                (_, Ok(is)) => is.into(),
                _ => text.into(),
            },
        };
        let mut values = values.map(shown);
        match self.repeats() {
            true => values.collect(),
            false => values.next().unwrap_or_default(),
        }
    }

    /// The name of the flag's value in the help.
    pub(crate) fn value_name(&self) -> &str {
        let names = self.arg.get_value_names();
        names
            .and_then(|names| names.first())
            .map_or("", |name| name.as_str())
    }

    /// The setting with these values.
    pub(crate) fn said(&self, values: Vec<OsString>) -> Said {
        let flag = |value: OsString| {
            let mut word = OsString::from(format!("--{}=", self.name));
            word.push(value);
            word
        };
        let words = match (self.is_switch(), self.arg.is_positional()) {
            (true, _) => match values.iter().any(|value| value == "true") {
                true => vec![format!("--{}", self.name).into()],
                false => Vec::new(),
            },
            // A word that begins like a flag would be one.
            (false, true) => values
                .into_iter()
                .map(|value| match value.as_encoded_bytes().starts_with(b"-") {
                    true => format!("{:?}", value).into(),
                    false => value,
                })
                .collect(),
            (false, false) => values.into_iter().map(flag).collect(),
        };
        Said {
            name: self.name.clone(),
            words,
        }
    }
}

/// The environment variable of a setting with this name.
pub(crate) fn variable(name: &str) -> String {
    format!("{VARIABLES}{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// The error text of clap, without the parts that are only for terminals.
fn in_words(e: &clap::Error) -> String {
    let text = e.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let words = text.split("\n\n").next().unwrap_or(text);
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
