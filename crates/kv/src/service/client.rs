//! CLIENT: which clients are connected, and what to do about them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::call::{Call, Flow};
use super::clients::{Card, NAME_MAX};
use super::message::Message;
use super::session::Replies;
use super::{table, tracking};
use crate::commands::Error;
use crate::commands::subcommands::Subcommands;
use crate::number::parse_integer;
use crate::reply::Proto;

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CACHING (YES|NO)",
    "    Say whether the next command's keys are tracked, in OPTIN and OPTOUT mode.",
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return the client ID that tracking notifications are redirected to.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill the connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections by ID, TYPE, USER, ADDR, LADDR, MAXAGE or SKIPME.",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <id> [<id> ...]]",
    "    Return information about client connections.",
    "NO-EVICT (ON|OFF)",
    "    Protect the current connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Leave access times alone.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set the name or version of the client's library.",
    "SETNAME <name>",
    "    Name the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "    Be told of changes of keys that were read, or that begin so.",
    "TRACKINGINFO",
    "    Report the tracking status of the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock a client that waits in a blocking command.",
    "UNPAUSE",
    "    End a pause.",
];

/// The subcommands of CLIENT.
pub(super) const SUBCOMMANDS: Subcommands = &[
    ("caching", 3),
    ("getname", 2),
    ("getredir", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("no-evict", 3),
    ("no-touch", 3),
    ("pause", -3),
    ("reply", 3),
    ("setinfo", 4),
    ("setname", 3),
    ("tracking", -3),
    ("trackinginfo", 2),
    ("unblock", -3),
    ("unpause", 2),
];

/// Runs CLIENT.
pub(super) fn run(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    let n = call.args.len();
    match (&sub[..], n) {
        (b"id", 2) => call.reply.integer(call.card.id as i64),
        (b"getname", 2) => {
            let name = call.card.names().name.clone();
            if name.is_empty() {
                call.reply.null();
            } else {
                call.reply.bulk(&name);
            }
        }
        (b"setname", 3) => set_name(call),
        (b"setinfo", 4) => set_info(call),
        (b"info", 2) => {
            let line = line(call, &call.card.clone());
            call.reply.verbatim(&format!("{line}\n"));
        }
        (b"list", _) => list(call),
        (b"kill", 3) => kill_addr(call),
        (b"kill", n) if n >= 4 => kill(call),
        (b"no-evict", 3) => {
            if let Some(on) = on_off(call) {
                call.card.no_evict.store(on, Relaxed);
                call.reply.ok();
            }
        }
        (b"no-touch", 3) => {
            if let Some(on) = on_off(call) {
                call.card.no_touch.store(on, Relaxed);
                call.session.no_touch = on;
                call.reply.ok();
            }
        }
        (b"reply", 3) => reply(call),
        (b"pause", 3 | 4) => pause(call),
        (b"unpause", 2) => {
            call.shared.unpause();
            call.reply.ok();
        }
        (b"unblock", 3 | 4) => unblock(call),
        (b"getredir", 2) => tracking::redirect(call),
        (b"trackinginfo", 2) => tracking::info(call),
        (b"tracking", n) if n >= 3 => tracking::tracking(call),
        (b"caching", 3) => tracking::caching(call),
        (b"help", 2) => call.help(HELP),
        _ => call.subcommand_error("client"),
    }
    Flow::Done
}

/// Whether a text may stand in a line of CLIENT LIST.
fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|b| (b'!'..=b'~').contains(b))
}

/// Sets a new name; the error says what is wrong with the name.
pub(super) fn rename(card: &Card, name: &[u8]) -> Result<(), &'static str> {
    if !is_printable(name) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.");
    }
    if name.len() > NAME_MAX {
        return Err("ERR Client names are at most 1024 bytes long");
    }
    card.rename(|names| names.name = name.into());
    Ok(())
}

fn set_name(call: &mut Call<'_, '_>) {
    match rename(call.card, call.args[2]) {
        Ok(()) => call.reply.ok(),
        Err(e) => call.reply.error(e),
    }
}

