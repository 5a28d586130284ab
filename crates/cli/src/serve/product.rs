//! A product for the frame: a service with its settings.
//!
//! A product is declared by an [`Entry`]. A product's settings are flags of its own. The flags
//! become a [`Product`], which is checked beside other products in a [`Plan`] and then served; the
//! running form is a [`Serving`]. A [`Frame`] lends the product loops, doors and logs, and knows no
//! product by name.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::Deserialize;
use serde_json::{Map, Value};
use tidewire::{Builder, Endpoint, Limits, Service as Protocol};
use tidewire_admin::{Panel, Snapshot};
use tidewire_log::{Log, Policy, Settings as LogSettings};
use toml::de::{Error as TomlError, ValueDeserializer};

use crate::exit::Failure;
use crate::serve::listeners::door::Door;
use crate::serve::listeners::fronts::Fronts;
use crate::serve::listeners::kind::{self, Kind, Service};
use crate::serve::logs::open::{Logs, OpenLog};
use crate::serve::settings::frame::Settings;
use crate::serve::settings::schema::Shown;

/// A product in the list of products.
pub(crate) struct Entry {
    pub(crate) service: &'static Service,
    /// The heading of the product's flags; their table in the file has the service's name.
    pub(crate) heading: &'static str,
    /// Adds the product's flags.
    pub(crate) flags: fn(Command) -> Command,
    /// Values that the product uses instead of the defaults of the frame's flags, by the ids of the
    /// flags.
    pub(crate) defaults: fn() -> Vec<(&'static str, String)>,
    /// Reads the flags of the product.
    pub(crate) read: fn(&ArgMatches) -> Result<Box<dyn Product>, clap::Error>,
    /// The settings that only the file can have.
    pub(crate) keys: &'static [FileKey],
}

impl Entry {
    /// A product with these settings.
    pub(crate) const fn of<S: Product + Args>(
        service: &'static Service,
        heading: &'static str,
    ) -> Entry {
        Entry {
            service,
            heading,
            flags: S::augment_args,
            defaults: Vec::new,
            read: |matches| {
                <S as FromArgMatches>::from_arg_matches(matches)
                    .map(|s| Box::new(s) as Box<dyn Product>)
            },
            keys: &[],
        }
    }
}

/// A key that only the configuration file has.
#[derive(Debug)]
pub(crate) struct FileKey {
    /// The name of the setting, with the service's name in front.
    pub(crate) name: &'static str,
    /// Whether the value is a secret that no message may show.
    pub(crate) is_secret: bool,
    pub(crate) read: ReadKey,
    /// The value in the example of the configuration.
    pub(crate) example: &'static str,
}

type ReadKey = fn(ValueDeserializer<'_>) -> Result<Box<dyn Any>, TomlError>;

/// Reads a value that [`Product::take`] is given.
pub(crate) fn read_key<T: Any + for<'de> Deserialize<'de>>(
    from: ValueDeserializer<'_>,
) -> Result<Box<dyn Any>, TomlError> {
    T::deserialize(from).map(|value| Box::new(value) as Box<dyn Any>)
}

static ENTRIES: OnceLock<&'static [&'static Entry]> = OnceLock::new();

/// Says which products there are, in the order of lists; the first call counts.
pub(crate) fn install(all: &'static [&'static Entry]) {
    ENTRIES.get_or_init(|| all);
    kind::there_are(all.iter().map(|entry| entry.service));
}

/// All products.
pub(crate) fn entries() -> &'static [&'static Entry] {
    #[cfg(test)]
    kind::tests::list_products();
    ENTRIES.get().expect("the list of products was installed")
}

