//! The SENTINEL command.

use super::call::{Call, Flow};
use super::section::line;
use super::sentinel::{Address, Sentinel, Servers};
use crate::commands::Error;
use crate::commands::parse::is;
use crate::commands::subcommands::Subcommands;
use crate::reply::Reply;
use crate::types::glob;

/// The subcommands of SENTINEL.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("ckquorum", 3),
    ("config", -4),
    ("debug", -2),
    ("failover", 3),
    ("flushconfig", 2),
    ("get-master-addr-by-name", 3),
    ("help", 2),
    ("info-cache", -3),
    ("is-master-down-by-addr", 6),
    ("master", 3),
    ("masters", 2),
    ("monitor", 6),
    ("myid", 2),
    ("pending-scripts", 2),
    ("remove", 3),
    ("replicas", 3),
    ("reset", 3),
    ("sentinels", 3),
    ("set", -5),
    ("simulate-failure", -3),
    ("slaves", 3),
];

const NOT_HERE: &str =
    "ERR this server has no other servers to tell of: it was started without --kv-failover";
const NO_SUCH_MASTER: &str = "ERR No such master with that name";
const BY_SETTINGS: &str = "ERR the servers of a store are those that are started with its home, --kv-replicate and --kv-failover: start one to add it, \
     stop one to remove it; other settings are flags of serve kv";
const BY_PROMOTION: &str = "ERR a server takes the store over when it is told to: tidewire kv promote --to HOST:PORT, or REPLICAOF NO ONE there";

/// Runs SENTINEL.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    let Some(sentinel) = call.shared.sentinel.get().cloned() else {
        call.reply.error(NOT_HERE);
        return Flow::Done;
    };
    let servers = sentinel.servers();
    let sub = call.args[1].to_ascii_lowercase();
    let is_named = |name: &[u8]| name == sentinel.name().as_bytes();
    let args: Vec<&[u8]> = call.args[2..].to_vec();
    let reply = &mut *call.reply;
    match (&sub[..], &args[..]) {
        (b"get-master-addr-by-name", [name]) => {
            match servers.owner.filter(|_| is_named(name)) {
                Some(owner) => {
                    reply.array(2);
                    reply.bulk(owner.host.as_bytes());
                    reply.bulk_integer(owner.port.into());
                }
                None => reply.null_array(),
            }
        }
        (b"masters", []) => {
            reply.array(1);
            master(&sentinel, &servers, reply);
        }
        (b"myid", []) => reply.bulk(sentinel.own().run_id().as_bytes()),
        (b"is-master-down-by-addr", [host, port, ..]) => {
            let is_it = servers.owner.as_ref().is_some_and(|owner| {
                owner.host.as_bytes() == *host && owner.port.to_string().as_bytes() == *port
            });
            reply.array(3);
            reply.integer((is_it && servers.is_owner_down).into());
            reply.bulk(b"*");
            reply.integer(0);
        }
        (b"reset", [pattern]) => {
            let matches = glob::matches(pattern, sentinel.name().as_bytes());
            reply.integer(matches.into());
        }
        (b"pending-scripts", []) => reply.array(0),
        (b"flushconfig", []) => reply.ok(),
        (b"config", [word, ..]) if is(word, "get") => reply.map(0),
        (b"config" | b"monitor", _) => reply.error(BY_SETTINGS),
        (b"debug", []) => reply.map(0),
        (b"info-cache", _) => reply.array(0),
        (b"debug" | b"simulate-failure", _) => {
            reply.error("ERR this server simulates no failures of a Sentinel");
        }
        (b"help", _) => help(call),
        (_, [name, ..]) if !is_named(name) => reply.error(NO_SUCH_MASTER),
        (b"master", _) => master(&sentinel, &servers, reply),
        (b"replicas" | b"slaves", _) => {
            let replicas = sentinel.replicas();
            reply.array(replicas.len());
            for at in &replicas {
                replica(at, &servers, reply);
            }
        }
        (b"sentinels", _) => {
            reply.array(servers.others.len());
            for at in &servers.others {
                other(at, &servers, reply);
            }
        }
        (b"ckquorum", _) => match servers.owner.is_some() && !servers.is_owner_down {
            true => reply.simple(&format!(
                "OK {} usable Sentinels. Quorum and failover authorization can be reached",
                servers.others.len() + 1
            )),
            false => reply.error(
                "NOQUORUM the home of the store is not reached, or no server has proved there for its lease that it is the owner",
            ),
        },
        (b"failover", _) => reply.error(BY_PROMOTION),
        (b"remove" | b"set", _) => reply.error(BY_SETTINGS),
        _ => reply.error(Error::SYNTAX.0),
    }
    Flow::Done
}

