//! Peers have names here too, and the same ones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sim::{Outcome, PlainState, Sim};
use crate::{Dial, Endpoint, Limits, LoopHandle, Origin, Peer, Refusal, Service};

use super::services::Echo;

/// Notes its peers.
#[derive(Clone, Default)]
struct Guests(Arc<Mutex<Vec<Peer>>>);

impl Service for Guests {
    type Conn = Echo;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, from: &Peer, (): &mut ()) -> Result<Echo, Refusal> {
        self.0.lock().unwrap().push(from.clone());
        Ok(Echo)
    }
}

#[test]
fn peers_of_tcp_have_addresses_and_peers_of_unix_sockets_none() {
    let guests = Guests::default();
    let mut sim = Sim::new(1);
    let at = sim.add_loop();
    let service = sim.service(at, guests.clone(), Limits::default());
    let tcp = sim.listen(service);
    sim.listen_at(service, "unix:/run/it.sock");
    sim.listen_at(service, "unix:@it");
    for place in [
        tcp,
        "unix:/run/it.sock".parse().unwrap(),
        "unix:@it".parse().unwrap(),
    ] {
        let peer = sim.plain(place);
        sim.send(peer, b"x");
        assert_eq!(sim.run_until_quiet(Duration::from_secs(10)), Outcome::Idle);
        assert_eq!(sim.received(peer), b"x");
    }
    sim.dial(service, Dial::to("unix:@it"));
    assert_eq!(sim.run_until_quiet(Duration::from_secs(10)), Outcome::Idle);
    let nobody = sim.plain("unix:@nobody");
    assert_eq!(sim.run_until_quiet(Duration::from_secs(10)), Outcome::Idle);
    assert!(matches!(sim.state(nobody), PlainState::Failed(_)));
    let seen = guests.0.lock().unwrap();
    assert!(seen[0].endpoint.is_tcp() && seen[0].origin == Origin::Accepted(0));
    for (i, peer) in seen[1..3].iter().enumerate() {
        assert_eq!(peer.endpoint, Endpoint::Unnamed);
        assert_eq!(peer.origin, Origin::Accepted(1 + i as u32));
    }
    let (dialled, accepted) = (&seen[3], &seen[4]);
    let ours = [&dialled.endpoint, &accepted.endpoint].map(|e| e.to_string());
    assert!(ours.contains(&"unix:@it".into()) && ours.contains(&"unix:".into()));
}
