//! Which clients may use a service. A service without a secret serves only this host, unless
//! `--open` lets in all clients that reach it. A secret applies to every port of its service.

use crate::secret;
use crate::serve::listeners::endpoint::Endpoint;
use crate::serve::product::Plan;

/// How the clients of a listener are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// Clients must show a secret.
    Secret,
    /// Clients must show a certificate of an authority that is named.
    Certificate,
    /// Only clients of this host are served.
    ThisHost,
    /// No client is turned away, as `--open` says.
    Open,
    /// No client is turned away: nothing is kept here that could be read or spoiled.
    Harmless,
}

impl Plan {
    fn guard(&self, endpoint: &Endpoint) -> Guard {
        let kind = endpoint.kind;
        let product = self.of(kind.service);
        match () {
            () if endpoint.front.asks_for_certificates() => Guard::Certificate,
            () if product.asks_for_secret(kind) => Guard::Secret,
            () if self.is_open(kind) => Guard::Open,
            () if product.is_harmless() => Guard::Harmless,
            () => Guard::ThisHost,
        }
    }

    /// Logs what an operator should know about admitted clients.
    pub(crate) fn warn_of_strangers(&self) {
        for said in &self.left_out {
            tracing::info!("{said}");
        }
        for path in self.all().flat_map(|(_, product)| product.secret_files()) {
            if secret::is_exposed(path) {
                tracing::warn!(file = %path.display(), "other users may read this secret: chmod 600");
            }
        }
        for endpoint in &self.endpoints {
            let ip = endpoint.place.ip();
            if ip.is_some_and(|ip| !ip.to_canonical().is_loopback()) {
                self.warn_of(endpoint);
            }
        }
    }

    fn warn_of(&self, endpoint: &Endpoint) {
        let service = endpoint.kind;
        let addr = &endpoint.place;
        match self.guard(endpoint) {
            Guard::Secret | Guard::Certificate => {}
            Guard::Open => tracing::info!(
                %service, %addr,
                "open to every host that reaches it, as --open says"
            ),
            Guard::Harmless => tracing::warn!(
                %service, %addr,
                "open to every host that reaches it; --open={service} confirms that"
            ),
            Guard::ThisHost => {
                let flag = self.of(service.service).secret_flag(service);
                let asks = flag.map_or(String::new(), |flag| format!("{flag} sets one; "));
                tracing::warn!(
                    %service, %addr,
                    "requires no secret, so other hosts are turned away; {asks}--tls-client-ca asks for certificates; \
                     --open={service} lets in every client that reaches it"
                );
            }
        }
    }
}
