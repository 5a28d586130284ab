//! SUBSCRIBE and its kin, PUBLISH, PUBSUB.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::call::{Asked, Call, Flow};
use super::holdings::Holding;
use super::local::Unpublished;
use super::pubsub::{
    Audience, InboxFull, Kind, Listening, notice, pattern_cost, subscription_memory,
};
use crate::commands::subcommands::Subcommands;
use crate::store::Effects;
use crate::types::glob::{self, Glob};

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the channels that have subscribers and match a pattern.",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers of channels.",
    "SHARDCHANNELS [<pattern>]",
    "    Return the shard channels that have subscribers and match a pattern.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers of shard channels.",
];

const TOO_LONG: &str = "ERR pattern is longer than 65536 bytes";

pub(super) fn subscribe(call: &mut Call<'_, '_>) -> Flow {
    join(call, Kind::Channel, "subscribe")
}

pub(super) fn psubscribe(call: &mut Call<'_, '_>) -> Flow {
    let mut names = call.args[1..].iter();
    if names.any(|name| name.len() > glob::LONGEST) {
        call.reply.error(TOO_LONG);
        return Flow::Done;
    }
    if !may_keep_patterns(call) {
        return Flow::Done;
    }
    join(call, Kind::Pattern, "psubscribe")
}

/// Bytes of memory that a call would add to what its client is subscribed to.
fn more_memory(call: &Call<'_, '_>, kind: Kind, each: impl Fn(&[u8]) -> usize) -> usize {
    let known = call.session.listening.as_deref();
    let new = call.args[1..].iter();
    let new = new.filter(|name| known.is_none_or(|known| !known.has(kind, name)));
    new.map(|name| each(name)).sum()
}

/// Whether the patterns of a call fit into the limit of a client's patterns; else the client is
/// told.
fn may_keep_patterns(call: &mut Call<'_, '_>) -> bool {
    let known = call.session.listening.as_deref();
    let taken = known.map_or(0, Listening::pattern_cost);
    let limit = call.shared.config.patterns.load(Relaxed);
    if taken.saturating_add(more_memory(call, Kind::Pattern, pattern_cost)) <= limit {
        return true;
    }
    call.reply.error(format!(
        "ERR the patterns of a client take at most {limit} bytes of memory (pubsub-patterns-limit)"
    ));
    call.local.stats.refused_patterns.add(1);
    if call.local.may_warn(call.link.now()) {
        tracing::warn!(
            peer = %call.link.peer().client(), limit,
            "a client asks for more patterns than it may: refusing them",
        );
    }
    false
}

pub(super) fn ssubscribe(call: &mut Call<'_, '_>) -> Flow {
    join(call, Kind::Shard, "ssubscribe")
}

pub(super) fn unsubscribe(call: &mut Call<'_, '_>) -> Flow {
    leave(call, Kind::Channel, "unsubscribe")
}

pub(super) fn punsubscribe(call: &mut Call<'_, '_>) -> Flow {
    leave(call, Kind::Pattern, "punsubscribe")
}

pub(super) fn sunsubscribe(call: &mut Call<'_, '_>) -> Flow {
    leave(call, Kind::Shard, "sunsubscribe")
}

fn join(call: &mut Call<'_, '_>, kind: Kind, what: &str) -> Flow {
    let conn = call.link.id();
    if !call.may_hold(more_memory(call, kind, |name| {
        subscription_memory(kind, name)
    })) {
        return Flow::Done;
    }
    let (local, card) = (&mut *call.local, call.card);
    let listening = call.session.listening.get_or_insert_with(|| {
        let listening = local.subscribers.listening(&call.shared.hub, &local.at);
        card.names().listening = Arc::downgrade(&listening);
        if card.gone.load(Relaxed) {
            // Another client ended this one before its subscriptions were registered.
            call.shared.hub.depart(&listening);
        }
        listening
    });
    let listening = listening.clone();
    for &name in &call.args[1..] {
        if !listening.has(kind, name) {
            let subscribers = &mut call.local.subscribers;
            subscribers.add(&call.shared.hub, &listening, kind, &name.into(), conn);
        }
        let count = show(call, kind);
        notice(call.reply, what, Some(name), count);
    }
    Flow::Done
}

fn leave(call: &mut Call<'_, '_>, kind: Kind, what: &str) -> Flow {
    let mut names: Vec<Arc<[u8]>> = call.args[1..].iter().map(|&name| name.into()).collect();
    if names.is_empty()
        && let Some(listening) = &call.session.listening
    {
        names = listening.names(kind);
    }
    if names.is_empty() {
        let count = show(call, kind);
        notice(call.reply, what, None, count);
    }
    for name in names {
        remove(call, kind, &name);
        let count = show(call, kind);
        notice(call.reply, what, Some(&name), count);
    }
    Flow::Done
}

fn remove(call: &mut Call<'_, '_>, kind: Kind, name: &[u8]) {
    let Some(listening) = &call.session.listening else {
        return;
    };
    let conn = call.link.id();
    let subscribers = &mut call.local.subscribers;
    subscribers.remove(&call.shared.hub, listening, kind, name, conn);
    if listening.is_empty() {
        call.session.listening = None;
    }
}

