//! Which clients are let in. A service without a secret serves only this host, unless `--open` says
//! that all clients that reach it may use it; and a secret guards every port of what it guards.

use tidewire_ingest::Level;

use super::endpoint::Endpoint;
use super::kind::{Kind, KvMode, Named};
use super::settings::Settings;
use crate::exit::Failure;
use crate::secret;

/// Bytes that keys may begin with that show the log.
const LOG_KEYS_MAX: usize = 64;

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

impl Settings {
    /// Whether every client that reaches this service may use it.
    pub(crate) fn is_open(&self, kind: Kind) -> bool {
        self.open.iter().any(|open| open.covers(kind))
    }

    /// Whether the binary port serves even where the store has a password: only if it was asked for
    /// by name, and opened; or if it asks for certificates wherever it listens.
    pub(crate) fn is_binary_open(&self) -> bool {
        let binary = Kind::Kv(KvMode::Binary);
        let mut own = self.endpoints.iter().filter(|e| e.kind == binary);
        let opened = self.is_open(binary) && own.clone().any(|e| e.by_name);
        let asks = |e: &Endpoint| e.front.asks_for_certificates();
        opened || (own.clone().next().is_some() && own.all(asks))
    }

    fn guard(&self, endpoint: &Endpoint) -> Guard {
        let kind = endpoint.kind;
        match kind {
            _ if endpoint.front.asks_for_certificates() => Guard::Certificate,
            Kind::Kv(KvMode::Resp) if self.kv.has_password() || self.kv.acl_file.is_some() => {
                Guard::Secret
            }
            Kind::Ingest if !self.ingest.tokens.is_empty() => Guard::Secret,
            _ if self.is_open(kind) => Guard::Open,
            Kind::Echo | Kind::Http | Kind::Discard => Guard::Harmless,
            Kind::Ack(_) if self.ack_level == Level::None => Guard::Harmless,
            Kind::Kv(_) | Kind::Ingest | Kind::Ack(_) => Guard::ThisHost,
        }
    }

    /// Takes away listeners that would lead past a secret, or says that they must not be.
    pub(crate) fn close_side_doors(&mut self) -> Result<(), Failure> {
        self.ingest.protected = !self.is_open(Kind::Ingest);
        let binary = Kind::Kv(KvMode::Binary);
        if self.kv.has_password() && !self.is_binary_open() {
            let named = |e: &Endpoint| e.kind == binary && e.by_name;
            if self.endpoints.iter().any(named) {
                return Err(Failure::usage(
                    "kv has a password, and the protocol of kv/binary knows none: any client that reaches \
                     it could read and write everything. Leave it out, or add --open=kv/binary if \
                     that is meant",
                ));
            }
            let before = self.endpoints.len();
            self.endpoints.retain(|e| e.kind != binary);
            self.binary_left_out = self.endpoints.len() < before;
        }
        let leads_past = |e: &Endpoint| {
            let guarded = e.front.asks_for_certificates() || self.is_open(e.kind);
            matches!(e.kind, Kind::Ack(_)) && !guarded
        };
        if self.ack_level != Level::None
            && !self.ingest.tokens.is_empty()
            && self.endpoints.iter().any(leads_past)
        {
            return Err(Failure::usage(format!(
                "ingest has tokens, and the protocol of ack knows none: with --ack-level {} any client \
                 that reaches it could write to the log. Leave one out, or add --open=ack if that is \
                 meant",
                self.ack_level
            )));
        }
        Ok(())
    }

    /// Refuses to show the log as keys where clients without the right would read it, or where
    /// there is none.
    pub(crate) fn check_log_keys(&self) -> Result<(), Failure> {
        let Some(prefix) = &self.kv.log_keys else {
            return Ok(());
        };
        if !(1..=LOG_KEYS_MAX).contains(&prefix.len()) {
            return Err(Failure::usage(format!(
                "--kv-log-keys: a prefix of 1 to {LOG_KEYS_MAX} bytes, such as log:"
            )));
        }
        if !self.serves_kv() {
            // In a file that is that of several servers it may stand all the same.
            return Ok(());
        }
        if !self.need_log() {
            return Err(Failure::usage(
                "--kv-log-keys shows what ingest keeps, or ack with --ack-level, and neither is served here",
            ));
        }
        if self.kv.log_past_tokens {
            return Ok(());
        }
        let what = match () {
            () if !self.ingest.tokens.is_empty() => "tokens",
            () if self.wants_certificates_for_the_log() => "certificates",
            () => return Ok(()),
        };
        Err(Failure::usage(format!(
            "ingest asks for {what}, and clients of kv show none: with --kv-log-keys any client that may read keys would read all \
             streams. Leave it out, or add --kv-log-past-tokens if that is meant; ACL then says which user reads which stream \
             (%R~{prefix}NAME)"
        )))
    }

    /// Whether a reader of the log by ingest shows a certificate, and a reader by kv does not.
    fn wants_certificates_for_the_log(&self) -> bool {
        let asks = |kind: Kind| {
            let mut own = self.endpoints.iter().filter(move |e| e.kind == kind);
            own.any(|e| e.front.asks_for_certificates())
        };
        let resp = Kind::Kv(KvMode::Resp);
        let mut own = self.endpoints.iter().filter(|e| e.kind == resp);
        asks(Kind::Ingest) && !own.all(|e| e.front.asks_for_certificates())
    }

    /// Logs what an operator should know about admitted clients.
    pub(crate) fn warn_of_strangers(&self) {
        if self.binary_left_out {
            tracing::info!(
                "kv/binary is left out: kv has a password, and that protocol knows none \
                 (to serve it all the same: kv/resp kv/binary --open=kv/binary)"
            );
        }
        for path in [
            &self.kv.password_file,
            &self.kv.acl_file,
            &self.ingest_token_file,
        ] {
            if let Some(path) = path.as_deref().filter(|path| secret::is_exposed(path)) {
                tracing::warn!(file = %path.display(), "others may read this secret: chmod 600");
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
        let service = Named(vec![endpoint.kind]);
        let addr = &endpoint.place;
        match self.guard(endpoint) {
            Guard::Secret | Guard::Certificate => {}
            Guard::Open => tracing::info!(
                %service, %addr,
                "open to every host that reaches it, as --open says"
            ),
            Guard::Harmless => tracing::warn!(
                %service, %addr,
                "open to every host that reaches it; --open={service} says that this is meant"
            ),
            Guard::ThisHost => tracing::warn!(
                %service, %addr,
                "requires no secret, so other hosts are turned away; {}--tls-client-ca asks for certificates; \
                 --open={service} lets in every client that reaches it",
                match endpoint.kind {
                    Kind::Kv(KvMode::Resp) => "--kv-password-file asks for one; ",
                    Kind::Ingest => "--ingest-token-file asks for one; ",
                    _ => "",
                }
            ),
        }
    }
}