/// The section of INFO.
pub(super) fn info(call: &mut Call<'_, '_>, text: &mut String) {
    let Some(sentinel) = call.shared.sentinel.get() else {
        return;
    };
    let servers = sentinel.servers();
    line(text, "sentinel_masters", 1);
    line(text, "sentinel_tilt", 0);
    line(text, "sentinel_tilt_since_seconds", -1);
    line(text, "sentinel_running_scripts", 0);
    line(text, "sentinel_scripts_queue_length", 0);
    line(text, "sentinel_simulate_failure_flags", 0);
    let status = match servers.is_owner_down {
        _ if servers.owner.is_none() => "odown",
        true => "odown",
        false => "ok",
    };
    let address = servers.owner.as_ref();
    let address = address.map_or_else(String::new, |at| format!("{}:{}", at.host, at.port));
    let described = format!(
        "name={},status={status},address={address},slaves={},sentinels={}",
        sentinel.name(),
        sentinel.replicas().len(),
        servers.others.len() + 1
    );
    line(text, "master0", described);
}

fn help(call: &mut Call<'_, '_>) {
    call.help(&[
        "SENTINEL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CKQUORUM <name>",
        "    Whether the home is reached and the store has an owner.",
        "GET-MASTER-ADDR-BY-NAME <name>",
        "    Where the owner of the store is.",
        "IS-MASTER-DOWN-BY-ADDR <ip> <port> <epoch> <runid>",
        "    Whether the owner there has proved nothing for too long.",
        "MASTER <name>, MASTERS",
        "    What is known of the owner.",
        "MYID",
        "    The name of this server among the servers of the store.",
        "REPLICAS <name>",
        "    The servers that follow the owner.",
        "SENTINELS <name>",
        "    The servers that answer SENTINEL, but this one.",
    ]);
}

/// Writes a map of texts.
fn fields(fields: &[(&str, String)], reply: &mut Reply) {
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// The fields that are shown of each server.
fn common(
    name: String,
    at: &Address,
    flags: &str,
    servers: &Servers,
) -> Vec<(&'static str, String)> {
    let zero = || "0".to_owned();
    vec![
        ("name", name),
        ("ip", at.host.clone()),
        ("port", at.port.to_string()),
        ("runid", at.run_id()),
        ("flags", flags.to_owned()),
        ("link-pending-commands", zero()),
        ("link-refcount", "1".to_owned()),
        ("last-ping-sent", zero()),
        ("last-ok-ping-reply", zero()),
        ("last-ping-reply", zero()),
        ("down-after-milliseconds", servers.down_after_ms.to_string()),
    ]
}

fn master(sentinel: &Sentinel, servers: &Servers, reply: &mut Reply) {
    let nowhere = Address {
        host: String::new(),
        port: 0,
    };
    let at = servers.owner.as_ref().unwrap_or(&nowhere);
    let flags = match servers.owner.is_none() || servers.is_owner_down {
        true => "master,s_down,o_down",
        false => "master",
    };
    let mut all = common(sentinel.name().to_owned(), at, flags, servers);
    all.extend([
        ("info-refresh", "0".to_owned()),
        ("role-reported", "master".to_owned()),
        ("role-reported-time", "0".to_owned()),
        ("config-epoch", servers.epoch.to_string()),
        ("num-slaves", sentinel.replicas().len().to_string()),
        ("num-other-sentinels", servers.others.len().to_string()),
        ("quorum", "1".to_owned()),
        ("failover-timeout", servers.down_after_ms.to_string()),
        ("parallel-syncs", "1".to_owned()),
    ]);
    fields(&all, reply);
}

fn replica(at: &Address, servers: &Servers, reply: &mut Reply) {
    let mut all = common(at.to_string(), at, "slave", servers);
    let owner = servers.owner.as_ref();
    let is_up = owner.is_some() && !servers.is_owner_down;
    all.extend([
        ("info-refresh", "0".to_owned()),
        ("role-reported", "slave".to_owned()),
        ("role-reported-time", "0".to_owned()),
        ("master-link-down-time", "0".to_owned()),
        (
            "master-link-status",
            if is_up { "ok" } else { "err" }.to_owned(),
        ),
        (
            "master-host",
            owner.map_or_else(|| "?".into(), |at| at.host.clone()),
        ),
        ("master-port", owner.map_or(0, |at| at.port).to_string()),
        ("slave-priority", "100".to_owned()),
        ("slave-repl-offset", "0".to_owned()),
        ("replica-announced", "1".to_owned()),
    ]);
    fields(&all, reply);
}

fn other(at: &Address, servers: &Servers, reply: &mut Reply) {
    let mut all = common(at.run_id(), at, "sentinel", servers);
    all.extend([
        ("last-hello-message", "0".to_owned()),
        ("voted-leader", "?".to_owned()),
        ("voted-leader-epoch", "0".to_owned()),
    ]);
    fields(&all, reply);
}
