//! CONFIG: settings under the names that Redis has for them.
//!
//! A setting that cannot be changed at run time has its value in [`FIXED`]. A changeable one has a
//! function in [`LIVE`]: the first call checks the new value, the second call takes it. Settings
//! that are accepted without an effect are in `tuning.rs`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidewire_log::Policy as Commits;

use super::call::{Call, Flow};
use super::holdings::ClientsLimit;
use super::settings::Settings;
use super::shared::Shared;
use super::thresholds::{self, Threshold};
use super::tuning::{self, Tuning};
use super::values::{between, memory};
use crate::commands::Error;
use crate::commands::subcommands::Subcommands;
use crate::store::Policy;
use crate::store::events::{classes_text, parse_classes};
use crate::types::glob;

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern> [<pattern> ...]",
    "    Return parameters matching glob-like patterns and their values.",
    "SET <directive> <value> [<directive> <value> ...]",
    "    Set configuration directives to values.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
];

/// Parameters with a fixed value.
const FIXED: &[(&str, &str)] = &[
    ("cluster-enabled", "no"),
    ("daemonize", "no"),
    ("io-threads", "1"),
    ("rdbcompression", "no"),
    ("replica-read-only", "yes"),
    ("save", ""),
];

/// A function that takes a new value, or only checks the value.
type Write = fn(&Shared, &str, bool) -> Result<(), String>;

struct Live {
    name: &'static str,
    read: fn(&Shared) -> String,
    /// The function that changes the parameter; `None` if the parameter is fixed when the server
    /// starts.
    write: Option<Write>,
}

