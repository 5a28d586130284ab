//! The key-value load, on a command line.

use std::fs;
use std::path::PathBuf;

use tidewire_command::count;

use super::extent::Extent;
use super::kv_keys::KeyChoice;
use super::kv_load::KvLoad;
use super::kv_mix::Mix;
use super::kv_template::Template;
use super::kv_values::ValueSizes;
use super::kv_wire::Wire;
use super::load::Workload;
use super::options::{Chosen, First, Kind, Options, Unfit, bounded};

/// Commands on keys.
pub(super) const KIND: Kind = Kind::of::<KvArgs>(
    "kv",
    "GET and SET, or a command of one's own, with random keys; every reply is checked",
)
.used(
    &[
        "tidewire bench kv --connections 50 --pipeline 16",
        "tidewire bench kv --addr 127.0.0.1:6379",
    ],
    &["tidewire bench ab kv --a engine=uring --b 'addr=127.0.0.1:6379,name=redis'"],
)
.briefly(&[
    ("keys", "How many, and how chosen [default: 1m]"),
    ("value-size", "Bytes [default: 64]"),
    ("reads", "GET in percent [default: 50]"),
    ("command", "Instead of GET and SET"),
]);

/// Longest value.
const VALUE_MAX: usize = 8_192;
/// Longest value of the binary protocol.
const BINARY_VALUE_MAX: usize = 255;
/// Most lengths of a weighted list.
const LENGTHS_MAX: usize = 64;
/// Largest script.
const SCRIPT_MAX: u64 = 1 << 20;
/// Default number of keys.
const KEYS: u64 = 1_000_000;
/// Bytes of a command beside its words, at most, where it has few.
const FRAMING: usize = 64;
/// Default call of a script.
const CALL: &str = "EVALSHA {sha} 1 {key}";

/// The key-value load.
#[derive(Clone, Debug, clap::Args)]
struct KvArgs {
    /// How commands are written: resp, or binary for READ and WRITE of the small binary protocol
    #[arg(long, default_value = "resp", value_name = "NAME", value_parser = wire)]
    protocol: Wire,
    /// How many keys there are, and how one is chosen: evenly, or with zipf:THETA such that key k, from 1, is as likely
    /// as 1/k^THETA (0.99 is common; drawn exactly, by rejection-inversion). Such as 10k, zipf:0.99 (of 1m keys) or
    /// 10k,zipf:0.99
    #[arg(long, default_value = "1m", value_name = "N[,zipf:THETA]", value_parser = keys)]
    keys: Keys,
    /// Bytes of a key, 17 to 255
    #[arg(long, default_value_t = 17, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(17..))]
    key_size: u8,
    /// Bytes of a value, at most 8192, in the binary protocol 255: one length, evenly from one to another as 64..1024
    /// (both included), or lengths with weights as 64:90,1k:9,8k:1. A key keeps its length, so that what is read can be
    /// checked to the byte
    #[arg(long = "value-size", visible_alias = "size", default_value = "64", value_name = "BYTES", value_parser = sizes)]
    size: ValueSizes,
    /// Commands sent together; the next follow when all are answered. With --rate, most in flight on
    /// each connection
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::some)]
    pipeline: u32,
    /// The share of GET in percent; the others are SET
    #[arg(long, default_value_t = 50.0, value_name = "PERCENT", conflicts_with_all = ["command", "script"])]
    reads: f64,
    /// Sends this command instead of GET and SET, such as 'HSET h:{key} f {value}'. {key} is the key as text, {n} its
    /// number, {value} its value; quotes hold words with blanks together, {{ and }} are braces. No key is set first,
    /// unless --fill-command says how. May be repeated, with a weight in front of each as '80:GET {key}': each time one of
    /// them is drawn
    #[arg(long, value_name = "[WEIGHT:]COMMAND", value_parser = weighted)]
    command: Vec<Weighted>,
    /// What every reply to --command has to be: any (but an error), or kinds with | between, which are status, error,
    /// integer, bulk, nil, array, map, double and boolean; the first four may say what they hold, as nil|bulk:{value}
    /// [default: of the kind that the first reply has, or nil; never an error]. Once for all commands, or once for each
    #[arg(long, value_name = "KINDS", value_parser = reply)]
    reply: Vec<String>,
    /// Sends this for every key once before anything is measured, such as 'HSET h:{key} f {value}'
    #[arg(long, value_name = "COMMAND", value_parser = template, conflicts_with = "no_fill")]
    fill_command: Option<String>,
    /// Loads this Lua script into the server first; {sha} in --command is then its digest
    /// [default for --command: EVALSHA {sha} 1 {key}]
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Does not set every key first, before anything is measured
    #[arg(long)]
    no_fill: bool,
}

