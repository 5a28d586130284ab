//! The services, with what the settings say about them.

use std::sync::Arc;

use tidewire::admission::Admission;
use tidewire::{Builder, Listen};
use tidewire_admin::{Panel, Snapshot};
use tidewire_echo::{Discard, Echo};
use tidewire_http::demo::{self, Burns};
use tidewire_http::{Http, Router};
use tidewire_ingest::classic::{ClassicService, Counters, Mode};
use tidewire_ingest::native::{IngestService, Token};
use tidewire_ingest::{Counted, Level, LogSink};
use tidewire_pool::Pool;

use super::counted;
use super::door::Door;
use super::endpoint::Endpoint;
use super::fronts::Fronts;
use super::inherit::Inherited;
use super::kind::Kind;
use super::kv::Kv;
use super::kv_options::KvOptions;
use super::log::{Logs, OpenLog};
use super::settings::Settings;
use crate::exit::Failure;

/// A classic service: without a log, or with one.
enum Acks {
    Dropped(
        Arc<ClassicService<Counted>>,
        Door<Arc<ClassicService<Counted>>>,
    ),
    Logged(
        Arc<ClassicService<LogSink>>,
        Door<Arc<ClassicService<LogSink>>>,
    ),
}

/// The services that count for themselves, to be asked at the end.
pub(crate) struct Services {
    acks: Vec<(Mode, Acks)>,
    ingest: Option<Arc<IngestService>>,
    kv: Option<Kv>,
    http: Option<Http<Router>>,
}

impl Services {
    /// Adds what is to listen, in the order of the endpoints. The logs are there that are needed.
    pub(crate) fn add(
        builder: &mut Builder,
        settings: &Settings,
        fronts: &Fronts,
        logs: &Logs,
        inherited: &mut Inherited,
    ) -> Result<Services, Failure> {
        let log = logs.messages.as_ref();
        // One service each, however many places it listens at, so that its limits count all of them.
        let mut echo: Option<Door<Echo>> = None;
        let mut discard: Option<Door<Discard>> = None;
        let mut ingest: Option<(Arc<IngestService>, Door<Arc<IngestService>>)> = None;
        let mut acks: Vec<(Mode, Acks)> = Vec::new();
        let mut kv: Option<Kv> = None;
        let mut http: Option<(Http<Router>, Door<Http<Router>>)> = None;
        for endpoint in &settings.endpoints {
            let listen = listen(endpoint, settings, inherited);
            let kind = endpoint.kind;
            match endpoint.kind {
                Kind::Echo => {
                    let add = || Door::add(builder, settings, fronts, kind, Echo);
                    let door = echo.get_or_insert_with(add);
                    door.listen(builder, fronts, endpoint, listen)?;
                }
                Kind::Discard => {
                    let add = || Door::add(builder, settings, fronts, kind, Discard);
                    let door = discard.get_or_insert_with(add);
                    door.listen(builder, fronts, endpoint, listen)?;
                }
                Kind::Http => {
                    if http.is_none() {
                        http = Some(add_http(builder, settings, fronts)?);
                    }
                    if let Some((_, door)) = &http {
                        door.listen(builder, fronts, endpoint, listen)?;
                    }
                }
                Kind::Ingest => {
                    let add = || add_ingest(builder, settings, fronts, log);
                    let (_, door) = ingest.get_or_insert_with(add);
                    door.listen(builder, fronts, endpoint, listen)?;
                }
                Kind::Kv(_) => {
                    if kv.is_none() {
                        kv = Some(Kv::add(builder, settings, fronts, logs)?);
                    }
                    if let Some(kv) = &kv {
                        kv.listen(builder, fronts, endpoint, listen)?;
                    }
                }
                Kind::Ack(mode) => {
                    if !acks.iter().any(|(known, _)| *known == mode) {
                        acks.push((mode, Acks::add(builder, settings, fronts, mode, log)?));
                    }
                    let known = acks.iter().find(|(known, _)| *known == mode);
                    let (_, acks) = known.expect("just added");
                    acks.listen(builder, fronts, endpoint, listen)?;
                }
            }
        }
        Ok(Services {
            acks,
            ingest: ingest.map(|(service, _)| service),
            kv,
            http: http.map(|(service, _)| service),
        })
    }

