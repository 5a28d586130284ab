//! Classic clients: they have no identity, so a connection that breaks is the end of its promise, and the next
//! one begins anew.

use tidewire::sim::{PlainId, PlainState, Sim};
use tidewire_ingest::classic::{Chain, Classic, header};

use crate::server::CLASSIC;

/// What the `n`th message of a connection says.
pub(crate) fn payload(connection: usize, n: u64) -> Vec<u8> {
    let mut payload = format!("{connection}/{n}:").into_bytes();
    payload.resize(payload.len() + (n * 53 % 300) as usize, b'.');
    payload
}

/// Whose message it is: connection and number.
pub(crate) fn told(payload: &[u8]) -> Option<(usize, u64)> {
    let text = std::str::from_utf8(payload).ok()?;
    let (connection, rest) = text.split_once('/')?;
    let (n, _) = rest.split_once(':')?;
    Some((connection.parse().ok()?, n.parse().ok()?))
}

/// One client, of many connections.
pub(crate) struct Client {
    classic: Classic,
    connections: Vec<(PlainId, u64)>,
}

impl Client {
    pub(crate) fn new(classic: Classic) -> Client {
        Client {
            classic,
            connections: Vec::new(),
        }
    }

    /// Sends some more messages, on a new connection if the last has gone.
    pub(crate) fn send(&mut self, sim: &mut Sim, count: u64) {
        let alive = self.connections.last().is_some_and(|(peer, _)| {
            matches!(sim.state(*peer), PlainState::Open | PlainState::Connecting)
        });
        if !alive {
            self.connections.push((sim.plain(CLASSIC), 0));
        }
        let connection = self.connections.len() - 1;
        let (peer, sent) = &mut self.connections[connection];
        let mut bytes = Vec::new();
        for n in *sent..*sent + count {
            let payload = payload(connection, n);
            let order = self.classic.order;
            bytes.extend_from_slice(&header(order, n.to_ne_bytes(), payload.len() as u32));
            bytes.extend_from_slice(&payload);
        }
        *sent += count;
        sim.send(*peer, &bytes);
    }

    /// Whether the messages that a log holds of these clients can be so.
    pub(crate) fn check(&self, sim: &Sim, stored: &[(usize, u64)]) -> Result<u64, String> {
        let mut sum = 0;
        for (connection, (peer, sent)) in self.connections.iter().enumerate() {
            let of_it = stored.iter().filter(|(c, _)| *c == connection);
            let there: Vec<u64> = of_it.map(|(_, n)| *n).collect();
            let acked = self.acknowledged(sim.received(*peer))?;
            sum += acked;
            if !there.iter().copied().eq(0..there.len() as u64) || there.len() as u64 > *sent {
                return Err(format!("classic {connection}: {there:?} of {sent}"));
            }
            if (there.len() as u64) < acked {
                let there = there.len();
                return Err(format!(
                    "classic {connection}: {acked} acknowledged, {there} there"
                ));
            }
        }
        Ok(sum)
    }

    /// How many messages whole acknowledgements speak for. The last may be cut off by a crash.
    fn acknowledged(&self, acks: &[u8]) -> Result<u64, String> {
        let mut chain = Chain::new(self.classic.form);
        let whole = acks.len() - acks.len() % self.classic.form.len();
        let checked = chain.check(&acks[..whole]).map_err(|e| e.to_string())?;
        assert_eq!(checked, whole);
        Ok(chain.acknowledged())
    }
}
