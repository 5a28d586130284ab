//! The sources of settings: a flag goes before the environment, the environment before the file. Each source becomes
//! a list of words that could stand on a command line, and all lists together are parsed once, as flags.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{ArgMatches, Args as _, Command, FromArgMatches};

use crate::exit::Failure;
use crate::serve::listeners::kind::services;
use crate::serve::product::{Products, entries};
use crate::serve::settings::args::{ADMIN_TOKEN, Flags, Options};
use crate::serve::settings::defaults::told;
use crate::serve::settings::file::{Beside, File};
use crate::serve::settings::given::Given;
use crate::serve::settings::schema::{Said, Schema, Setting, Shown, variable};

/// Names for one thing: a source that gives one of them hides the others in weaker sources. The
/// names of a secret are related in this way too.
const TOGETHER: [&[&str]; 2] = [
    &["tls-cert", "tls-key"],
    &["admin-tls-cert", "admin-tls-key"],
];

/// Secrets that the environment may hold. Secrets are no flags, because other users could see them;
/// `NAME-file` is a flag.
fn secrets() -> impl Iterator<Item = &'static str> {
    let own = services().filter_map(|service| service.secret);
    [ADMIN_TOKEN].into_iter().chain(own)
}

/// The settings of the frame, and of each product in the order of their list.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) options: Options,
    pub(crate) products: Products,
    /// The value of each setting and its source.
    pub(crate) values: Vec<Shown>,
}

impl Asked {
    fn read(schema: &Schema, matches: &ArgMatches) -> Result<Asked, clap::Error> {
        let mut products = Products::new();
        for entry in entries() {
            products.push((entry.service, (entry.read)(matches)?));
        }
        Ok(Asked {
            options: Options::from_arg_matches(matches)?,
            products,
            values: schema.values(matches),
        })
    }

    /// Takes what only the file says.
    fn take(&mut self, beside: Beside) {
        match beside {
            Beside::Listen(listen) => self.options.listen = listen,
            Beside::Product(service, _, value) => {
                let mut all = self.products.iter_mut();
                let product = all.find(|(of, _)| *of == service);
                product.expect("it is in the list").1.take(value);
            }
        }
    }

    /// Takes the secrets that the environment holds, where nothing that goes before it says them.
    fn take_secrets(&mut self) -> Result<(), Failure> {
        self.options.admin.take_secret()?;
        self.products
            .iter_mut()
            .try_for_each(|(_, product)| product.take_secret())
    }
}

/// What to serve, and how: what the flags say, and where the rest is found.
#[derive(Debug)]
pub(crate) struct Args {
    sources: Sources,
    /// The given flags, to find those without an effect.
    given: Given,
}

/// The settings of the command line, and of the file that the command line names. The file may be
/// read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    flags: Vec<Said>,
    config: Option<PathBuf>,
}

/// The flags of `serve`: flags of the frame, then flags of the products, each under its heading.
fn with_flags(command: Command) -> Command {
    let command = Flags::augment_args(command);
    let command = entries().iter().fold(command, |command, entry| {
        (entry.flags)(command.next_help_heading(entry.heading))
    });
    let more: Vec<_> = entries()
        .iter()
        .flat_map(|entry| (entry.defaults)())
        .collect();
    told(command.next_help_heading(None::<&str>), &more)
}

