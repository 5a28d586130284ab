//! Clients that have connected and said nothing when a stop begins: they are served first, within their own deadlines and the
//! stop's.

use std::time::Duration;

use tidewire::Closed;

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::record::Event;
use crate::roles::Echo;
use crate::variant::Variant;
use crate::world::{self, Moment};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_stop_serves_clients_that_have_not_spoken),
        case!(a_stop_cuts_clients_that_stay_silent_at_its_deadline),
        case!(a_silent_client_holds_a_stop_up_to_its_first_byte_deadline),
        case!(a_client_between_two_requests_is_not_lingered_for),
        case!(a_successor_takes_clients_that_have_not_spoken),
        case!(services_whose_silent_clients_are_not_waited_for_long),
    ]
}

/// A deadline that no case that ends in order comes near.
const AMPLE: Duration = Duration::from_secs(60);
/// Far shorter than that.
const SOON: Duration = Duration::from_secs(15);

/// A client of a server whose other clients are silent: when it sees its end, the stop has begun.
fn served(server: &Server) -> Client {
    let mut client = server.connect();
    client.send(b"first");
    client.expect(b"first");
    client
}

fn a_stop_serves_clients_that_have_not_spoken(v: Variant) {
    const SILENT: u64 = 12;
    let server = Setup::on(v).start(|| Echo);
    let marker = served(&server);
    let mut clients: Vec<Client> = (0..SILENT).map(|_| server.connect()).collect();
    server.until("all are open", |c| c.open == SILENT + 1);
    let record = server.record.clone();
    let stop = world::spawn(move || server.stop_within(AMPLE));
    record.until("the stop", |r| r.count(&Event::Draining) > 0);
    drop(marker);
    for client in &mut clients {
        client.send(b"late");
        client.expect(b"late");
        client.expect_end();
    }
    drop(clients);
    let counters = stop.join().expect("the stop");
    assert_eq!(counters.closed_for(Closed::Stopped), SILENT + 1);
    assert_eq!(record.lock().count(&Event::Draining), SILENT as usize + 1);
}

fn a_stop_cuts_clients_that_stay_silent_at_its_deadline(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    server.until("it is open", |c| c.open == 1);
    let counters = server.stop_within(Duration::from_secs(2));
    client.expect_reset();
    assert_eq!(counters.closed_for(Closed::StopDeadline), 1);
}

fn a_silent_client_holds_a_stop_up_to_its_first_byte_deadline(v: Variant) {
    let setup = Setup::on(v).limits(|l| l.first_byte = Some(Duration::from_secs(3)));
    let server = setup.start(|| Echo);
    let client = server.connect();
    server.until("it is open", |c| c.open == 1);
    let began = Moment::now();
    let counters = server.stop_within(AMPLE);
    assert!(began.elapsed() < SOON);
    assert_eq!(counters.closed_for(Closed::FirstByteLate), 1);
    drop(client);
}

fn a_client_between_two_requests_is_not_lingered_for(v: Variant) {
    let setup = Setup::on(v).limits(|l| l.linger = Duration::from_secs(30));
    let server = setup.start(|| Echo);
    let mut client = served(&server);
    let began = Moment::now();
    let counters = server.stop_within(AMPLE);
    assert!(began.elapsed() < SOON, "its end was waited for");
    assert_eq!(counters.closed_for(Closed::Stopped), 1);
    client.expect_end();
}

fn a_successor_takes_clients_that_have_not_spoken(v: Variant) {
    const SILENT: u64 = 12;
    let old = Setup::on(v).start(|| Echo);
    let mut clients: Vec<Client> = (0..SILENT).map(|_| old.connect()).collect();
    let mut busy = old.connect();
    busy.send(b"old");
    busy.expect(b"old");
    old.until("all are open", |c| c.open == SILENT + 1);
    let new = Setup::on(v).start(|| Echo);
    let inbound = new.running().inbound();
    let (running, record) = old.into_parts();
    let drain = running.hand_over_unserved(AMPLE);
    busy.expect_end();
    drop(busy);
    let mut taken = 0;
    let mut pass_on = |drain: &tidewire::Drain| {
        for unserved in drain.take_unserved() {
            assert_eq!(unserved.listener, 0);
            inbound.accept(unserved).expect("a loop that runs");
            taken += 1;
        }
    };
    match v.direct {
        // The connections cannot leave the ring's table: the old loops serve them.
        true => {}
        // A connection that has left may be on its way until its loop has ended.
        false => {
            while !drain.wait_for(Duration::from_millis(1)) {
                pass_on(&drain);
            }
            pass_on(&drain);
        }
    }
    for client in &mut clients {
        client.send(b"late");
        client.expect(b"late");
    }
    if v.direct {
        clients.clear();
    }
    let counters = drain.wait();
    assert_eq!(counters.closed_for(Closed::Stopped), SILENT + 1);
    record.check();
    assert_eq!(new.counters().accepted, if v.direct { 0 } else { SILENT });
    drop(clients);
    new.stop();
}

fn services_whose_silent_clients_are_not_waited_for_long(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    server.until("it is open", |c| c.open == 1);
    let (running, record) = server.into_parts();
    let names: Vec<String> = running
        .observer()
        .services()
        .iter()
        .map(|n| n.to_string())
        .collect();
    running.limit_unserved(&names, Duration::from_millis(100));
    let began = Moment::now();
    let drain = running.hand_over(AMPLE);
    client.expect_end();
    drop(client);
    assert_eq!(drain.wait().closed_for(Closed::Stopped), 1);
    assert!(began.elapsed() < SOON);
    record.check();
}