/// The products, each with its settings, in the order of the list.
pub(crate) type Products = Vec<(&'static Service, Box<dyn Product>)>;

/// The settings of a product.
pub(crate) trait Product: Any + fmt::Debug + Send + Sync {
    /// Takes the secret that the environment holds, if nothing else has said one.
    fn take_secret(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes the file's value of a key of [`Entry::keys`].
    fn take(&mut self, _value: Box<dyn Any>) {}

    /// Completes the settings, before the settings of other products are checked.
    fn complete(&mut self, _: &Settings) -> Result<(), Failure> {
        Ok(())
    }

    /// A mode that is not served in spite of the settings, and the text to log about it.
    fn left_out(&self, _: &Plan) -> Result<Option<(Kind, &'static str)>, Failure> {
        Ok(None)
    }

    /// The reason why a flag of the product's heading would have no effect, where the service
    /// itself is served.
    fn unused(&self, _flag: &str, _: &Plan) -> Option<&'static str> {
        None
    }

    /// Refuses what cannot be served.
    fn check(&self, _: &Plan) -> Result<(), Failure> {
        Ok(())
    }

    /// Refuses files that cannot be used, which are else read when the service is added.
    fn check_files(&self, _: &Plan) -> Result<(), Failure> {
        Ok(())
    }

    /// The limits of this service's connections.
    fn limits(&self, kind: Kind, settings: &Settings) -> Limits {
        settings.changed(kind, Limits::default())
    }

    /// Adds the product's limits to the limits that are shown.
    fn show_limits(&self, _: Kind, _: &Settings, _shown: &mut Value) {}

    /// Values in force that the flags do not show, or that differ from the flags: by the names of flags without the service's
    /// prefix. Null if the product shows no settings.
    fn shown(&self, _: &Plan) -> Value {
        Value::Object(Map::new())
    }

    /// Whether clients must show a secret.
    fn asks_for_secret(&self, _: Kind) -> bool {
        false
    }

    /// The flag that asks clients for one.
    fn secret_flag(&self, _: Kind) -> Option<&'static str> {
        None
    }

    /// Files with secrets, which others should not read.
    fn secret_files(&self) -> Vec<&Path> {
        Vec::new()
    }

    /// Whether the service keeps no data that a client could read or spoil.
    fn is_harmless(&self) -> bool {
        true
    }

    /// Whether clients read the log of messages here.
    fn shows_messages(&self) -> bool {
        false
    }

    /// Whether the product writes to the log of messages.
    fn needs_messages(&self) -> bool {
        false
    }

    /// A log of the product's own: its directory, and its commit policy.
    fn own_log(&self, _: &Settings) -> Option<(PathBuf, Policy)> {
        None
    }

    /// How that log is opened, if it is there from the start.
    fn opens(&self, _: &Settings) -> Result<Option<(PathBuf, LogSettings)>, Failure> {
        Ok(None)
    }

    /// Whether the log of the product has a home.
    fn has_home(&self) -> bool {
        false
    }

    /// Whether the product keeps so much in memory that huge pages serve it.
    fn is_large(&self) -> bool {
        false
    }

    /// Text to add to the line that announces a listener, with a blank in front.
    fn described(&self, _: &Logs) -> String {
        String::new()
    }

    /// Adds the product's services.
    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure>;
}

/// A product that runs. Phases come in this order: `recover` and `listening` (which of them first depends on whether
/// others may serve meanwhile), serving, `stop_following`, `let_go_of_logs`.
pub(crate) trait Serving: Send + Sync {
    /// Has clients that may ask for the end call `stop`.
    fn on_shutdown(&self, _stop: Arc<dyn Fn() + Send + Sync>) {}

    /// Builds the product's state from its log, before the product is served. Whether that was
    /// done.
    fn recover(&self, _: &mut Recovery<'_>) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Tells the product the address of a listener.
    fn listening(&self, _: Kind, _: &Endpoint) {}

    /// Whether the product is looked at every second although it has no log.
    fn is_watched(&self) -> bool {
        false
    }

    /// A log that the product has come to own since the last call.
    fn taken_over(&self) -> Option<OpenLog> {
        None
    }

    /// Changes what may be changed while it serves, by settings that were read again. `guarded` tells all products
    /// whether clients must show a secret to read the log of messages, before that counts.
    fn reload(&self, _again: &dyn Product, _guarded: &dyn Fn(bool)) {}

    /// Is told whether clients of another product must show a secret to read the log of messages.
    fn log_is_guarded(&self, _is: bool) {}

    /// Refusals so far because there was no room.
    fn refused(&self) -> Refused {
        Refused::default()
    }

    /// The reason why the product takes no changes any more although its log is well, if so.
    fn failure(&self) -> Option<&'static str> {
        None
    }

    /// The data that a restart would lose, as a reason not to restart; `None` if a restart loses
    /// nothing.
    fn forgets(&self) -> Option<String> {
        None
    }

    /// Adds the product's counters to a snapshot.
    fn collect(&self, _: &mut Snapshot) {}

    /// Logs the product's counters, if any.
    fn log(&self) {}

    /// Stops following another server; the caller then asks what the product owns.
    fn stop_following(&self) {}

    /// Ends the product's work on its log, before the log is closed.
    fn let_go_of_logs(&self) {}

    /// Whether the server is to end in order and to begin anew, on the listeners that it has.
    fn begins_anew(&self) -> bool {
        false
    }

    /// All logs are closed, at the end of a server that begins anew.
    fn logs_closed(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Refusals because there was no room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refused {
    /// Refused because the disk of a log was full.
    pub(crate) by_disk: u64,
    /// Refused because the stream was at its limit.
    pub(crate) by_streams: u64,
}

/// The parts that a product needs to recover.
pub(crate) struct Recovery<'a> {
    pub(crate) plan: &'a Plan,
    /// The product's log, if that is open.
    pub(crate) log: Option<&'a OpenLog>,
    pub(crate) panel: &'a Panel,
    /// Addresses where clients connect already; they are told that the server recovers.
    pub(crate) at: &'a [(Kind, Endpoint)],
    /// Called now and then: whether recovery is to go on.
    pub(crate) goes_on: &'a mut dyn FnMut() -> bool,
}

/// All settings, checked as a whole.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    products: Products,
    /// The values of the settings and their sources.
    pub(crate) values: Vec<Shown>,
    /// The texts about modes that are left out.
    pub(crate) left_out: Vec<&'static str>,
}

