//! A service with what stands in front of its listeners.

use tidewire::{Builder, Layered, Limits, Listen, Service, ServiceId};

use super::endpoint::Endpoint;
use super::settings::Settings;
use super::tls::{Fronts, ProxyFront, TlsFront};
use crate::exit::Failure;

/// A service of the loops. Where none of its listeners asks for a layer there is none, and it costs
/// nothing.
pub(crate) enum Door<S: Service> {
    Bare(ServiceId<S>),
    /// The header of a proxy comes before TLS.
    Layered(ServiceId<Layered<ProxyFront, Layered<TlsFront, S>>>),
}

impl<S: Service> Door<S> {
    /// Adds the service; `mine` says which of the listeners are its own.
    pub(crate) fn add(
        builder: &mut Builder,
        settings: &Settings,
        fronts: &Fronts,
        mine: impl Fn(&Endpoint) -> bool,
        service: S,
        limits: Limits,
    ) -> Door<S> {
        let mut own = settings.endpoints.iter().filter(|e| mine(e));
        if own.all(|endpoint| endpoint.front.is_bare()) {
            return Door::Bare(builder.service_with(service, limits));
        }
        let tls = TlsFront(fronts.clone());
        let inner = Layered::with_limits(tls, service, limits.clone());
        let outer = Layered::with_limits(ProxyFront(fronts.clone()), inner, limits.clone());
        Door::Layered(builder.service_with(outer, limits))
    }

    /// Adds a listener.
    pub(crate) fn listen(
        &self,
        builder: &mut Builder,
        fronts: &Fronts,
        endpoint: &Endpoint,
        listen: Listen,
    ) -> Result<(), Failure> {
        match self {
            Door::Bare(id) => {
                builder.listen(*id, listen);
                Ok(())
            }
            Door::Layered(id) => {
                let listener = builder.listen(*id, listen);
                fronts.put(listener, &endpoint.front)
            }
        }
    }
}
