//! The commands that a client sends first: HELLO, AUTH, SELECT, RESET, QUIT, PING, ECHO.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::acl::{Account, Reason, Where};
use super::call::{Asked, Call, Flow};
use super::client::{proto_number, rename};
use super::ownership;
use super::session::{Replies, Session};
use super::shared::Shared;
use crate::commands::Error;
use crate::number::parse_integer;
use crate::reply::Proto;

/// The version of Redis whose behaviour clients may expect.
pub(crate) const REDIS_VERSION: &str = "7.2.4";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(super) fn hello(call: &mut Call<'_, '_>) -> Flow {
    let mut proto = call.session.proto;
    let mut rest = &call.args[1..];
    if let [version, more @ ..] = rest {
        proto = match parse_integer(version) {
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => {
                call.reply.error("NOPROTO unsupported protocol version");
                return Flow::Done;
            }
            None => {
                call.reply
                    .error("ERR Protocol version is not an integer or out of range");
                return Flow::Done;
            }
        };
        rest = more;
    }
    let mut name = None;
    let mut login = None;
    while let [option, more @ ..] = rest {
        match (option.to_ascii_lowercase().as_slice(), more) {
            (b"auth", [user, password, more @ ..]) => {
                // As in Redis, the last AUTH counts.
                login = Some((*user, *password));
                rest = more;
            }
            (b"setname", [given, more @ ..]) => {
                name = Some(*given);
                rest = more;
            }
            _ => {
                let error = Error::quoting("ERR Syntax error in HELLO option '", option, "'");
                call.reply.error(error.0);
                return Flow::Done;
            }
        }
    }
    let mut account = None;
    if let Some((user, password)) = login {
        account = call.shared.acl.authenticate(user, password);
        if account.is_none() {
            wrong_password(call, user, b"HELLO");
            return Flow::Done;
        }
    }
    if account.is_none() && !call.session.is_authenticated() {
        call.reply.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
        return Flow::Done;
    }
    if let Some(name) = name
        && let Err(e) = rename(call.card, name)
    {
        call.reply.error(e);
        return Flow::Done;
    }
    if let Some(account) = account {
        become_user(call, account);
    }
    set_proto(call, proto);
    call.reply.map(7);
    call.reply.bulk(b"server");
    call.reply.bulk(b"redis");
    call.reply.bulk(b"version");
    call.reply.bulk(REDIS_VERSION.as_bytes());
    call.reply.bulk(b"proto");
    call.reply.integer(proto_number(proto));
    call.reply.bulk(b"id");
    call.reply.integer(call.card.id as i64);
    call.reply.bulk(b"mode");
    call.reply.bulk(b"standalone");
    call.reply.bulk(b"role");
    let is_slave = ownership::is_slave(&call.shared);
    call.reply
        .bulk(if is_slave { b"replica" } else { b"master" });
    call.reply.bulk(b"modules");
    call.reply.array(0);
    Flow::Done
}

fn become_user(call: &mut Call<'_, '_>, account: Arc<Account>) {
    call.card.names().user = Some(account.clone());
    call.session.become_user(account, &call.shared);
}

/// Answers a client that has shown no password of this user, which ACL LOG tells of.
fn wrong_password(call: &mut Call<'_, '_>, user: &[u8], what: &[u8]) {
    let acl = &call.shared.acl;
    let local = call.shared.local_addr();
    let command = String::from_utf8_lossy(what).to_ascii_lowercase();
    let client = call.card.logged_line(&local, call.now_ms(), &command);
    let now_ms = call.link.wall().as_millis() as u64;
    let what_for = (Reason::Auth, Where::TopLevel);
    let most = acl.log_max.load(Relaxed);
    acl.log.add(what_for, what, user, client, now_ms, most);
    call.reply.error(WRONG_PASSWORD);
}

fn set_proto(call: &mut Call<'_, '_>, proto: Proto) {
    call.session.proto = proto;
    call.reply.proto = proto;
    call.card.resp3.store(proto == Proto::Resp3, Relaxed);
}

pub(super) fn auth(call: &mut Call<'_, '_>) -> Flow {
    let (user, password) = match call.args {
        [_, password] => {
            if call.shared.acl.has_no_password() {
                call.reply.error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                );
                return Flow::Done;
            }
            (&b"default"[..], *password)
        }
        [_, user, password] => (*user, *password),
        _ => {
            call.reply.error("ERR syntax error");
            return Flow::Done;
        }
    };
    match call.shared.acl.authenticate(user, password) {
        Some(account) => {
            become_user(call, account);
            call.reply.ok();
        }
        None => wrong_password(call, user, b"AUTH"),
    }
    Flow::Done
}

pub(super) fn select(call: &mut Call<'_, '_>) -> Flow {
    match database(call.args[1], &call.shared) {
        Ok(db) => {
            call.session.db = db;
            call.card.db.store(db.into(), Relaxed);
            call.reply.ok();
        }
        Err(why) => call.reply.error(why),
    }
    Flow::Done
}

/// The database of this number.
pub(super) fn database(number: &[u8], shared: &Shared) -> Result<u16, &'static str> {
    match parse_integer(number) {
        None => Err("ERR value is not an integer or out of range"),
        Some(db) if (0..i64::from(shared.databases())).contains(&db) => Ok(db as u16),
        Some(_) => Err("ERR DB index is out of range"),
    }
}

pub(super) fn reset(call: &mut Call<'_, '_>) -> Flow {
    super::pubsub_commands::leave_all(call);
    super::transaction_commands::forget(call);
    super::tracking::end(call);
    super::monitor::end(call);
    let trusted = call.shared.trusts(call.link.peer());
    // Replies that were not sent yet keep waiting.
    let mut session = Session::new(&call.shared, trusted);
    (session.barrier, session.written) = (call.session.barrier, call.session.written);
    *call.session = session;
    set_proto(call, Proto::Resp2);
    call.card.db.store(0, Relaxed);
    call.card.no_evict.store(false, Relaxed);
    call.card.no_touch.store(false, Relaxed);
    let user = call.session.account().clone();
    call.card.rename(|names| {
        names.name = Box::default();
        names.user = Some(user);
    });
    call.reply.simple("RESET");
    Flow::Done
}

pub(super) fn quit(call: &mut Call<'_, '_>) -> Flow {
    call.session.closing = true;
    call.session.replies = Replies::On;
    call.reply.ok();
    Flow::Done
}

pub(super) fn ping(call: &mut Call<'_, '_>) -> Flow {
    match call.args {
        // Among messages a client that speaks RESP2 can tell the answer apart only by its form.
        [_] | [_, _] if call.session.is_subscribed() && call.session.proto == Proto::Resp2 => {
            call.reply.array(2);
            call.reply.bulk(b"pong");
            call.reply
                .bulk(call.args.get(1).copied().unwrap_or_default());
        }
        _ => pong(&mut call.asked()),
    }
    Flow::Done
}

/// Answers PING.
pub(super) fn pong(call: &mut Asked<'_>) {
    match call.args {
        [_] => call.reply.simple("PONG"),
        [_, text] => call.reply.bulk(text),
        _ => call.arity_error(),
    }
}

pub(super) fn echo(call: &mut Call<'_, '_>) -> Flow {
    call.reply.bulk(call.args[1]);
    Flow::Done
}