/// A command, and how often it is sent beside others.
#[derive(Clone, Debug, PartialEq)]
struct Weighted {
    command: String,
    weight: f64,
}

/// How many keys there are, and how they are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Keys {
    count: u64,
    choice: KeyChoice,
}

fn wire(name: &str) -> Result<Wire, String> {
    match name {
        "resp" => Ok(Wire::Resp),
        "binary" => Ok(Wire::Binary),
        _ => Err("resp or binary".into()),
    }
}

fn keys(text: &str) -> Result<Keys, String> {
    let (number, zipf) = match (text.split_once(','), text.strip_prefix("zipf:")) {
        (Some((number, choice)), _) => {
            let theta = choice.strip_prefix("zipf:");
            let theta = theta.ok_or_else(|| format!("{choice:?} is not zipf:THETA"))?;
            (Some(number), Some(theta))
        }
        (None, Some(theta)) => (None, Some(theta)),
        (None, None) => (Some(text), None),
    };
    let choice = match zipf {
        None => KeyChoice::Uniform,
        Some(theta) => match theta.parse() {
            Ok(theta) if theta > 0.0 && theta <= KeyChoice::THETA_MAX => KeyChoice::Zipf { theta },
            _ => {
                let most = KeyChoice::THETA_MAX;
                return Err(format!("zipf:{theta}: above 0 and at most {most}"));
            }
        },
    };
    Ok(Keys {
        count: number.map_or(Ok(KEYS), count::at_least_one)?,
        choice,
    })
}

fn sizes(text: &str) -> Result<ValueSizes, String> {
    let size = |text: &str| {
        let size = count::bytes(text)?;
        match (1..=VALUE_MAX).contains(&size) {
            true => Ok(size),
            false => Err(format!("{text:?}: values have 1 to {VALUE_MAX} bytes")),
        }
    };
    if let Some((least, most)) = text.split_once("..") {
        let (least, most) = (size(least)?, size(most)?);
        return match least <= most {
            true => Ok(ValueSizes::Range(least, most)),
            false => Err(format!("{text:?} ends before it begins")),
        };
    }
    if !text.contains([',', ':']) {
        return size(text).map(ValueSizes::Fixed);
    }
    let one = |text: &str| {
        let (bytes, weight) = text
            .split_once(':')
            .ok_or_else(|| format!("{text:?} is not BYTES:WEIGHT"))?;
        match count::rate(weight) {
            Ok(weight) if weight > 0.0 => Ok((size(bytes)?, weight)),
            _ => Err(format!("{text:?}: a weight is a number above 0")),
        }
    };
    let all: Vec<(usize, f64)> = text.split(',').map(one).collect::<Result<_, _>>()?;
    if all.len() > LENGTHS_MAX {
        return Err(format!("at most {LENGTHS_MAX} lengths"));
    }
    // Leaked once for each run of the command, which then ends.
    Ok(ValueSizes::Weighted(all.leak()))
}

/// Checks a command; what a script is called by is not known yet.
fn template(text: &str) -> Result<String, String> {
    Template::parse(&text.replace("{sha}", "sha"), None)?;
    Ok(text.to_owned())
}