fn set_info(call: &mut Call<'_, '_>) {
    let (option, value) = (call.args[2], call.args[3]);
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        let error = Error::quoting("ERR Unrecognized option '", option, "'");
        return call.reply.error(error.0);
    }
    if !is_printable(value) {
        let why = " cannot contain spaces, newlines or special characters.";
        return call.reply.error(Error::quoting("ERR ", option, why).0);
    }
    if value.len() > NAME_MAX {
        let why = " is at most 1024 bytes long";
        return call.reply.error(Error::quoting("ERR ", option, why).0);
    }
    call.card.rename(|names| match is_name {
        true => names.lib_name = value.into(),
        false => names.lib_ver = value.into(),
    });
    call.reply.ok();
}

fn line(call: &Call<'_, '_>, card: &Card) -> String {
    let command = match card.command.load(Relaxed) {
        u32::MAX => "NULL".to_string(),
        id if std::ptr::eq(card, &raw const **call.card) => call.full_name(id),
        id => table::table().name(id as u16).to_string(),
    };
    card.line(&call.shared.local_addr(), call.now_ms(), &command)
}

fn list(call: &mut Call<'_, '_>) {
    let mut shown = call.shared.clients.all();
    let options = &call.args[2..];
    match options {
        [] => {}
        [option, kind] if option.eq_ignore_ascii_case(b"type") => {
            let Some(of) = kind_filter(call, kind) else {
                return;
            };
            shown.retain(|card| of(card));
        }
        [option, ids @ ..] if option.eq_ignore_ascii_case(b"id") && !ids.is_empty() => {
            let mut wanted = Vec::new();
            for id in ids {
                match parse_integer(id).and_then(|id| u64::try_from(id).ok()) {
                    Some(id) if id > 0 => wanted.push(id),
                    _ => return call.reply.error("ERR Invalid client ID"),
                }
            }
            shown.retain(|card| wanted.contains(&card.id));
        }
        _ => return call.reply.error("ERR syntax error"),
    }
    let mut text = String::new();
    for card in shown {
        text.push_str(&line(call, &card));
        text.push('\n');
    }
    call.reply.verbatim(&text);
}

type Filter = Box<dyn Fn(&Card) -> bool>;

fn kind_filter(call: &mut Call<'_, '_>, kind: &[u8]) -> Option<Filter> {
    Some(match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Box::new(|card| !card.is_subscriber()),
        b"pubsub" => Box::new(|card| card.is_subscriber()),
        b"master" | b"replica" | b"slave" => Box::new(|_| false),
        _ => {
            let error = Error::quoting("ERR Unknown client type '", kind, "'");
            call.reply.error(error.0);
            return None;
        }
    })
}

fn kill_addr(call: &mut Call<'_, '_>) {
    let addr = String::from_utf8_lossy(call.args[2]).into_owned();
    let all = call.shared.clients.all();
    match all.iter().find(|card| card.addr.to_string() == addr) {
        Some(card) => {
            end(call, card);
            call.reply.ok();
        }
        None => call.reply.error("ERR No such client"),
    }
}

