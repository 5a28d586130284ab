//! All commands that are about the connection or the server, each with the function that runs it.

use super::call::{self, Call, Flow, Run};
use super::table::{self, SessionSpec, When};
use super::{
    acl, client, cluster, command, config, hello, info, latency, misc, monitor, persistence,
    pubsub_commands, replication_commands, saving, script, sentinel_commands, transaction_commands,
};

macro_rules! session {
    ($($name:literal $arity:literal $when:ident $subcommands:expr, $run:path;)*) => {
        &[$((
            SessionSpec {
                name: $name,
                arity: $arity,
                when: When::$when,
                subcommands: $subcommands,
            },
            $run,
        )),*]
    };
}

const SESSION: &[(SessionSpec, Run)] = session! {
    "hello" -1 First &[], hello::hello;
    "auth" -2 First &[], hello::auth;
    "quit" -1 Always &[], hello::quit;
    "reset" 1 Always &[], hello::reset;
    "ping" -1 Subscribed &[], hello::ping;
    "echo" 2 Usual &[], hello::echo;
    "select" 2 Usual &[], hello::select;
    "client" -2 Usual client::SUBCOMMANDS, client::run;
    "command" -1 Usual command::SUBCOMMANDS, command::run;
    "info" -1 Usual &[], info::run;
    "config" -2 Usual config::SUBCOMMANDS, config::run;
    "multi" 1 Transaction &[], transaction_commands::multi;
    "exec" 1 Transaction &[], elsewhere;
    "discard" 1 Transaction &[], transaction_commands::discard;
    "watch" -2 Transaction &[], transaction_commands::watch;
    "unwatch" 1 Usual &[], transaction_commands::unwatch;
    "subscribe" -2 Subscribed &[], pubsub_commands::subscribe;
    "unsubscribe" -1 Subscribed &[], pubsub_commands::unsubscribe;
    "psubscribe" -2 Subscribed &[], pubsub_commands::psubscribe;
    "punsubscribe" -1 Subscribed &[], pubsub_commands::punsubscribe;
    "ssubscribe" -2 Subscribed &[], pubsub_commands::ssubscribe;
    "sunsubscribe" -1 Subscribed &[], pubsub_commands::sunsubscribe;
    "publish" 3 Usual &[], pubsub_commands::publish;
    "spublish" 3 Usual &[], pubsub_commands::spublish;
    "pubsub" -2 Usual pubsub_commands::SUBCOMMANDS, pubsub_commands::pubsub;
    "eval" -3 Usual &[], elsewhere;
    "evalsha" -3 Usual &[], elsewhere;
    "eval_ro" -3 Usual &[], elsewhere;
    "evalsha_ro" -3 Usual &[], elsewhere;
    "fcall" -3 Usual &[], elsewhere;
    "fcall_ro" -3 Usual &[], elsewhere;
    "script" -2 Usual script::SUBCOMMANDS, elsewhere;
    "function" -2 Usual script::FUNCTION_SUBCOMMANDS, elsewhere;
    "time" 1 Usual &[], misc::time;
    "lastsave" 1 Usual &[], saving::lastsave;
    "save" 1 Alone &[], saving::save;
    "bgsave" -1 Usual &[], saving::bgsave;
    "bgrewriteaof" 1 Usual &[], saving::bgrewriteaof;
    "shutdown" -1 Alone &[], saving::shutdown;
    "wait" 3 Usual &[], persistence::wait;
    "waitaof" 4 Usual &[], persistence::waitaof;
    "debug" -2 Usual &[], misc::debug;
    "monitor" 1 Alone &[], monitor::monitor;
    "module" -2 Usual misc::MODULE, misc::module;
    "slowlog" -2 Usual misc::SLOWLOG, misc::slowlog;
    "latency" -2 Usual latency::SUBCOMMANDS, latency::run;
    "acl" -2 Usual acl::SUBCOMMANDS, acl::acl;
    "role" 1 Usual &[], replication_commands::role;
    "cluster" -2 Usual cluster::SUBCOMMANDS, cluster::disabled;
    "readonly" 1 Usual &[], cluster::disabled;
    "readwrite" 1 Usual &[], cluster::disabled;
    "asking" 1 Usual &[], cluster::disabled;
    "replicaof" 3 Usual &[], replication_commands::replicaof;
    "slaveof" 3 Usual &[], replication_commands::replicaof;
    "sentinel" -2 Usual sentinel_commands::SUBCOMMANDS, sentinel_commands::run;
    "replconf" -1 Usual &[], cluster::replconf;
    "failover" -1 Usual &[], cluster::failover;
    "migrate" -6 Usual &[], cluster::migrate;
    "lolwut" -1 Usual &[], cluster::lolwut;
};

/// EXEC, scripts and functions need the locks of the keys: they run where commands about keys do.
fn elsewhere(_: &mut Call<'_, '_>) -> Flow {
    unreachable!("run by the connection itself")
}

/// Makes all commands known. Call this function before any service starts.
pub(super) fn install() {
    let table = table::install(SESSION.iter().map(|(spec, _)| spec));
    call::install(table, SESSION.iter().map(|(spec, run)| (spec.name, *run)));
}
