//! The products that are served.

use std::sync::Arc;

use tidewire::admission::Admission;
use tidewire::{Builder, Listen};
use tidewire_admin::{Panel, Snapshot};

use crate::exit::Failure;
use crate::serve::handover::inherit::Inherited;
use crate::serve::listeners::endpoint::Endpoint;
use crate::serve::listeners::fronts::Fronts;
use crate::serve::listeners::kind::{Kind, Service};
use crate::serve::logs::open::{Logs, OpenLog};
use crate::serve::product::{Frame, Plan, Products, Recovery, Refused, Serving};
use crate::serve::settings::frame::Settings;

/// The products that are served, in the order of their first listeners.
pub(crate) struct Services(Vec<(&'static Service, Box<dyn Serving>)>);

impl Services {
    /// Adds the listeners, in the order of the endpoints. The logs are there that are needed.
    pub(crate) fn add(
        builder: &mut Builder,
        plan: &Plan,
        fronts: &Fronts,
        logs: &Logs,
        inherited: &mut Inherited,
    ) -> Result<Services, Failure> {
        let mut frame = Frame {
            builder,
            plan,
            fronts,
            logs,
            doors: Vec::new(),
        };
        // One service has all its addresses, so that its limits count the connections of all of
        // them.
        let mut all: Vec<(&'static Service, Box<dyn Serving>)> = Vec::new();
        for Endpoint { kind, .. } in &plan.endpoints {
            if !all.iter().any(|(known, _)| *known == kind.service) {
                all.push((kind.service, plan.of(kind.service).serve(&mut frame)?));
            }
        }
        let Frame { builder, doors, .. } = frame;
        for endpoint in &plan.endpoints {
            let door = doors.iter().find(|(kind, _)| *kind == endpoint.kind);
            let (_, door) = door.expect("its product has added it");
            let listen = listen(endpoint, plan, inherited);
            if let Some(listener) = door.listen(builder, listen) {
                fronts.put(listener, &endpoint.front)?;
            }
        }
        Ok(Services(all))
    }

    fn each(&self) -> impl Iterator<Item = &dyn Serving> {
        self.0.iter().map(|(_, serving)| &**serving)
    }

    /// Builds the state of services from their logs, before they are served. Whether that was done: `goes_on` is asked
    /// meanwhile whether it is to be.
    pub(crate) fn recover(
        &self,
        plan: &Plan,
        logs: &Logs,
        panel: &Panel,
        at: &[(Kind, tidewire::Endpoint)],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Failure> {
        for (service, serving) in &self.0 {
            let log = logs.of(service.name);
            let mut recovery = Recovery {
                plan,
                log,
                panel,
                at,
                goes_on,
            };
            if !serving.recover(&mut recovery)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Logs that have become this server's own, by the names of their services.
    pub(crate) fn taken_over(&self) -> impl Iterator<Item = (&'static str, OpenLog)> {
        let taken = |(service, serving): &(&'static Service, Box<dyn Serving>)| {
            Some((service.name, serving.taken_over()?))
        };
        self.0.iter().filter_map(taken)
    }

    /// Ends the following of other servers.
    pub(crate) fn stop_following(&self) {
        self.each().for_each(Serving::stop_following);
    }

    /// Tells services their addresses, if they need to know them.
    pub(crate) fn listening(&self, endpoints: &[Endpoint], addrs: &[tidewire::Endpoint]) {
        for (endpoint, addr) in endpoints.iter().zip(addrs) {
            self.each()
                .for_each(|serving| serving.listening(endpoint.kind, addr));
        }
    }

    /// Has clients that may ask for the end call `stop`.
    pub(crate) fn on_shutdown(&self, stop: Arc<dyn Fn() + Send + Sync>) {
        self.each()
            .for_each(|serving| serving.on_shutdown(stop.clone()));
    }

    /// Ends what works on the logs, before they are closed.
    pub(crate) fn let_go_of_logs(&self) {
        self.each().for_each(Serving::let_go_of_logs);
    }

    /// Whether the server is to begin anew.
    pub(crate) fn begin_anew(&self) -> bool {
        self.each().any(Serving::begins_anew)
    }

    /// All logs are closed, before the server begins anew.
    pub(crate) fn logs_closed(&self) -> Result<(), Failure> {
        self.each().try_for_each(Serving::logs_closed)
    }

    /// Whether any service is to be looked at every second, with a log or without.
    pub(crate) fn are_watched(&self) -> bool {
        self.each().any(Serving::is_watched)
    }

    /// Applies the settings of all products, which were read again.
    pub(crate) fn reload(&self, again: &Products) {
        let guarded = |is| self.each().for_each(|serving| serving.log_is_guarded(is));
        for (service, serving) in &self.0 {
            if let Some((_, product)) = again.iter().find(|(of, _)| of == service) {
                serving.reload(&**product, &guarded);
            }
        }
    }

    /// Refusals so far because there was no room.
    pub(crate) fn refused(&self) -> Refused {
        let all = self.each().map(Serving::refused);
        all.fold(Refused::default(), |sum, one| Refused {
            by_disk: sum.by_disk + one.by_disk,
            by_streams: sum.by_streams + one.by_streams,
        })
    }

    /// Why a service takes no changes any more though its log is well, if so.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        self.each().find_map(Serving::failure)
    }

    /// The data that a restart would lose, as a reason not to restart; `None` if a restart loses
    /// nothing.
    pub(crate) fn forgets(&self) -> Option<String> {
        self.each().find_map(Serving::forgets)
    }

    /// Adds what each service has counted.
    pub(crate) fn collect(&self, to: &mut Snapshot) {
        self.each().for_each(|serving| serving.collect(to));
    }

    /// Logs what each service has counted, if anything.
    pub(crate) fn log(&self) {
        self.each().for_each(Serving::log);
    }
}

fn listen(endpoint: &Endpoint, settings: &Settings, inherited: &mut Inherited) -> Listen {
    let listen = match inherited.listen(endpoint) {
        // The maker of the socket's file has decided which users may connect.
        Some(inherited) => inherited,
        None => endpoint.shield.access.of(Listen::at(&endpoint.place)),
    };
    let listen = listen.options(settings.tcp.clone());
    let rules = settings.admission.rules_at(&endpoint.shield.rules);
    match rules.is_empty() {
        true => listen,
        false => listen.admission(Admission::new(rules)),
    }
}