impl Deref for Plan {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Plan {
    /// Completes the settings of the products.
    pub(crate) fn new(
        settings: Settings,
        mut products: Products,
        values: Vec<Shown>,
    ) -> Result<Plan, Failure> {
        for (_, product) in &mut products {
            product.complete(&settings)?;
        }
        Ok(Plan {
            settings,
            products,
            values,
            left_out: Vec::new(),
        })
    }

    /// Takes away listeners that are not to be.
    pub(crate) fn leave_out(&mut self) -> Result<(), Failure> {
        for (_, product) in &self.products {
            let Some((left_out, said)) = product.left_out(self)? else {
                continue;
            };
            let before = self.settings.endpoints.len();
            self.settings.endpoints.retain(|e| e.kind != left_out);
            if self.settings.endpoints.len() < before {
                self.left_out.push(said);
            }
        }
        Ok(())
    }

    /// Refuses what cannot be served.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.all().try_for_each(|(_, product)| product.check(self))
    }

    /// All products.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static Service, &dyn Product)> {
        self.products
            .iter()
            .map(|(service, product)| (*service, &**product))
    }

    /// The services that are served.
    pub(crate) fn served(&self) -> impl Iterator<Item = (&'static Service, &dyn Product)> {
        self.all().filter(|(service, _)| self.serves(service))
    }

    /// The product of a service.
    pub(crate) fn of(&self, service: &Service) -> &dyn Product {
        let mut all = self.all();
        let found = all.find(|(of, _)| of.name == service.name);
        found.expect("each service is one of a product").1
    }

    /// The service that shows the log of messages only to clients with a secret, if there is one.
    pub(crate) fn guards_messages(&self) -> Option<&'static str> {
        let guards = |(service, product): &(&'static Service, &dyn Product)| {
            product.shows_messages() && service.kinds().any(|kind| product.asks_for_secret(kind))
        };
        self.all().find(guards).map(|(service, _)| service.name)
    }

    /// Whether clients show certificates where they read the log of messages.
    pub(crate) fn shows_messages_to_certificates(&self) -> bool {
        self.endpoints.iter().any(|endpoint| {
            self.of(endpoint.kind.service).shows_messages()
                && endpoint.front.asks_for_certificates()
        })
    }

    /// Whether any served product writes to the log of messages.
    pub(crate) fn need_log(&self) -> bool {
        self.served().any(|(_, product)| product.needs_messages())
    }

    /// The directories of the logs that are needed, as another process would name them.
    pub(crate) fn log_directories(&self) -> Vec<PathBuf> {
        let messages = self.need_log().then(|| canonical(self.durable.dir.clone()));
        messages
            .into_iter()
            .chain(self.store_directories())
            .collect()
    }

    /// The directories that belong to a product.
    pub(crate) fn store_directories(&self) -> Vec<PathBuf> {
        let own = self
            .served()
            .filter_map(|(_, product)| product.own_log(self));
        own.map(|(path, _)| canonical(path)).collect()
    }

    /// Whether answers wait for a sync of some log.
    pub(crate) fn awaits_syncs(&self) -> bool {
        let mut own = self
            .served()
            .filter_map(|(_, product)| product.own_log(self));
        (self.need_log() && self.durable.policy.0 == Policy::Sync)
            || own.any(|(_, policy)| policy == Policy::Sync)
    }

    /// The names of the services that write to a log.
    pub(crate) fn services_with_logs(&self) -> Vec<String> {
        let writes = |kind: &Kind| {
            let product = self.of(kind.service);
            product.needs_messages() || product.own_log(self).is_some()
        };
        let kinds = self.endpoints.iter().map(|endpoint| endpoint.kind);
        kinds.filter(writes).map(|kind| kind.to_string()).collect()
    }
}

/// A path that is not there yet is not locked.
fn canonical(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

/// The parts that the frame lends to a product when the product is added.
pub(crate) struct Frame<'a> {
    pub(crate) builder: &'a mut Builder,
    pub(crate) plan: &'a Plan,
    pub(crate) fronts: &'a Fronts,
    pub(crate) logs: &'a Logs,
    pub(crate) doors: Vec<(Kind, Door)>,
}

impl Frame<'_> {
    /// Adds a service for the listeners of this kind.
    pub(crate) fn add<S: Protocol>(&mut self, kind: Kind, service: S) {
        let limits = self.plan.of(kind.service).limits(kind, self.plan);
        let mut own = self.plan.endpoints.iter().filter(|e| e.kind == kind);
        let is_bare = own.all(|endpoint| endpoint.front.is_bare());
        let fronts = (!is_bare).then_some(self.fronts);
        let rules = self.plan.admission.rules_of(kind);
        let door = Door::add(
            self.builder,
            fronts,
            &kind.to_string(),
            limits,
            rules,
            service,
        );
        self.doors.push((kind, door));
    }

    /// The log of messages, which is open if a product needs it.
    pub(crate) fn messages(&self) -> Arc<dyn Log> {
        let log = self.logs.messages.as_ref();
        log.expect("it is open, as it is needed").shared()
    }
}
