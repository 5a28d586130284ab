//! The services, with what the settings say about them.

use std::sync::Arc;

use tidewire::{Builder, Limits, Listen, ServiceId};
use tidewire_echo::{Discard, Echo};
use tidewire_ingest::Counted;
use tidewire_ingest::classic::{Classic, ClassicService, Mode};

use super::endpoint::Kind;
use super::settings::Settings;

type Acks = Arc<ClassicService<Counted>>;

/// The services that count for themselves, to be asked at the end.
pub(crate) struct Services {
    acks: Vec<(Mode, Acks)>,
}

impl Services {
    /// Adds what is to listen, in the order of the endpoints.
    pub(crate) fn add(builder: &mut Builder, settings: &Settings) -> Services {
        // One service each, however many places it listens at, so that its limits count all of them.
        let mut echo: Option<ServiceId<Echo>> = None;
        let mut discard: Option<ServiceId<Discard>> = None;
        let mut acks: Vec<(Mode, Acks, ServiceId<Acks>)> = Vec::new();
        for endpoint in &settings.endpoints {
            let listen = Listen::at(endpoint.addr).options(settings.tcp.clone());
            let limits = || settings.limits(Limits::default());
            match endpoint.kind {
                Kind::Echo => {
                    let id = *echo.get_or_insert_with(|| builder.service_with(Echo, limits()));
                    builder.listen(id, listen)
                }
                Kind::Discard => {
                    let add = || builder.service_with(Discard, limits());
                    let id = *discard.get_or_insert_with(add);
                    builder.listen(id, listen)
                }
                Kind::Ack(mode) => {
                    let known = acks.iter().find(|(known, ..)| *known == mode);
                    let id = known.map(|(.., id)| *id).unwrap_or_else(|| {
                        let (service, id) = add_acks(builder, settings, mode);
                        acks.push((mode, service, id));
                        id
                    });
                    builder.listen(id, listen)
                }
            };
        }
        let acks = acks.into_iter().map(|(mode, service, _)| (mode, service));
        Services {
            acks: acks.collect(),
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
    }
}

fn add_acks(builder: &mut Builder, settings: &Settings, mode: Mode) -> (Acks, ServiceId<Acks>) {
    let mut classic = Classic::preset(mode);
    if let Some(most) = settings.max_payload {
        classic.payload_max = most;
    }
    let service = Arc::new(ClassicService::new(classic, Counted::default()));
    let limits = settings.limits(classic.limits());
    let id = builder.service_with(service.clone(), limits);
    (service, id)
}