    /// Builds what is kept in a log before it is served. Whether that was done: `goes_on` is asked meanwhile whether it is to
    /// be.
    pub(crate) fn recover(
        &self,
        settings: &Settings,
        logs: &Logs,
        panel: &Panel,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Failure> {
        let (options, log_options) = (&settings.kv, &settings.durable);
        match (&self.kv, &logs.kv) {
            (Some(kv), _) if kv.follows() => kv.follow(options, log_options, panel, goes_on),
            (Some(kv), Some(log)) => kv.recover(options, log_options, log, panel, goes_on),
            _ => Ok(true),
        }
    }

    /// The log of a key-value store that was another server's and has become this one's.
    pub(crate) fn taken_over(&self) -> Option<OpenLog> {
        self.kv.as_ref()?.taken_over()
    }

    /// Ends the following of another server's store.
    pub(crate) fn stop_following(&self) {
        if let Some(kv) = &self.kv {
            kv.stop_following();
        }
    }

    /// Tells services that need to know where they listen.
    pub(crate) fn listening(&self, endpoints: &[Endpoint], addrs: &[tidewire::Endpoint]) {
        if let Some(kv) = &self.kv {
            for (endpoint, addr) in endpoints.iter().zip(addrs) {
                kv.listening(endpoint.kind, addr);
            }
        }
    }

    /// Has clients that may ask for the end call `stop`.
    pub(crate) fn on_shutdown(&self, stop: impl Fn() + Send + Sync + 'static) {
        if let Some(kv) = &self.kv {
            kv.on_shutdown(stop);
        }
    }

    /// Ends what works on the logs, before they are closed.
    pub(crate) fn let_go_of_logs(&self) {
        if let Some(kv) = &self.kv {
            kv.let_go_of_log();
        }
    }

    /// From now on clients of ingest must show one of these tokens; false if there is no ingest.
    pub(crate) fn change_tokens(&self, tokens: Vec<Token>, kv: &KvOptions) -> bool {
        let Some(service) = &self.ingest else {
            return false;
        };
        if let Some(served) = &self.kv {
            // This comes before any client relies on the tokens.
            served.heed_tokens(!tokens.is_empty(), kv);
        }
        service.change_tokens(tokens);
        true
    }

    /// Refusals so far because there was no room on the disk of a log.
    pub(crate) fn refused_by_full_disk(&self) -> u64 {
        let ingest = self.ingest.as_ref();
        let ingest = ingest.map_or(0, |service| service.counters().refused_disk_full);
        ingest + self.kv.as_ref().map_or(0, Kv::refused_by_full_disk)
    }

    /// Refusals because a stream was at its limit.
    pub(crate) fn refused_by_full_streams(&self) -> u64 {
        let ingest = self.ingest.as_ref();
        ingest.map_or(0, |service| service.counters().refused_stream_full)
    }

    /// Whether a service takes no changes any more though its log is well.
    pub(crate) fn has_failed(&self) -> bool {
        self.kv.as_ref().is_some_and(Kv::has_failed)
    }

    /// What a restart would forget, as a reason not to.
    pub(crate) fn forgets(&self) -> Option<String> {
        let keys = self.kv.as_ref().map_or(0, Kv::forgets);
        (keys > 0).then(|| {
            format!(
                "the key-value store holds {keys} keys in memory alone (durability none), which its successor would \
                 not have; with --takeover-forget they are forgotten"
            )
        })
    }

    /// Adds what each service has counted.
    pub(crate) fn collect(&self, to: &mut Snapshot) {
        for (mode, service) in &self.acks {
            counted::ack(mode.name(), &service.counters(), to);
        }
        if let Some(kv) = &self.kv {
            kv.collect(to);
        }
        if let Some(service) = &self.ingest {
            counted::ingest(&service.counters(), to);
            counted::readers(service, to);
        }
        if let Some(service) = &self.http {
            counted::http(&service.counters(), service.gathering(), to);
        }
    }

    /// Logs what each service has counted, if anything.
    pub(crate) fn log(&self) {
        for (mode, service) in &self.acks {
            let counters = service.counters();
            if counters != Default::default() {
                tracing::info!(%mode, %counters, "ack");
            }
        }
        if let Some(kv) = &self.kv {
            kv.log();
        }
        if let Some(service) = &self.http {
            let counters = service.counters();
            if counters != Default::default() {
                tracing::info!(%counters, "http");
            }
        }
        if let Some(service) = &self.ingest {
            let counters = service.counters();
            if counters != Default::default() {
                tracing::info!(%counters, "ingest");
            }
        }
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

impl Acks {
    fn add(
        builder: &mut Builder,
        settings: &Settings,
        fronts: &Fronts,
        mode: Mode,
        log: Option<&OpenLog>,
    ) -> Result<Acks, Failure> {
        let kind = Kind::Ack(mode);
        let classic = settings.classic(mode);
        if settings.ack_level == Level::None {
            let service = Arc::new(ClassicService::new(classic, Counted::default()));
            let door = Door::add(builder, settings, fronts, kind, service.clone());
            return Ok(Acks::Dropped(service, door));
        }
        let log = log.expect("a level needs the log").shared();
        let sink = LogSink::new(log, &settings.ack_stream, settings.ack_level).map_err(|e| {
            Failure::usage(format!("ack/{mode} at level {}: {e}", settings.ack_level))
        })?;
        let service = Arc::new(ClassicService::new(classic, sink));
        let door = Door::add(builder, settings, fronts, kind, service.clone());
        Ok(Acks::Logged(service, door))
    }

    fn listen(
        &self,
        builder: &mut Builder,
        fronts: &Fronts,
        endpoint: &Endpoint,
        listen: Listen,
    ) -> Result<(), Failure> {
        match self {
            Acks::Dropped(_, door) => door.listen(builder, fronts, endpoint, listen),
            Acks::Logged(_, door) => door.listen(builder, fronts, endpoint, listen),
        }
    }

    fn counters(&self) -> Counters {
        match self {
            Acks::Dropped(service, _) => service.counters(),
            Acks::Logged(service, _) => service.counters(),
        }
    }
}

fn add_http(
    builder: &mut Builder,
    settings: &Settings,
    fronts: &Fronts,
) -> Result<(Http<Router>, Door<Http<Router>>), Failure> {
    let pool = Pool::new(&tidewire_pool::Settings::default())
        .map_err(|e| Failure::failed(format!("cannot start the workers of http: {e}")))?;
    let burns = match settings.is_open(Kind::Http) {
        true => Burns::ForEverybody,
        false => Burns::ForTrusted,
    };
    let service = Http::with(settings.http.clone(), demo::router(pool, burns));
    let door = Door::add(builder, settings, fronts, Kind::Http, service.clone());
    Ok((service, door))
}

fn add_ingest(
    builder: &mut Builder,
    settings: &Settings,
    fronts: &Fronts,
    log: Option<&OpenLog>,
) -> (Arc<IngestService>, Door<Arc<IngestService>>) {
    let log = log.expect("ingest needs the log").shared();
    let service = Arc::new(IngestService::new(log, settings.ingest.clone()));
    let door = Door::add(builder, settings, fronts, Kind::Ingest, service.clone());
    (service, door)
}
