//! A service with what stands in front of its listeners.

use tidewire::admission::Admission;
use tidewire::{Builder, Layered, Listen, Service, ServiceId};

use super::endpoint::Endpoint;
use super::fronts::{Fronts, ProxyFront, TlsFront};
use super::kind::{Kind, Named};
use super::settings::Settings;
use crate::exit::Failure;

/// A service of the loops. Where none of its listeners asks for a layer there is none, and it costs
/// nothing.
pub(crate) enum Door<S: Service> {
    Bare(ServiceId<S>),
    /// The header of a proxy comes before TLS.
    Layered(ServiceId<Layered<ProxyFront, Layered<TlsFront, S>>>),
}

impl<S: Service> Door<S> {
    /// Adds the service of this kind.
    pub(crate) fn add(
        builder: &mut Builder,
        settings: &Settings,
        fronts: &Fronts,
        kind: Kind,
        service: S,
    ) -> Door<S> {
        let limits = settings.limits(kind);
        let mut own = settings.endpoints.iter().filter(|e| e.kind == kind);
        if own.all(|endpoint| endpoint.front.is_bare()) {
            let id = builder.service_with(service, limits);
            introduce(builder, settings, kind, id);
            return Door::Bare(id);
        }
        let tls = TlsFront(fronts.clone());
        let inner = Layered::with_limits(tls, service, limits.clone());
        let outer = Layered::with_limits(ProxyFront(fronts.clone()), inner, limits.clone());
        let id = builder.service_with(outer, limits);
        introduce(builder, settings, kind, id);
        Door::Layered(id)
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

/// Names a service, and puts the rules of its own in its way.
fn introduce<S: Service>(
    builder: &mut Builder,
    settings: &Settings,
    kind: Kind,
    service: ServiceId<S>,
) {
    builder.name(service, &Named(vec![kind]).to_string());
    let rules = settings.admission.rules_of(kind);
    if !rules.is_empty() {
        builder.admission_of(service, Admission::new(rules));
    }
}
