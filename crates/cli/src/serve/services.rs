//! The services, with what the settings say about them.

use tidewire::{Builder, Listen, ServiceId};
use tidewire_echo::{Discard, Echo};

use super::endpoint::Kind;
use super::settings::Settings;

/// Adds what is to listen, in the order of the endpoints.
pub(crate) fn add(builder: &mut Builder, settings: &Settings) {
    // One service each, however many places it listens at, so that its limits count all of them.
    let mut echo: Option<ServiceId<Echo>> = None;
    let mut discard: Option<ServiceId<Discard>> = None;
    for endpoint in &settings.endpoints {
        let listen = Listen::at(endpoint.addr).options(settings.tcp.clone());
        let limits = || settings.limits.clone();
        match endpoint.kind {
            Kind::Echo => {
                let id = *echo.get_or_insert_with(|| builder.service_with(Echo, limits()));
                builder.listen(id, listen);
            }
            Kind::Discard => {
                let id = *discard.get_or_insert_with(|| builder.service_with(Discard, limits()));
                builder.listen(id, listen);
            }
            Kind::Ack(_) => {}
        }
    }
}
