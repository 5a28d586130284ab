//! A resolver that a test scripts.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::reach::names::{Lookup, Resolver};

/// What is said of a name.
#[derive(Clone, Debug)]
enum Script {
    Known(Vec<IpAddr>, Option<Duration>),
    /// By the test, later.
    Held,
}

#[derive(Debug, Default)]
struct Scripts {
    of: BTreeMap<String, Script>,
    held: Vec<Lookup>,
    asked: Vec<String>,
}

/// A resolver that says what a test tells it to, and keeps what it is asked. A name that it does not know has no address. Clones
/// share everything. It serves loops of a simulation ([`Sim::resolver`](super::Sim::resolver)) and of a
/// [`Builder`](crate::Builder) alike.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Conditions, PlainState, ScriptedNames, Sim};
/// use tidewire::{Dial, on_input};
///
/// let mut sim = Sim::under(1, Conditions::calm());
/// let names = ScriptedNames::default();
/// sim.resolver(names.clone());
/// let (one, other) = (sim.plain_listener("192.0.2.1:7", 16), sim.plain_listener("[2001:db8::1]:7", 16));
/// let at = sim.add_loop();
/// let client = sim.service(at, on_input(|input, link| link.forward_all(input)), Default::default());
///
/// names.know("quick.example", [[192, 0, 2, 1].into()]);
/// names.keep("kept.example", [[192, 0, 2, 2].into()], Duration::from_secs(60));
/// names.hold("server.example");
/// sim.dial(client, Dial::to("server.example:7"));
/// sim.run_for(Duration::from_secs(1));
/// // IPv4 comes first, and IPv6 soon enough.
/// let mut lookup = names.held().pop().expect("asked");
/// lookup.found([[192, 0, 2, 1].into()]);
/// sim.run_for(Duration::from_millis(20));
/// lookup.finish([[0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()]);
/// sim.run_for(Duration::from_millis(20));
/// assert!(sim.accept(other).is_some() && sim.accept(one).is_none());
/// assert_eq!(names.asked(), ["server.example"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ScriptedNames(Arc<Mutex<Scripts>>);

impl ScriptedNames {
    fn scripts(&self) -> MutexGuard<'_, Scripts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn script(&self, name: &str, script: Script) {
        self.scripts().of.insert(name.to_ascii_lowercase(), script);
    }

    /// This name has these addresses, from now on.
    pub fn know(&self, name: &str, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses = addresses.into_iter().collect();
        self.script(name, Script::Known(addresses, None));
    }

    /// This name has these addresses, which may be kept for so long.
    pub fn keep(&self, name: &str, addresses: impl IntoIterator<Item = IpAddr>, time: Duration) {
        let addresses = addresses.into_iter().collect();
        self.script(name, Script::Known(addresses, Some(time)));
    }

    /// What is asked for this name is [held](ScriptedNames::held) for the test to answer.
    pub fn hold(&self, name: &str) {
        self.script(name, Script::Held);
    }

    /// Takes what is held.
    #[must_use]
    pub fn held(&self) -> Vec<Lookup> {
        std::mem::take(&mut self.scripts().held)
    }

    /// All names that were asked for, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.scripts().asked.clone()
    }
}

impl Resolver for ScriptedNames {
    fn resolve(&self, lookup: Lookup) {
        let mut scripts = self.scripts();
        scripts.asked.push(lookup.name().to_owned());
        let script = scripts.of.get(lookup.name()).cloned();
        if let Some(Script::Held) = script {
            return scripts.held.push(lookup);
        }
        // Answered without the lock: an answer may lead to the next question.
        drop(scripts);
        match script {
            Some(Script::Known(all, None)) => lookup.finish(all),
            Some(Script::Known(all, Some(time))) => lookup.keep(all, time),
            Some(Script::Held) => {}
            None => lookup.fail(io::Error::new(io::ErrorKind::NotFound, "no such host")),
        }
    }
}