const LIVE: &[Live] = &[
    Live {
        name: "appendfsync",
        read: |s| {
            let name = match s.promised {
                Some(Commits::Sync) => "always",
                Some(Commits::Interval(_)) => "everysec",
                Some(Commits::Os) | None => "no",
            };
            name.to_owned()
        },
        write: None,
    },
    Live {
        name: "appendonly",
        read: |s| if s.promised.is_some() { "yes" } else { "no" }.to_owned(),
        write: None,
    },
    Live {
        name: "auto-aof-rewrite-min-size",
        read: |s| {
            let durable = s.durable.get();
            durable
                .map_or(0, |durable| durable.log.snapshots().growth())
                .to_string()
        },
        write: Some(|s, value, take| {
            let bytes = memory(value).ok_or("argument must be a memory value")?;
            if s.store.is_loading() {
                return Err("the store is being loaded".into());
            }
            if let Some(durable) = s.durable.get().filter(|_| take) {
                durable.log.snapshots().set_growth(bytes);
            }
            Ok(())
        }),
    },
    Live {
        name: "databases",
        read: |s| s.databases().to_string(),
        write: None,
    },
    Live {
        name: "dir",
        read: |s| match &s.config.directory {
            Some(directory) => directory.display().to_string(),
            None => "/".to_owned(),
        },
        write: None,
    },
    Live {
        name: "tcp-keepalive",
        read: |s| {
            let keepalive = s.config.keepalive;
            keepalive.map_or(0, |time| time.as_secs()).to_string()
        },
        write: None,
    },
    Live {
        name: "port",
        read: |s| s.port().to_string(),
        write: None,
    },
    Live {
        name: "maxclients",
        read: |s| s.config.clients_max.to_string(),
        write: None,
    },
    Live {
        name: "client-query-buffer-limit",
        read: |s| s.config.query_buffer.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            // Connections have room for the limit of the start; it can only be lowered.
            let most = s.config.query_buffer_max;
            let bytes = memory(value).and_then(|n| usize::try_from(n).ok());
            let least = Settings::QUERY_BUFFER_MIN;
            let bytes = bytes.filter(|n| (least..=most).contains(n) || *n == most);
            let bytes = bytes
                .ok_or_else(|| format!("argument must be between {least} and {most} inclusive"))?;
            if take {
                s.config.query_buffer.store(bytes, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "maxmemory-clients",
        read: |s| s.clients.total.limit().to_string(),
        write: Some(|s, value, take| {
            let percent = value.strip_suffix('%');
            let limit = match percent {
                Some(percent) => {
                    let percent = between(percent, 0, 100)
                        .map_err(|_| "argument must be a memory or percent value")?;
                    ClientsLimit::Percent(percent as u8)
                }
                None => ClientsLimit::Bytes(
                    memory(value).ok_or("argument must be a memory or percent value")?,
                ),
            };
            if take {
                s.clients.total.set_limit(limit);
            }
            Ok(())
        }),
    },
    Live {
        name: "maxmemory-samples",
        read: |s| s.store.eviction_samples().to_string(),
        write: Some(|s, value, take| {
            let n = between(value, 1, 64)?;
            if take {
                s.store.set_eviction_samples(n as usize);
            }
            Ok(())
        }),
    },
    Live {
        name: "client-output-buffer-limit",
        read: |s| {
            let shown = |bytes: &AtomicUsize| match bytes.load(Relaxed) {
                usize::MAX => 0,
                bytes => bytes,
            };
            let hard = shown(&s.config.subscriber_output);
            let normal = shown(&s.config.client_output);
            format!("normal {normal} 0 0 slave 0 0 0 pubsub {hard} 0 0")
        },
        write: Some(write_output_limit),
    },
    Live {
        name: "proto-max-bulk-len",
        read: |s| s.config.bulk_max.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let bytes = memory(value).filter(|&n| n >= 1 << 20);
            let bytes = bytes
                .ok_or("argument must be between 1048576 and 9223372036854775807 inclusive")?;
            if take {
                s.config.bulk_max.store(bytes as usize, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "hll-sparse-max-bytes",
        read: |s| s.store.limits().hll().to_string(),
        write: Some(|s, value, take| {
            let bytes = memory(value).ok_or("argument must be a memory value")?;
            if take {
                s.store.limits().set_hll(bytes as usize);
            }
            Ok(())
        }),
    },
    Live {
        name: "maxmemory",
        read: |s| s.store.maxmemory().to_string(),
        write: Some(|s, value, take| {
            let bytes = memory(value).ok_or("argument must be a memory value")?;
            if take {
                s.store.set_maxmemory(bytes);
            }
            Ok(())
        }),
    },
    Live {
        name: "maxmemory-policy",
        read: |s| s.store.policy().name().to_string(),
        write: Some(|s, value, take| {
            let policy = Policy::from_name(&value.to_ascii_lowercase());
            let policy = policy.ok_or_else(|| {
                let all: Vec<_> = Policy::ALL.iter().map(|p| p.name()).collect();
                format!(
                    "argument(s) must be one of the following: {}",
                    all.join(", ")
                )
            })?;
            if take {
                s.store.set_policy(policy);
            }
            Ok(())
        }),
    },
    Live {
        name: "notify-keyspace-events",
        read: |s| classes_text(s.store.events()),
        write: Some(|s, value, take| {
            let classes = parse_classes(value.as_bytes());
            let classes = classes.ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            if take {
                s.store.set_events(classes);
            }
            Ok(())
        }),
    },
    Live {
        name: "latency-monitor-threshold",
        read: |s| s.config.spikes_ms.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let ms = between(value, 0, i64::MAX)?;
            if take {
                s.config.spikes_ms.store(ms as u64, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "latency-tracking",
        read: |s| yes_no(s.config.tracks_latency.load(Relaxed)).to_string(),
        write: Some(|s, value, take| {
            let on = said_yes(value)?;
            if take {
                s.config.tracks_latency.store(on, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "latency-tracking-info-percentiles",
        read: |s| {
            let all = s.config.percentiles();
            let all: Vec<String> = all.iter().map(f64::to_string).collect();
            all.join(" ")
        },
        write: Some(|s, value, take| {
            /// This bound gives a line of INFO an end.
            const MOST: usize = 64;
            let one = |word: &str| word.parse().ok().filter(|p| (0.0..=100.0).contains(p));
            let all: Option<Vec<f64>> = value.split_ascii_whitespace().map(one).collect();
            let all = all.filter(|all| all.len() <= MOST);
            let all = all.ok_or("latency-tracking-info-percentiles should be between 0 and 100")?;
            if take {
                s.config.set_percentiles(all);
            }
            Ok(())
        }),
    },
    Live {
        name: "lfu-decay-time",
        read: |s| s.store.lfu_decay_min().to_string(),
        write: Some(|s, value, take| {
            let minutes = between(value, 0, i64::from(i32::MAX))?;
            if take {
                s.store.set_lfu_decay_min(minutes as u32);
            }
            Ok(())
        }),
    },
    Live {
        name: "lfu-log-factor",
        read: |s| s.store.lfu_log_factor().to_string(),
        write: Some(|s, value, take| {
            let factor = between(value, 0, i64::from(i32::MAX))?;
            if take {
                s.store.set_lfu_log_factor(factor as u32);
            }
            Ok(())
        }),
    },
    Live {
        name: "protected-mode",
        read: |s| yes_no(s.config.protected.load(Relaxed)).to_string(),
        write: Some(|s, value, take| {
            let on = said_yes(value)?;
            if take {
                s.config.protected.store(on, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "requirepass",
        read: |s| s.config.password().unwrap_or_default(),
        write: Some(|s, value, take| {
            if take {
                let password = (!value.is_empty()).then(|| value.to_string());
                s.set_password(password);
            }
            Ok(())
        }),
    },
    Live {
        name: "acl-pubsub-default",
        read: |s| {
            let all = s.acl.all_channels.load(Relaxed);
            if all { "allchannels" } else { "resetchannels" }.to_owned()
        },
        write: Some(|s, value, take| {
            let all = match value.to_ascii_lowercase().as_str() {
                "allchannels" => true,
                "resetchannels" => false,
                _ => {
                    let why =
                        "argument(s) must be one of the following: allchannels, resetchannels";
                    return Err(why.to_owned());
                }
            };
            if take {
                s.acl.all_channels.store(all, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "aclfile",
        read: |s| {
            let file = s.acl.file.get();
            file.map_or(String::new(), |file| file.display().to_string())
        },
        write: None,
    },
    Live {
        name: "acllog-max-len",
        read: |s| s.acl.log_max.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            // Each entry takes about 1 KiB.
            let most = between(value, 0, 100_000)?;
            if take {
                s.acl.log_max.store(most as usize, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "acl-users-memory-limit",
        read: |s| s.acl.bytes_max.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let bytes = memory(value).ok_or("argument must be a memory value")?;
            if take {
                s.acl.bytes_max.store(bytes as usize, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "busy-reply-threshold",
        read: |s| s.config.script_ms.load(Relaxed).to_string(),
        write: Some(write_script_ms),
    },
    Live {
        name: "lua-time-limit",
        read: |s| s.config.script_ms.load(Relaxed).to_string(),
        write: Some(write_script_ms),
    },
    Live {
        name: "script-memory-limit",
        read: |s| s.config.script_memory.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let bytes = memory(value).filter(|n| (1 << 20..=4 << 30).contains(n));
            let bytes = bytes.ok_or("argument must be between 1048576 and 4294967296 inclusive")?;
            if take {
                s.config.script_memory.store(bytes as usize, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "script-stuck-limit",
        read: |s| s.config.scripts_stuck.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let most = value.parse().ok().filter(|n| (1..=64).contains(n));
            let most = most.ok_or("argument must be between 1 and 64 inclusive")?;
            if take {
                s.config.scripts_stuck.store(most, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "pubsub-patterns-limit",
        read: |s| s.config.patterns.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let bytes = memory(value).ok_or("argument must be a memory value")?;
            if take {
                s.config.patterns.store(bytes as usize, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "tracking-table-max-keys",
        read: |s| s.store.tracking().keys_max().to_string(),
        write: Some(|s, value, take| {
            let most = between(value, 0, i64::MAX)?;
            if take {
                s.store.tracking().set_keys_max(most as usize);
            }
            Ok(())
        }),
    },
    Live {
        name: "timeout",
        read: |s| s.config.timeout_s.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let seconds = between(value, 0, i64::from(i32::MAX))?;
            if take {
                s.config.timeout_s.store(seconds as u64, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "slowlog-log-slower-than",
        read: |s| s.config.slow_us.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            let us = between(value, -1, i64::MAX)?;
            if take {
                s.config.slow_us.store(us, Relaxed);
            }
            Ok(())
        }),
    },
    Live {
        name: "slowlog-max-len",
        read: |s| s.config.slow_len.load(Relaxed).to_string(),
        write: Some(|s, value, take| {
            // Each entry may hold 5 KiB.
            let most = between(value, 0, 100_000)?;
            if take {
                s.config.slow_len.store(most as usize, Relaxed);
            }
            Ok(())
        }),
    },
];

fn said_yes(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_string()),
    }
}

/// The subcommands of CONFIG.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("get", -3),
    ("help", 2),
    ("resetstat", 2),
    ("rewrite", 2),
    ("set", -4),
];

/// Runs CONFIG.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    match (&sub[..], &call.args[2..]) {
        (b"get", patterns @ [_, ..]) => get(call, patterns),
        (b"set", pairs @ [_, _, ..]) => set(call, pairs),
        (b"resetstat", []) => {
            call.shared.stats.reset();
            call.shared.store.reset_stats();
            call.reply.ok();
        }
        (b"rewrite", []) => call
            .reply
            .error("ERR The server is running without a config file"),
        (b"help", []) => call.help(HELP),
        _ => call.subcommand_error("config"),
    }
    Flow::Done
}

fn get(call: &mut Call<'_, '_>, patterns: &[&[u8]]) {
    let patterns: Vec<Vec<u8>> = patterns.iter().map(|p| p.to_ascii_lowercase()).collect();
    let wanted = |name: &&str| patterns.iter().any(|p| glob::matches(p, name.as_bytes()));
    let fixed = FIXED.iter().map(|&(name, value)| (name, value.to_string()));
    let live = LIVE
        .iter()
        .map(|live| (live.name, (live.read)(&call.shared)));
    let kept = call.shared.config.tuning.all();
    let thresholds = thresholds::all(call.shared.store.limits());
    let all = fixed.chain(live).chain(kept).chain(thresholds);
    let mut found: Vec<_> = all.filter(|(name, _)| wanted(name)).collect();
    found.sort();
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
}

/// A change that was checked.
enum Change {
    Live(Write, String),
    Kept(&'static Tuning, String),
    Threshold(&'static Threshold, i64),
}

fn set(call: &mut Call<'_, '_>, pairs: &[&[u8]]) {
    let mut changes: Vec<(&str, Change)> = Vec::new();
    for pair in pairs.chunks(2) {
        // Names that are none are told as they were sent.
        let given = pair[0].to_ascii_lowercase();
        let given = std::str::from_utf8(&given).unwrap_or_default();
        let failed = |why: &str| {
            format!("ERR CONFIG SET failed (possibly related to argument '{given}') - {why}")
        };
        let live = LIVE.iter().find(|live| live.name == given);
        let kept = tuning::find(given);
        let is_fixed = FIXED.iter().any(|(name, _)| *name == given);
        let threshold = thresholds::find(given);
        let known = live.is_some() || kept.is_some() || threshold.is_some() || is_fixed;
        let (true, Some(value)) = (known, pair.get(1)) else {
            let what = "ERR Unknown option or number of arguments for CONFIG SET - '";
            return call.reply.error(Error::quoting(what, pair[0], "'").0);
        };
        let value = String::from_utf8_lossy(value).into_owned();
        let stays = |live: &&Live| live.write.is_none() && (live.read)(&call.shared) == value;
        if FIXED.contains(&(given, value.as_str())) || live.filter(stays).is_some() {
            continue;
        }
        let live = live.and_then(|live| Some((live.name, live.write?)));
        let checked = match (kept, threshold, live) {
            (Some(kept), ..) => kept
                .check(&value)
                .map(|value| (kept.name, Change::Kept(kept, value))),
            (None, Some(threshold), _) => threshold
                .check(&value)
                .map(|n| (threshold.name, Change::Threshold(threshold, n))),
            (None, None, Some((name, write))) => {
                write(&call.shared, &value, false).map(|()| (name, Change::Live(write, value)))
            }
            (None, None, None) => Err("can't set immutable config".to_string()),
        };
        match checked {
            Err(why) => return call.reply.error(failed(&why)),
            Ok((name, _)) if changes.iter().any(|(known, _)| *known == name) => {
                return call.reply.error(failed("duplicate parameter"));
            }
            Ok(change) => changes.push(change),
        }
    }
    for (_, change) in changes {
        match change {
            // Checked above.
            Change::Live(write, value) => drop(write(&call.shared, &value, true)),
            Change::Threshold(threshold, n) => threshold.set(call.shared.store.limits(), n),
            Change::Kept(tuning, value) => call.shared.config.tuning.set(tuning, value),
        }
    }
    call.reply.ok();
}

fn write_script_ms(shared: &Shared, value: &str, take: bool) -> Result<(), String> {
    let ms = between(value, 0, i64::MAX)?;
    if take {
        shared.config.script_ms.store(ms as u64, Relaxed);
    }
    Ok(())
}

fn yes_no(on: bool) -> &'static str {
    if on { "yes" } else { "no" }
}

/// The hard limits of normal clients and of subscribers are taken; there are no replicas, and no soft
/// limits: what a client leaves unread is bounded by time.
fn write_output_limit(shared: &Shared, value: &str, take: bool) -> Result<(), String> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_string());
    }
    for class in words.chunks(4) {
        let hard = memory(class[1])
            .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
        // 0 is no limit. A limit with which no client could hear an answer acts as the smallest.
        let hard = match usize::try_from(hard).unwrap_or(usize::MAX) {
            0 => usize::MAX,
            hard => hard.max(Settings::OUTPUT_MIN),
        };
        match class[0].to_ascii_lowercase().as_str() {
            "normal" if take => {
                // Connections were made with the limit of the start; it can only be lowered.
                let most = shared.config.client_output_max;
                shared.config.client_output.store(most.min(hard), Relaxed);
            }
            "normal" | "slave" | "replica" => {}
            "pubsub" if take => {
                shared.config.subscriber_output.store(hard, Relaxed);
            }
            "pubsub" => {}
            _ => {
                return Err(
                    "Invalid client class specified in buffer limit configuration.".to_string(),
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("1kb", 1024),
            ("2M", 2_000_000),
            ("3gb", 3 << 30),
        ] {
            assert_eq!(memory(text), Some(bytes), "{text}");
        }
        for bad in ["", "kb", "1x", "-1", "1 kb", "99999999999999999999"] {
            assert_eq!(memory(bad), None, "{bad}");
        }
    }
}
