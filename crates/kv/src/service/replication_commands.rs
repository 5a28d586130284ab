//! ROLE and REPLICAOF, and what INFO says of the home of the store.

use super::call::{Call, Flow};
use super::ownership::is_slave;
use super::replication::{LeaseShown, Role};
use super::section::line;
use super::sentinel::{Address, Sentinel};
use super::shared::Shared;
use crate::commands::parse::is;
use crate::number::parse_integer;
use crate::reply::Reply;

/// The section of INFO.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let shared = call.shared.clone();
    let is_slave = is_slave(&shared);
    line(text, "role", if is_slave { "slave" } else { "master" });
    let Some(replication) = shared.replication.get() else {
        line(text, "connected_slaves", 0);
        line(text, "master_repl_offset", 0);
        return;
    };
    let status = replication.status();
    let (home, lost) = (&replication.0.home, shared.durable.get());
    let lost = lost.and_then(|durable| durable.log.lost());
    if is_slave {
        let is_up = status.is_linked && lost.is_none() && status.lease != LeaseShown::Lapsed;
        match shared.sentinel.get().and_then(Sentinel::other_owner) {
            Some(owner) => {
                line(text, "master_host", owner.host);
                line(text, "master_port", owner.port);
            }
            None => {
                line(text, "master_host", home);
                line(text, "master_port", 0);
            }
        }
        line(
            text,
            "master_link_status",
            if is_up { "up" } else { "down" },
        );
        line(
            text,
            "master_sync_in_progress",
            u8::from(shared.store.is_loading()),
        );
        line(text, "slave_read_only", 1);
        line(text, "slave_repl_offset", status.position);
    }
    let replicas = replicas(&shared);
    line(text, "connected_slaves", replicas.len());
    for (number, at) in replicas.iter().enumerate() {
        // How far each is it says itself.
        let (host, port) = (&at.host, at.port);
        let described = format!("ip={host},port={port},state=online,offset=0,lag=0");
        line(text, &format!("slave{number}"), described);
    }
    line(text, "master_repl_offset", status.position);
    line(text, "home", home);
    let is_unproven = lost.is_none() && is_slave && status.role == Role::Owner;
    let role = match is_unproven {
        true => "unproven",
        false => name(status.role, lost.is_some()),
    };
    line(text, "home_role", role);
    let lease = match lost {
        Some(_) => LeaseShown::None,
        None => status.lease,
    };
    line(text, "home_lease", lease.name());
    line(
        text,
        "home_link",
        if status.is_linked { "up" } else { "down" },
    );
    line(text, "home_lag", status.lag);
    line(
        text,
        "home_lag_seconds",
        format!("{:.3}", status.behind_ms as f64 / 1e3),
    );
    if let Some(why) = lost.or(status.trouble.as_ref()) {
        line(text, "home_trouble", why.replace(['\r', '\n'], " "));
    }
}

/// The servers that follow this one's store, if it is the owner and knows them.
fn replicas(shared: &Shared) -> Vec<Address> {
    match shared.sentinel.get() {
        Some(sentinel) if !is_slave(shared) => sentinel.servers().others,
        _ => Vec::new(),
    }
}

/// The name of a role in INFO and ROLE.
fn name(role: Role, is_lost: bool) -> &'static str {
    match role {
        _ if is_lost => "former",
        Role::Owner => "owner",
        Role::Follower => "follower",
        Role::TakesOver => "takes-over",
    }
}

pub(super) fn role(call: &mut Call<'_, '_>) -> Flow {
    tell_role(&call.shared, call.reply);
    Flow::Done
}

/// Answers ROLE.
pub(super) fn tell_role(shared: &Shared, reply: &mut Reply) {
    let replication = shared.replication.get();
    let position = replication.map_or(0, |replication| replication.status().position) as i64;
    if !is_slave(shared) {
        reply.array(3);
        reply.bulk(b"master");
        reply.integer(position);
        let replicas = replicas(shared);
        reply.array(replicas.len());
        for at in &replicas {
            reply.array(3);
            reply.bulk(at.host.as_bytes());
            reply.bulk(at.port.to_string().as_bytes());
            reply.bulk(b"0");
        }
        return;
    }
    let home = replication.map_or("", |replication| &replication.0.home);
    let is_linked = replication.is_some_and(|replication| {
        let status = replication.status();
        status.is_linked && status.lease != LeaseShown::Lapsed
    });
    reply.array(5);
    reply.bulk(b"slave");
    match shared.sentinel.get().and_then(Sentinel::other_owner) {
        Some(owner) => {
            reply.bulk(owner.host.as_bytes());
            reply.integer(owner.port.into());
        }
        None => {
            reply.bulk(home.as_bytes());
            reply.integer(0);
        }
    }
    reply.bulk(match is_linked {
        _ if shared.store.is_loading() => b"sync",
        true => b"connected",
        false => b"connect",
    });
    reply.integer(position);
}

/// REPLICAOF and SLAVEOF. Which server this one follows is set at its start. The command promotes
/// this server, and is answered when the promotion has succeeded or failed.
pub(super) fn replicaof(call: &mut Call<'_, '_>) -> Flow {
    let (host, port) = (call.args[1], call.args[2]);
    if !(is(host, "no") && is(port, "one")) {
        let is_port = parse_integer(port).is_some_and(|port| (0..=65535).contains(&port));
        call.reply.error(match is_port {
            false => "ERR Invalid master port",
            true => {
                "ERR the server to follow is set at the start, with --follow: see the documentation of replication"
            }
        });
        return Flow::Done;
    }
    let shared = call.shared.clone();
    if let Some(why) = shared.durable.get().and_then(|durable| durable.log.lost()) {
        let why = why.replace(['\r', '\n'], " ");
        call.reply.error(format!(
            "ERR another server has taken this store over, and this one does not take it back: start it anew as a follower ({why})"
        ));
        return Flow::Done;
    }
    let follows = |shared: &Shared| {
        let durable = shared.durable.get();
        durable.is_some_and(|durable| durable.log.follows())
    };
    let replication = shared.replication.get();
    let Some(replication) =
        replication.filter(|_| call.session.waits_for_takeover.is_some() || follows(&shared))
    else {
        call.reply.ok();
        return Flow::Done;
    };
    if call.in_transaction {
        call.reply
            .error("ERR a store is not taken over within a transaction");
        return Flow::Done;
    }
    let waits = &mut call.session.waits_for_takeover;
    let waits = waits.get_or_insert_with(|| replication.ask());
    let Some(outcome) = waits.outcome() else {
        return Flow::Later;
    };
    call.session.waits_for_takeover = None;
    match outcome {
        Ok(()) => call.reply.ok(),
        Err(why) => {
            let why = why.replace(['\r', '\n'], " ");
            call.reply
                .error(format!("ERR the store was not taken over: {why}"));
        }
    }
    Flow::Done
}
