//! The layers that stand in front of services: which listener has which.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use tidewire::proxy::{Header, Proxy};
use tidewire::{Origin, Peer, Refusal, Wrap};
use tidewire_tls::{Records, TlsServer};

use crate::exit::Failure;
use crate::secret;
use crate::serve::listeners::tls::{Front, Handshake, TlsFiles};

/// The admin listener's number here: it is on a loop of its own, whose listeners have other numbers.
const ADMIN: u32 = u32::MAX;

/// The layers in front of the listeners, by the listeners' numbers. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fronts {
    handshake: Handshake,
    at: Arc<RwLock<HashMap<u32, Standing>>>,
}

#[derive(Clone, Debug)]
struct Standing {
    files: Option<TlsFiles>,
    tls: Option<TlsServer>,
    proxy: Option<Proxy>,
}

impl Fronts {
    pub(crate) fn new(handshake: Handshake) -> Fronts {
        Fronts {
            handshake,
            ..Fronts::default()
        }
    }

    /// Puts one there. Its files are read.
    pub(crate) fn put(&self, listener: u32, front: &Front) -> Result<(), Failure> {
        let tls = front.tls.as_ref().map(|files| files.load(self.handshake));
        let proxy = (!front.proxy_from.is_empty()).then(|| {
            let proxy = Proxy::from(front.proxy_from.iter().copied());
            proxy.deadline(self.handshake.proxy)
        });
        let standing = Standing {
            files: front.tls.clone(),
            tls: tls.transpose()?,
            proxy,
        };
        let mut at = self.at.write().unwrap_or_else(PoisonError::into_inner);
        at.insert(listener, standing);
        Ok(())
    }

    /// Puts one in front of the admin listener.
    pub(crate) fn put_admin(&self, front: &Front) -> Result<(), Failure> {
        self.put(ADMIN, front)
    }

    /// Reads all files again; new connections use the new contents. Returns how many listeners use
    /// them; if a file is invalid, nothing changes.
    pub(crate) fn reload(&self) -> Result<usize, Failure> {
        let before = self.at.read().unwrap_or_else(PoisonError::into_inner);
        let mut after = before.clone();
        drop(before);
        let mut count = 0;
        for standing in after.values_mut() {
            if let Some(files) = &standing.files {
                standing.tls = Some(files.load(self.handshake)?);
                count += 1;
            }
        }
        *self.at.write().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(count)
    }

    /// Logs what an operator should know about the files.
    pub(crate) fn warn(&self) {
        let at = self.at.read().unwrap_or_else(PoisonError::into_inner);
        let mut keys: Vec<&PathBuf> = at
            .values()
            .filter_map(|standing| Some(&standing.files.as_ref()?.key))
            .filter(|path| secret::is_exposed(path))
            .collect();
        keys.sort();
        keys.dedup();
        for file in keys {
            tracing::warn!(file = %file.display(), "other users may read this private key: chmod 600");
        }
    }

    fn of<T>(&self, peer: &Peer, f: impl FnOnce(&Standing) -> Option<T>) -> Option<T> {
        let Origin::Accepted(listener) = peer.origin else {
            return None;
        };
        self.at(listener, f)
    }

    fn at<T>(&self, listener: u32, f: impl FnOnce(&Standing) -> Option<T>) -> Option<T> {
        let at = self.at.read().unwrap_or_else(PoisonError::into_inner);
        at.get(&listener).and_then(f)
    }
}

/// TLS where the listener says so.
#[derive(Clone, Debug)]
pub(crate) struct TlsFront(pub(crate) Fronts);

impl Wrap for TlsFront {
    type Layer = Records;

    fn wrap(&self, from: &Peer) -> Result<Option<Records>, Refusal> {
        let tls = self.0.of(from, |standing| standing.tls.clone());
        tls.map_or(Ok(None), |tls| tls.wrap(from))
    }

    /// A client that is refused before its handshake hears nothing: an answer would cost a
    /// handshake.
    fn is_transparent(&self, from: &Peer) -> bool {
        let speaks = self
            .0
            .of(from, |standing| standing.tls.as_ref().map(|_| ()));
        speaks.is_none()
    }
}

/// TLS in front of the admin listener.
#[derive(Clone, Debug)]
pub(crate) struct AdminFront(pub(crate) Fronts);

impl Wrap for AdminFront {
    type Layer = Records;

    fn wrap(&self, from: &Peer) -> Result<Option<Records>, Refusal> {
        let tls = self.0.at(ADMIN, |standing| standing.tls.clone());
        tls.map_or(Ok(None), |tls| tls.wrap(from))
    }
}

/// The PROXY protocol where the listener says so.
#[derive(Clone, Debug)]
pub(crate) struct ProxyFront(pub(crate) Fronts);

impl Wrap for ProxyFront {
    type Layer = Header;

    fn wrap(&self, from: &Peer) -> Result<Option<Header>, Refusal> {
        let header = self
            .0
            .of(from, |standing| Some(standing.proxy.as_ref()?.wrap(from)));
        header.unwrap_or(Ok(None))
    }

    fn is_transparent(&self, _: &Peer) -> bool {
        true
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        let is_proxy = |standing: &Standing| Some(standing.proxy.as_ref()?.speaks_for_others(from));
        self.0.of(from, is_proxy).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_other_listeners_are_left_alone() {
        let fronts = Fronts::default();
        let peer = |origin| Peer::new(([127, 0, 0, 1], 4000), origin);
        for origin in [Origin::Accepted(0), Origin::Dialled(0)] {
            assert!(
                TlsFront(fronts.clone())
                    .wrap(&peer(origin))
                    .unwrap()
                    .is_none()
            );
            assert!(
                ProxyFront(fronts.clone())
                    .wrap(&peer(origin))
                    .unwrap()
                    .is_none()
            );
        }
    }
}
