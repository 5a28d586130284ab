//! Commands for servers of a cluster: this server knows no other server, and its answers are the
//! answers of a Redis without a cluster and without replicas.

use super::call::{Call, Flow};
use super::hello::REDIS_VERSION;
use crate::commands::Error;
use crate::commands::parse::is;
use crate::commands::subcommands::Subcommands;

/// The subcommands of CLUSTER.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("addslots", -3),
    ("addslotsrange", -4),
    ("bumpepoch", 2),
    ("count-failure-reports", 3),
    ("countkeysinslot", 3),
    ("delslots", -3),
    ("delslotsrange", -4),
    ("failover", -2),
    ("flushslots", 2),
    ("forget", 3),
    ("getkeysinslot", 4),
    ("help", 2),
    ("info", 2),
    ("keyslot", 3),
    ("links", 2),
    ("meet", -4),
    ("myid", 2),
    ("myshardid", 2),
    ("nodes", 2),
    ("replicas", 3),
    ("replicate", 3),
    ("reset", -2),
    ("saveconfig", 2),
    ("set-config-epoch", 3),
    ("setslot", -4),
    ("shards", 2),
    ("slaves", 3),
    ("slots", 2),
];

/// CLUSTER, READONLY, READWRITE and ASKING.
pub(super) fn disabled(call: &mut Call<'_, '_>) -> Flow {
    call.reply
        .error("ERR This instance has cluster support disabled");
    Flow::Done
}

/// REPLCONF: what Redis replicas send before they follow; no Redis replica can follow this server.
pub(super) fn replconf(call: &mut Call<'_, '_>) -> Flow {
    const KNOWN: [&str; 8] = [
        "listening-port",
        "ip-address",
        "capa",
        "ack",
        "getack",
        "rdb-only",
        "rdb-filter-only",
        "version",
    ];
    let options = &call.args[1..];
    if !options.len().is_multiple_of(2) {
        call.reply.error(Error::SYNTAX.0);
        return Flow::Done;
    }
    let names = options.iter().step_by(2);
    let unknown = |name: &&&[u8]| !KNOWN.iter().any(|known| is(name, known));
    match names.clone().find(unknown) {
        Some(name) => {
            let error = Error::quoting("ERR Unrecognized REPLCONF option: ", name, "");
            call.reply.error(error.0);
        }
        None => call.reply.ok(),
    }
    Flow::Done
}

/// FAILOVER: no server is there to take over.
pub(super) fn failover(call: &mut Call<'_, '_>) -> Flow {
    let error = match call.args[1..] {
        [] => "ERR FAILOVER requires connected replicas.",
        [word] if is(word, "abort") => "ERR No failover in progress.",
        [word, ..]
            if ["to", "abort", "force", "timeout"]
                .iter()
                .any(|w| is(word, w)) =>
        {
            "ERR FAILOVER requires connected replicas."
        }
        _ => "ERR syntax error",
    };
    call.reply.error(error);
    Flow::Done
}

/// The server opens no connections of its own.
pub(super) fn migrate(call: &mut Call<'_, '_>) -> Flow {
    call.reply
        .error("ERR MIGRATE is not supported by this server: use DUMP and RESTORE");
    Flow::Done
}

/// LOLWUT: the version, below waves.
pub(super) fn lolwut(call: &mut Call<'_, '_>) -> Flow {
    const WIDTH: usize = 40;
    let mut art = String::new();
    for row in 0..4 {
        for column in 0..WIDTH {
            let crest = (column + row * 3) % 8;
            art.push(['_', '.', '-', '~', '^', '~', '-', '.'][crest]);
        }
        art.push('\n');
    }
    // Clients look for this word.
    let version = env!("CARGO_PKG_VERSION");
    art.push_str(&format!(
        "Tidewire ver. {version}, like Redis ver. {REDIS_VERSION}\n"
    ));
    call.reply.verbatim(&art);
    Flow::Done
}
