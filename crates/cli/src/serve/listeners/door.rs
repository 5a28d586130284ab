//! A service with what stands in front of its listeners.

use tidewire::admission::{Admission, Rules};
use tidewire::{Builder, Layered, Limits, Listen, Service, ServiceId};

use crate::serve::listeners::fronts::{Fronts, ProxyFront, TlsFront};

/// A service of the loops with its layers. If none of its listeners asks for a layer, there is no
/// layer and no cost.
pub(crate) struct Door {
    is_layered: bool,
    listen: AddListener,
}

/// Adds a listener of a service, and gives its number.
type AddListener = Box<dyn Fn(&mut Builder, Listen) -> u32>;

impl Door {
    /// Adds a service under this name, behind layers if `fronts` are given.
    pub(crate) fn add<S: Service>(
        builder: &mut Builder,
        fronts: Option<&Fronts>,
        name: &str,
        limits: Limits,
        rules: Rules,
        service: S,
    ) -> Door {
        let Some(fronts) = fronts else {
            let id = builder.service_with(service, limits);
            return Door::to(builder, name, rules, id, false);
        };
        // The header of a proxy comes before TLS.
        let tls = TlsFront(fronts.clone());
        let inner = Layered::with_limits(tls, service, limits.clone());
        let outer = Layered::with_limits(ProxyFront(fronts.clone()), inner, limits.clone());
        let id = builder.service_with(outer, limits);
        Door::to(builder, name, rules, id, true)
    }

    /// Names the service, and puts the rules of its own in its way.
    fn to<S: Service>(
        builder: &mut Builder,
        name: &str,
        rules: Rules,
        id: ServiceId<S>,
        is_layered: bool,
    ) -> Door {
        builder.name(id, name);
        if !rules.is_empty() {
            builder.admission_of(id, Admission::new(rules));
        }
        Door {
            is_layered,
            listen: Box::new(move |builder, listen| builder.listen(id, listen)),
        }
    }

    /// Adds a listener; returns its number if TLS or a proxy's header may stand in front of it.
    pub(crate) fn listen(&self, builder: &mut Builder, listen: Listen) -> Option<u32> {
        let listener = (self.listen)(builder, listen);
        self.is_layered.then_some(listener)
    }
}