fn weighted(text: &str) -> Result<Weighted, String> {
    let weight = text.split_once(':');
    let weight = weight.and_then(|(weight, command)| Some((weight.trim().parse().ok()?, command)));
    let (weight, command): (f64, &str) = weight.unwrap_or((1.0, text));
    match weight > 0.0 && weight.is_finite() {
        true => Ok(Weighted {
            command: template(command)?,
            weight,
        }),
        false => Err(format!("{text:?}: a weight is a number above 0")),
    }
}

fn reply(text: &str) -> Result<String, String> {
    Template::parse("PING", Some(text))?;
    Ok(text.to_owned())
}

/// Leaked once for each run of the command, which then ends.
fn kept(mix: Mix) -> &'static Mix {
    Box::leak(Box::new(mix))
}

/// A script, and the way in which it is called.
struct Script {
    load: Template,
    sha: String,
}

impl KvArgs {
    fn script(&self) -> Result<Option<Script>, Unfit> {
        let Some(path) = &self.script else {
            return Ok(None);
        };
        let bad = |why: String| Unfit::because(format!("--script {}: {why}", path.display()));
        let bytes = fs::metadata(path).map_err(|e| bad(e.to_string()))?.len();
        if bytes > SCRIPT_MAX {
            return Err(bad(format!("{bytes} bytes, more than {SCRIPT_MAX}")));
        }
        let text = fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let (load, sha) = Template::script_load(&text);
        Ok(Some(Script { load, sha }))
    }

    /// The user's own command.
    fn template(
        &self,
        text: &str,
        reply: Option<&str>,
        script: Option<&Script>,
    ) -> Result<Template, Unfit> {
        let text = match script {
            Some(script) => text.replace("{sha}", &script.sha),
            None if text.contains("{sha}") => {
                return Err(Unfit::because("{sha} is the digest of a --script"));
            }
            None => text.to_owned(),
        };
        Template::parse(&text, reply).map_err(Unfit::because)
    }

    /// The user's own commands; none if there are none.
    fn mix(&self, script: Option<&Script>) -> Result<Option<Mix>, Unfit> {
        let call = Weighted {
            command: CALL.to_owned(),
            weight: 1.0,
        };
        let commands = match (&self.command[..], script) {
            ([], Some(_)) => std::slice::from_ref(&call),
            (commands, _) => commands,
        };
        let reply = |number: usize| match &self.reply[..] {
            [one] => Some(one.as_str()),
            all => all.get(number).map(String::as_str),
        };
        if self.reply.len() > 1 && self.reply.len() != commands.len() {
            return Err(Unfit::because(format!(
                "--reply: once for all commands, or once for each of the {}",
                commands.len()
            )));
        }
        let template = |(number, of): (usize, &Weighted)| {
            let template = self.template(&of.command, reply(number), script)?;
            Ok((template, of.weight))
        };
        let all = commands.iter().enumerate().map(template);
        let mut all: Vec<(Template, f64)> = all.collect::<Result<_, Unfit>>()?;
        match all.len() {
            0 => Ok(None),
            1 => Ok(all.pop().map(|(template, _)| Mix::one(template))),
            _ => Mix::new(all)
                .map(Some)
                .map_err(|e| Unfit::because(format!("--command: {e}"))),
        }
    }

    fn kv(&self, script: Option<&Script>) -> Result<KvLoad, Unfit> {
        let most = self.size.most();
        if self.protocol == Wire::Binary && most > BINARY_VALUE_MAX {
            return Err(Unfit::because(format!(
                "--value-size: the binary protocol has at most {BINARY_VALUE_MAX}"
            )));
        }
        if !(0.0..=100.0).contains(&self.reads) {
            return Err(Unfit::because("--reads must be from 0 to 100"));
        }
        let longest = self.command.iter().map(|of| of.command.len()).max();
        // A place in a command is filled with a key or a value, and has at least three letters.
        let places = longest.unwrap_or(6) / 3 + 1;
        bounded(
            places.saturating_mul(most.max(self.key_size.into())) + FRAMING,
            self.pipeline,
        )?;
        let command = self.mix(script)?;
        if command.is_none() && (!self.reply.is_empty() || self.fill_command.is_some()) {
            return Err(Unfit::because(
                "--reply and --fill-command go with --command or --script",
            ));
        }
        if command.is_some() && self.protocol == Wire::Binary {
            return Err(Unfit::because(
                "--command and --script go with --protocol resp",
            ));
        }
        Ok(KvLoad {
            wire: self.protocol,
            keys: self.keys.count,
            key_size: self.key_size.into(),
            size: self.size,
            pipeline: self.pipeline,
            reads: self.reads / 100.0,
            choice: self.keys.choice,
            // Commands that the user gave may remove the keys that they find.
            filled: command.is_none() && !self.no_fill,
            command: command.map(kept),
        })
    }
}