/// Ends all subscriptions without a word.
pub(super) fn leave_all(call: &mut Call<'_, '_>) {
    if let Some(listening) = call.session.listening.take() {
        let (conn, subscribers) = (call.link.id(), &mut call.local.subscribers);
        subscribers.remove_some(&call.shared.hub, &listening, conn, usize::MAX);
    }
    show(call, Kind::Channel);
}

/// Brings the card up to date; the count that confirmations of this kind show.
fn show(call: &mut Call<'_, '_>, kind: Kind) -> usize {
    let listening = call.session.listening.as_deref();
    let count = |kind| listening.map_or(0, |listening| listening.count(kind));
    let [channels, patterns, shards] = [Kind::Channel, Kind::Pattern, Kind::Shard].map(count);
    call.card.channels.store(channels as u32, Relaxed);
    call.card.patterns.store(patterns as u32, Relaxed);
    call.card.shard_channels.store(shards as u32, Relaxed);
    let memory = listening.map_or(0, Listening::memory);
    call.card.holdings.set(Holding::Subscriptions, memory);
    match kind {
        Kind::Shard => shards,
        Kind::Channel | Kind::Pattern => channels + patterns,
    }
}

pub(super) fn publish(call: &mut Call<'_, '_>) -> Flow {
    send(call, false)
}

pub(super) fn spublish(call: &mut Call<'_, '_>) -> Flow {
    send(call, true)
}

fn send(call: &mut Call<'_, '_>, sharded: bool) -> Flow {
    let (channel, payload) = (call.args[1], call.args[2]);
    let hub = &call.shared.hub;
    if call.in_transaction && call.shared.durable.get().is_some() {
        // The published event has no ticket yet.
        call.reply.integer(hub.receivers(sharded, channel) as i64);
        call.local.published.push(Unpublished {
            sharded,
            channel: channel.to_vec(),
            payload: payload.to_vec(),
        });
        return Flow::Done;
    }
    let mut ticket = call.session.barrier;
    if let Some(durable) = call.shared.durable.get()
        && durable
            .log
            .mistakes()
            .makes(|mistakes| mistakes.publish_early)
    {
        ticket = 0;
    }
    let sent = if !sharded && !call.in_transaction && hub.is_costly(channel) {
        let begun = call.session.audience.take();
        let mut audience = begun
            .filter(|audience| audience.is_of(channel))
            .unwrap_or_else(|| Box::new(Audience::of(channel)));
        if !hub.look_on(&mut audience) {
            // Other connections have their turn before this one goes on.
            call.session.audience = Some(audience);
            return Flow::Later;
        }
        let sent = hub.publish_to(&audience, payload, false, ticket);
        if sent.is_err() {
            call.session.audience = Some(audience);
        }
        sent
    } else {
        hub.publish(sharded, channel, payload, call.in_transaction, ticket)
    };
    match sent {
        Ok(receivers) => {
            call.reply.integer(receivers as i64);
            Flow::Done
        }
        Err(InboxFull) => Flow::Later,
    }
}

/// The subcommands of PUBSUB.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("channels", -2),
    ("help", 2),
    ("numpat", 2),
    ("numsub", -2),
    ("shardchannels", -2),
    ("shardnumsub", -2),
];

pub(super) fn pubsub(call: &mut Call<'_, '_>) -> Flow {
    answer(&mut call.asked());
    Flow::Done
}

/// Answers PUBSUB.
pub(super) fn answer(call: &mut Asked<'_>) {
    let sub = call.args[1].to_ascii_lowercase();
    let shared = call.shared.clone();
    match (&sub[..], &call.args[2..]) {
        (b"channels", pattern @ ([] | [_])) => {
            names(call, false, pattern.first().copied());
        }
        (b"shardchannels", pattern @ ([] | [_])) => {
            names(call, true, pattern.first().copied());
        }
        (b"numsub", names) => counts(call, Kind::Channel, names),
        (b"shardnumsub", names) => counts(call, Kind::Shard, names),
        (b"numpat", []) => call.reply.integer(shared.hub.count(Kind::Pattern) as i64),
        (b"help", []) => call.help(HELP),
        _ => call.subcommand_error("pubsub"),
    }
}

fn names(call: &mut Asked<'_>, sharded: bool, pattern: Option<&[u8]>) {
    let glob = match pattern.map(Glob::new) {
        None => None,
        Some(Some(glob)) => Some(glob),
        Some(None) => return call.reply.error(TOO_LONG),
    };
    let names = call.shared.hub.channels(sharded, glob.as_ref());
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(&name);
    }
}

fn counts(call: &mut Asked<'_>, kind: Kind, names: &[&[u8]]) {
    // Flat in RESP3 too: clients read pairs off an array.
    call.reply.array(2 * names.len());
    for name in names {
        call.reply.bulk(name);
        let subscribers = call.shared.hub.subscribers(kind, name);
        call.reply.integer(subscribers as i64);
    }
}
