//! The service `kv`, and its protocols.

use crate::serve::listeners::kind::{Kind, Mode, Service};

pub(super) static SERVICE: Service = Service {
    is_default: true,
    secret: Some("kv-password"),
    ..Service::new(
        "kv",
        &[
            Mode {
                name: Some("resp"),
                ports: &[6380],
            },
            Mode {
                name: Some("binary"),
                ports: &[7000],
            },
        ],
    )
};

/// Redis's protocol.
pub(super) fn resp() -> Kind {
    SERVICE.kind(0)
}

/// The small binary one.
pub(super) fn binary() -> Kind {
    SERVICE.kind(1)
}