impl Options for KvArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        let script = self.script()?;
        Ok(Chosen::of(Workload::of(self.kv(script.as_ref())?)))
    }

    fn first(&self) -> Result<Vec<First>, Unfit> {
        let script = self.script()?;
        let load = self.kv(script.as_ref())?;
        let mut all = Vec::new();
        if let Some(script) = &script {
            let command = Some(kept(Mix::one(script.load.clone())));
            all.push(First {
                workload: Workload::of(KvLoad { command, ..load }),
                extent: Extent::Count(1),
                refused: Some("--script: the server does not take the script"),
            });
        }
        let fill = match (&self.fill_command, load.command) {
            (Some(text), _) => {
                let template = self.template(text, None, script.as_ref())?;
                Some(kept(Mix::one(template)))
            }
            (None, Some(_)) => return Ok(all),
            (None, None) => None,
        };
        if !self.no_fill {
            let workload = KvLoad {
                command: fill,
                ..load.fill()
            };
            all.push(First {
                workload: Workload::of(workload),
                extent: Extent::Count(load.keys),
                refused: None,
            });
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_number_and_a_choice() {
        let zipf = |count, theta| Keys {
            count,
            choice: KeyChoice::Zipf { theta },
        };
        assert_eq!(keys("zipf:0.99"), Ok(zipf(KEYS, 0.99)));
        assert_eq!(keys("10k,zipf:1"), Ok(zipf(10_000, 1.0)));
        assert_eq!(keys("10k").unwrap().choice, KeyChoice::Uniform);
        for bad in [
            "",
            "0",
            "zipf",
            "zipf:",
            "zipf:0",
            "zipf:-1",
            "zipf:11",
            "zipf:nan",
            "zipf:inf",
            "10,",
            "10,uniform",
            "0,zipf:1",
            "zipf:1,10",
            "-5",
        ] {
            assert!(keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn commands_may_have_a_weight_in_front() {
        let of = |text: &str| weighted(text).map(|of| (of.weight, of.command));
        assert_eq!(of("80:GET {key}"), Ok((80.0, "GET {key}".into())));
        assert_eq!(of("0.5:PING"), Ok((0.5, "PING".into())));
        assert_eq!(of("GET a:{key}"), Ok((1.0, "GET a:{key}".into())));
        assert_eq!(of("EVAL 'x:y' 0"), Ok((1.0, "EVAL 'x:y' 0".into())));
        for bad in [
            "0:PING",
            "-1:PING",
            "inf:PING",
            "nan:PING",
            "5:",
            "5:GET {k}",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths_of_values_are_one_a_span_or_a_list() {
        assert_eq!(sizes("1k"), Ok(ValueSizes::Fixed(1024)));
        assert_eq!(sizes("64..1k"), Ok(ValueSizes::Range(64, 1024)));
        assert_eq!(
            sizes("64:90,1k:9.5"),
            Ok(ValueSizes::Weighted(&[(64, 90.0), (1024, 9.5)]))
        );
        for bad in [
            "", "0", "8193", "..", "64..", "9..8", "0..8", "1..9k", "64:0", "64:-1", "64:x", ":1",
            "64:1,", "64,65", "64:nan", "x",
        ] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }
}