fn kill(call: &mut Call<'_, '_>) {
    let mut filters: Vec<Filter> = Vec::new();
    let mut skip_me = true;
    let options = &call.args[2..];
    if !options.len().is_multiple_of(2) {
        return call.reply.error("ERR syntax error");
    }
    for pair in options.chunks_exact(2) {
        let (option, value) = (pair[0].to_ascii_lowercase(), pair[1]);
        let text = String::from_utf8_lossy(value).into_owned();
        match &option[..] {
            b"id" => match parse_integer(value) {
                Some(id) if id > 0 => filters.push(Box::new(move |card| card.id == id as u64)),
                _ => return call.reply.error("ERR client-id should be greater than 0"),
            },
            b"type" => match kind_filter(call, value) {
                Some(filter) => filters.push(filter),
                None => return,
            },
            b"addr" => filters.push(Box::new(move |card| card.addr.to_string() == text)),
            b"laddr" => {
                let ours = call.shared.local_addr() == text;
                filters.push(Box::new(move |_| ours));
            }
            b"user" => match call.shared.acl.find(value) {
                Some(user) => filters.push(Box::new(move |card| {
                    card.names()
                        .user
                        .as_ref()
                        .is_some_and(|of| Arc::ptr_eq(of, &user))
                })),
                None => {
                    let error = Error::quoting("ERR No such user '", value, "'");
                    return call.reply.error(error.0);
                }
            },
            b"maxage" => match parse_integer(value) {
                Some(age) if age > 0 => {
                    let now = call.now_ms();
                    filters.push(Box::new(move |card| {
                        now.saturating_sub(card.opened_ms) / 1000 >= age as u64
                    }));
                }
                _ => {
                    return call
                        .reply
                        .error("ERR maxage is not an integer or out of range");
                }
            },
            b"skipme" => match text.to_ascii_lowercase().as_str() {
                "yes" => skip_me = true,
                "no" => skip_me = false,
                _ => return call.reply.error("ERR syntax error"),
            },
            _ => return call.reply.error("ERR syntax error"),
        }
    }
    let mut killed = 0;
    for card in call.shared.clients.all() {
        let spared = skip_me && card.id == call.card.id;
        if !spared && filters.iter().all(|filter| filter(&card)) {
            end(call, &card);
            killed += 1;
        }
    }
    call.reply.integer(killed);
}

/// Ends a connection; the client's own connection ends after the reply.
pub(super) fn end(call: &mut Call<'_, '_>, card: &Arc<Card>) {
    if card.id == call.card.id {
        call.session.closing = true;
    } else {
        call.shared.let_go(card);
        // Better than `finish`, which would leave it waiting for a key until it is closed.
        if card.handle.try_post(Message::Kill).is_err() {
            card.handle.finish();
        }
    }
}

fn on_off(call: &mut Call<'_, '_>) -> Option<bool> {
    match call.args[2].to_ascii_lowercase().as_slice() {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => {
            call.reply.error("ERR syntax error");
            None
        }
    }
}

fn reply(call: &mut Call<'_, '_>) {
    match call.args[2].to_ascii_lowercase().as_slice() {
        b"on" => {
            call.session.replies = Replies::On;
            call.reply.ok();
        }
        b"off" => call.session.replies = Replies::Off,
        b"skip" if call.session.replies != Replies::Off => {
            call.session.replies = Replies::SkipNext;
        }
        b"skip" => {}
        _ => call.reply.error("ERR syntax error"),
    }
}

fn pause(call: &mut Call<'_, '_>) {
    let writes_only = match call.args.get(3).map(|how| how.to_ascii_lowercase()) {
        None => false,
        Some(how) if how == b"all" => false,
        Some(how) if how == b"write" => true,
        Some(_) => {
            return call
                .reply
                .error("ERR CLIENT PAUSE mode must be WRITE or ALL");
        }
    };
    match parse_integer(call.args[2]) {
        Some(ms) if ms >= 0 => {
            call.shared.pause(call.now_ms(), ms as u64, writes_only);
            call.reply.ok();
        }
        Some(_) => call.reply.error("ERR timeout is negative"),
        None => call
            .reply
            .error("ERR timeout is not an integer or out of range"),
    }
}

fn unblock(call: &mut Call<'_, '_>) {
    let error = match call.args.get(3).map(|how| how.to_ascii_lowercase()) {
        None => false,
        Some(how) if how == b"timeout" => false,
        Some(how) if how == b"error" => true,
        Some(_) => {
            return call
                .reply
                .error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        }
    };
    let Some(id) = parse_integer(call.args[2]) else {
        return call
            .reply
            .error("ERR value is not an integer or out of range");
    };
    let card = u64::try_from(id)
        .ok()
        .and_then(|id| call.shared.clients.find(id));
    let done = card.is_some_and(|card| {
        let wait = card.wait.load(Relaxed);
        let unblock = Message::Unblock { wait, error };
        wait > 0 && card.handle.try_post(unblock).is_ok()
    });
    call.reply.integer(done.into());
}

/// The protocol version as a number, for replies to HELLO and INFO.
pub(super) fn proto_number(proto: Proto) -> i64 {
    match proto {
        Proto::Resp2 => 2,
        Proto::Resp3 => 3,
    }
}