/// The schema of all settings; made once, because that takes some megabytes.
pub(crate) fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let table = |heading: &str| {
        let own = entries().iter().find(|entry| entry.heading == heading);
        match own {
            Some(entry) => entry.service.name.into(),
            None if heading == "Admin listener" => "admin".into(),
            None => heading.to_ascii_lowercase().replace(' ', "-"),
        }
    };
    SCHEMA.get_or_init(|| Schema::of(with_flags(Command::new("tidewire serve")), table))
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        with_flags(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        with_flags(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let schema = schema();
        let Flags { config, options } = Flags::from_arg_matches(matches)?;
        let flags = schema.said(matches);
        let names = flags.iter().filter_map(|said| schema.get(&said.name));
        Ok(Args {
            given: Given::among(names, &options),
            sources: Sources { flags, config },
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args {
    /// The settings of the flags, the environment and the file together.
    pub(crate) fn asked(self) -> Result<(Asked, Sources, Given), Failure> {
        let asked = self.sources.asked()?;
        Ok((asked, self.sources, self.given))
    }
}

impl Sources {
    /// The settings of all sources together. The file is read.
    pub(crate) fn asked(&self) -> Result<Asked, Failure> {
        let schema = schema();
        let environment = environment(schema, |name| std::env::var_os(name));
        let environment = environment.map_err(Failure::usage)?;
        let config = self.config.clone().or_else(|| {
            let path = std::env::var_os("TIDEWIRE_CONFIG")?;
            (!path.is_empty()).then(|| path.into())
        });
        let file = match &config {
            Some(path) => File::read(schema, path)?,
            None => File::default(),
        };
        together(schema, &self.flags, environment, file).map_err(Failure::usage)
    }
}

/// The settings in a file alone.
pub(crate) fn asked_of(schema: &Schema, file: File) -> Result<Asked, String> {
    together(schema, &[], Vec::new(), file)
}

fn together(
    schema: &Schema,
    flags: &[Said],
    environment: Vec<Said>,
    file: File,
) -> Result<Asked, String> {
    let environment = beneath(environment, flags);
    let above: Vec<Said> = flags.iter().cloned().chain(environment).collect();
    let beside = file.beside.into_iter().filter(|beside| {
        let name = beside.name();
        !above.iter().any(|said| are_together(&said.name, name))
    });
    let beside: Vec<Beside> = beside.collect();
    let all: Vec<Said> = beneath(file.said, &above)
        .into_iter()
        .chain(above)
        .collect();
    let mut asked = Asked::read(schema, &schema.read(&all)?).map_err(|e| e.to_string())?;
    beside.into_iter().for_each(|one| asked.take(one));
    asked.take_secrets().map_err(|e| e.message)?;
    Ok(asked)
}

/// The settings in `all` that `above` does not hide.
fn beneath(all: Vec<Said>, above: &[Said]) -> Vec<Said> {
    let hidden = |said: &Said| above.iter().any(|of| are_together(&of.name, &said.name));
    all.into_iter().filter(|said| !hidden(said)).collect()
}

fn are_together(one: &str, other: &str) -> bool {
    let both = |names: &&[&str]| names.contains(&one) && names.contains(&other);
    let names = |secret: &str, name: &str| name.strip_suffix("-file").unwrap_or(name) == secret;
    let mut secrets = secrets().filter(|secret| names(secret, one) && names(secret, other));
    one == other || TOGETHER.iter().any(both) || secrets.next().is_some()
}

/// The settings of the environment. Where a setting may be said several times, blanks stand between its
/// values.
fn environment(
    schema: &Schema,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<Said>, String> {
    let mut all = Vec::new();
    for setting in schema.settings() {
        let variable = setting.variable();
        let Some(value) = get(&variable) else {
            continue;
        };
        let said = setting.said(values(setting, &variable, value)?);
        schema
            .check(&said)
            .map_err(|e| format!("the variable {variable}: {e}"))?;
        all.push(said);
    }
    for name in secrets() {
        let variable = variable(name);
        if get(&variable).is_none() {
            continue;
        }
        if all.iter().any(|said| are_together(&said.name, name)) {
            return Err(format!(
                "the variables {variable} and {variable}_FILE are two secrets: name one of them"
            ));
        }
        all.push(Said {
            name: name.into(),
            words: Vec::new(),
        });
    }
    Ok(all)
}

/// Variables that begin like variables of settings, are none, and resemble one: their names, and
/// what was perhaps meant.
pub(crate) fn misspelt(names: impl Iterator<Item = OsString>) -> Vec<(String, String)> {
    let schema = schema();
    let near = |name: OsString| {
        let name = name.into_string().ok()?;
        let flag = name.strip_prefix("TIDEWIRE_")?;
        let flag = flag.to_ascii_lowercase().replace('_', "-");
        let is_known = flag == "config"
            || secrets().any(|secret| secret == flag)
            || schema.get(&flag).is_some();
        let meant = (!is_known).then(|| schema.similar(&flag)).flatten()?;
        // A slip, and not a variable of something else that begins so.
        let is_slip = meant.len().abs_diff(flag.len()) <= 1 && meant.starts_with(flag.get(..1)?);
        is_slip.then_some(())?;
        Some((name, schema.get(&meant)?.variable()))
    };
    names.filter_map(near).collect()
}

fn values(setting: &Setting, variable: &str, value: OsString) -> Result<Vec<OsString>, String> {
    if !setting.repeats() && !setting.is_switch() {
        return Ok(vec![value]);
    }
    let Some(text) = value.to_str() else {
        return Err(format!("the variable {variable} is not UTF-8"));
    };
    match (setting.is_switch(), text) {
        (true, "true" | "false") => Ok(vec![value]),
        (true, _) => Err(format!("the variable {variable}: true or false")),
        (false, text) => Ok(text.split_whitespace().map(OsString::from).collect()),
    }
}

/// The frame's settings in a file, for tests.
#[cfg(test)]
pub(crate) fn in_file(text: &str) -> Result<Options, String> {
    asked_in_file(text).map(|asked| asked.options)
}

/// A product's settings in a file, for tests.
#[cfg(test)]
pub(crate) fn product_in_file<P: crate::serve::product::Product>(
    text: &str,
) -> Result<Box<P>, String> {
    let asked = asked_in_file(text)?;
    let mut products = asked
        .products
        .into_iter()
        .map(|(_, product)| product as Box<dyn std::any::Any>);
    Ok(products
        .find_map(|product| product.downcast().ok())
        .expect("it is in the list"))
}

#[cfg(test)]
fn asked_in_file(text: &str) -> Result<Asked, String> {
    let schema = schema();
    let (file, problems) = File::parse(schema, text);
    match problems.first() {
        Some(problem) => Err(problem.to_string()),
        None => asked_of(schema, file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &[&str]) -> Vec<Said> {
        let matches = with_flags(Command::new("serve"))
            .no_binary_name(true)
            .try_get_matches_from(words)
            .unwrap();
        schema().said(&matches)
    }

    fn all(words: &[&str], variables: &[(&str, &str)], file: &str) -> Result<Asked, String> {
        let schema = schema();
        let get = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).into())
        };
        let (file, problems) = File::parse(schema, file);
        assert!(problems.is_empty(), "{problems:?}");
        together(schema, &flags(words), environment(schema, get)?, file)
    }

    #[test]
    fn a_flag_goes_before_the_environment_and_that_before_the_file() {
        let file = "workers = 2\nbusy-poll = 30\ncpus = [0]\ndirect-descriptors = true\n\
                    services = ['echo']\nlog-connections = true\nlinger = 7\n";
        let variables = [
            ("TIDEWIRE_WORKERS", "3"),
            ("TIDEWIRE_BUSY_POLL", "40"),
            ("TIDEWIRE_CPUS", "1 2,3"),
            ("TIDEWIRE_SERVICES", "kv ingest"),
            ("TIDEWIRE_LOG_CONNECTIONS", "false"),
        ];
        let options = all(&["--workers", "4", "discard"], &variables, file)
            .unwrap()
            .options;
        assert_eq!((options.workers, options.busy_poll), (Some(4), 40));
        assert_eq!(options.cpus, [1, 2, 3]);
        assert!(options.direct_descriptors);
        assert_eq!(options.services, ["discard".parse().unwrap()]);
        assert!(!options.log_connections);
        assert_eq!(options.linger.to_string(), "7s");
        let options = all(&[], &[], file).unwrap().options;
        assert!(options.log_connections);
        assert_eq!((options.workers, options.cpus), (Some(2), vec![0]));
    }

    #[test]
    fn what_goes_together_comes_from_one_place() {
        let file = "tls-cert = 'c'\ntls-key = 'k'\ntls-client-ca = 'a'\nkv-password = 'older'\n\
                    listen = ['echo=7']\n[[ingest.tokens]]\nname = 'n'\nsha256 = 'ff'\n";
        let asked = all(&["--tls-cert", "c2", "--listen=echo=8"], &[], file).unwrap();
        let options = &asked.options;
        assert_eq!(options.tls.cert.as_deref().unwrap().to_str(), Some("c2"));
        assert_eq!(options.tls.key, None);
        assert!(options.tls.client_ca.is_some());
        assert_eq!(options.listen, ["echo=8".parse().unwrap()]);
        let has = |asked: Asked, what: &str| format!("{:?}", asked.products).contains(what);
        let password = "password: Some(Secret(...))";
        assert!(has(asked, password));
        assert!(has(all(&[], &[], file).unwrap(), "TokenEntry"));
        assert!(!has(
            all(&["--kv-password-file=f"], &[], file).unwrap(),
            password
        ));
        let variable = [("TIDEWIRE_KV_PASSWORD_FILE", "f")];
        assert!(!has(all(&[], &variable, file).unwrap(), password));
    }

    #[test]
    fn what_is_wrong_in_the_environment_is_said_with_its_name() {
        for (variable, value, said) in [
            (
                "TIDEWIRE_WORKERS",
                "many",
                "TIDEWIRE_WORKERS: invalid value 'many'",
            ),
            ("TIDEWIRE_SERVICES", "gopher", "gopher"),
            ("TIDEWIRE_SERVICES", "--takeover", "--takeover"),
            ("TIDEWIRE_LOG_CONNECTIONS", "perhaps", "true or false"),
        ] {
            let e = all(&[], &[(variable, value)], "").unwrap_err();
            assert!(e.contains(said), "{e}");
        }
        let two = [
            ("TIDEWIRE_KV_PASSWORD", "a"),
            ("TIDEWIRE_KV_PASSWORD_FILE", "b"),
        ];
        assert!(all(&[], &two, "").unwrap_err().contains("two secrets"));
    }

    #[test]
    fn a_variable_with_a_slip_is_noticed() {
        let names = [
            "TIDEWIRE_WOKERS",
            "TIDEWIRE_WORKERS",
            "TIDEWIRE_CONFIG",
            "TIDEWIRE_KV_PASSWORD",
            "TIDEWIRE_TOKEN",
            "TIDEWIRE_SEEDS",
            "WOKERS",
        ];
        let noticed = misspelt(names.into_iter().map(OsString::from));
        let expected = ("TIDEWIRE_WOKERS".to_owned(), "TIDEWIRE_WORKERS".to_owned());
        assert_eq!(noticed, [expected]);
    }
}
