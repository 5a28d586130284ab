//! ACL: users and their rights, as clients see and change them.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;

use super::category;
use super::leaves::leaves;
use super::rights::{Rights, name_of_call};
use super::selector::Selector;
use super::users::{Account, DEFAULT, Refused};
use super::{file, rules};
use crate::commands::Error;
use crate::commands::subcommands::Subcommands;
use crate::number::parse_integer;
use crate::reply::Reply;
use crate::service::call::{Call, Flow};
use crate::service::clients::NAME_MAX;
use crate::service::table::table;

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List the categories of commands, or the commands of one.",
    "DELUSER <username> [<username> ...]",
    "    Delete users, and end the connections that are theirs.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Tell whether a user may run a command, without running it.",
    "GENPASS [<bits>]",
    "    Make a password by chance, of 256 bits or as many as said.",
    "GETUSER <username>",
    "    Show a user.",
    "LIST",
    "    Show all users as lines of the ACL file.",
    "LOAD",
    "    Have the users of the ACL file and no others.",
    "LOG [<count>|RESET]",
    "    Show which client was refused which right, or forget it.",
    "SAVE",
    "    Write all users to the ACL file.",
    "SETUSER <username> <rule> [<rule> ...]",
    "    Make a user or change one.",
    "USERS",
    "    List the names of users.",
    "WHOAMI",
    "    Return the current connection's user name.",
];

/// The subcommands of ACL.
pub(in crate::service) const SUBCOMMANDS: Subcommands = &[
    ("cat", -2),
    ("deluser", -3),
    ("dryrun", -4),
    ("genpass", -2),
    ("getuser", 3),
    ("help", 2),
    ("list", 2),
    ("load", 2),
    ("log", -2),
    ("save", 2),
    ("setuser", -3),
    ("users", 2),
    ("whoami", 2),
];

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to \
specify users via the ACL SETUSER command, and start the server with an ACL file to keep them.";

/// Runs ACL.
pub(in crate::service) fn acl(call: &mut Call<'_, '_>) -> Flow {
    let sub = call.args[1].to_ascii_lowercase();
    match (&sub[..], &call.args[2..]) {
        (b"whoami", []) => {
            let name = call.session.account().name.clone();
            call.reply.bulk(&name);
        }
        (b"users", []) => {
            let all = call.shared.acl.all();
            call.reply.array(all.len());
            all.iter().for_each(|user| call.reply.bulk(&user.name));
        }
        (b"list", []) => {
            let all = call.shared.acl.all();
            call.reply.array(all.len());
            for user in all {
                call.reply.bulk(&user.rights().line(&user.name));
            }
        }
        (b"cat", []) => {
            call.reply.array(category::NAMES.len());
            let all = category::NAMES.iter();
            all.for_each(|name| call.reply.bulk(name.as_bytes()));
        }
        (b"cat", [category]) => cat(call, category),
        (b"setuser", [name, rules @ ..]) => set_user(call, name, rules),
        (b"getuser", [name]) => match call.shared.acl.find(name) {
            Some(user) => show(call.reply, &user.rights()),
            None => call.reply.null(),
        },
        (b"deluser", names) => delete_users(call, names),
        (b"dryrun", [name, args @ ..]) => dry_run(call, name, args),
        (b"genpass", bits @ ([] | [_])) => generate(call, bits.first().copied()),
        (b"log", how @ ([] | [_])) => log(call, how.first().copied()),
        (b"load", []) => load(call),
        (b"save", []) => save(call),
        (b"help", []) => call.help(HELP),
        _ => call.subcommand_error("acl"),
    }
    Flow::Done
}

fn cat(call: &mut Call<'_, '_>, name: &[u8]) {
    let Some(category) = category::named(name) else {
        let shown = &name[..name.len().min(128)];
        let error = Error::quoting("ERR Unknown category '", shown, "'");
        return call.reply.error(error.0);
    };
    let all = leaves().all().iter();
    let names: Vec<String> = all
        .filter(|leaf| leaf.categories & category != 0)
        .map(super::leaves::Leaf::name)
        .collect();
    call.reply.array(names.len());
    names
        .iter()
        .for_each(|name| call.reply.bulk(name.as_bytes()));
}

fn set_user(call: &mut Call<'_, '_>, name: &[u8], rules: &[&[u8]]) {
    if !rules::is_name(name) {
        return call
            .reply
            .error("ERR Usernames can't contain spaces or null characters");
    }
    if name.len() > NAME_MAX {
        return call
            .reply
            .error("ERR Usernames are at most 1024 bytes long");
    }
    let shared = call.shared.clone();
    let acl = &shared.acl;
    let changing = acl.begin_change();
    let all_channels = acl.all_channels.load(Relaxed);
    let known = acl.find(name);
    let before = known.as_ref().map_or_else(
        || Rights::none(all_channels),
        |user| Rights::clone(&user.rights()),
    );
    let rights = match rules::apply(before, rules, all_channels) {
        Ok(rights) => rights,
        Err(bad) => return call.reply.error([b"ERR ", &bad.to_client().0[..]].concat()),
    };
    match acl.put(name, rights, &shared.attention) {
        Ok(()) => {}
        Err(Refused::Users) => return call.reply.error("ERR there are 10000 users already"),
        Err(Refused::Memory) => return refuse_memory(call),
    }
    drop(changing);
    if let Some(user) = known {
        tell(call, |account| std::ptr::eq(account, &raw const *user));
    }
    call.reply.ok();
}

fn refuse_memory(call: &mut Call<'_, '_>) {
    let limit = call.shared.acl.bytes_max.load(Relaxed);
    call.reply.error(format!(
        "ERR the names and rules of all users take at most {limit} bytes of memory (acl-users-memory-limit)"
    ));
    call.local.stats.refused_holding.add(1);
    if call.local.may_warn(call.link.now()) {
        tracing::warn!(
            peer = %call.link.peer().client(), limit,
            "the users of the access control list would take more memory than they may: refusing ACL SETUSER",
        );
    }
}

/// Ends the connections of the changed users that are subscribed to channels which they may not
/// read any more.
fn tell(call: &mut Call<'_, '_>, concerns: impl Fn(&Account) -> bool) {
    for card in call.shared.clients.all() {
        if !card.is_subscriber() {
            continue;
        }
        let (user, listening) = {
            let names = card.names();
            (names.user.clone(), names.listening.upgrade())
        };
        let user = user.filter(|user| concerns(user));
        let (Some(user), Some(listening)) = (user, listening) else {
            continue;
        };
        if !user.rights().may_go_on(&listening) {
            crate::service::client::end(call, &card);
        }
    }
}

fn delete_users(call: &mut Call<'_, '_>, names: &[&[u8]]) {
    if names.contains(&DEFAULT) {
        return call.reply.error("ERR The 'default' user cannot be removed");
    }
    let shared = call.shared.clone();
    let changing = shared.acl.begin_change();
    let gone = names
        .iter()
        .filter_map(|name| shared.acl.remove(name, &shared.attention));
    let gone = gone.count();
    drop(changing);
    end_gone(call);
    call.reply.integer(gone as i64);
}

/// Ends the connections whose users are not there any more.
fn end_gone(call: &mut Call<'_, '_>) {
    for card in call.shared.clients.all() {
        let user = card.names().user.clone();
        if user.is_some_and(|user| user.is_gone()) {
            crate::service::client::end(call, &card);
        }
    }
}

fn show(reply: &mut Reply, rights: &Rights) {
    reply.map(6);
    reply.bulk(b"flags");
    let flags = rights.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(rights.passwords.len());
    for password in &rights.passwords {
        reply.bulk(password.to_hex().as_bytes());
    }
    show_selector(reply, &rights.root);
    reply.bulk(b"selectors");
    reply.array(rights.selectors.len());
    for selector in &rights.selectors {
        reply.map(3);
        show_selector(reply, selector);
    }
}

fn show_selector(reply: &mut Reply, selector: &Selector) {
    reply.bulk(b"commands");
    reply.bulk(selector.show_commands().as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&selector.show_keys());
    reply.bulk(b"channels");
    reply.bulk(&selector.show_channels());
}

fn dry_run(call: &mut Call<'_, '_>, name: &[u8], args: &[&[u8]]) {
    let shown = |name: &[u8]| name[..name.len().min(128)].to_vec();
    let Some(user) = call.shared.acl.find(name) else {
        let error = Error::quoting("ERR User '", &shown(name), "' not found");
        return call.reply.error(error.0);
    };
    let Some(entry) = table().find(args[0]) else {
        let error = Error::quoting("ERR Command '", &shown(args[0]), "' not found");
        return call.reply.error(error.0);
    };
    if !entry.takes(args.len()) {
        return call.reply.error(Error::arity(entry.name).0);
    }
    if let Err(error) = entry.check_subcommand(args) {
        return call.reply.error(error.0);
    }
    match user.rights().check(entry, args) {
        Ok(()) => call.reply.ok(),
        Err(denied) => {
            let why = denied.in_full(name, &name_of_call(entry, args));
            call.reply.bulk(&why);
        }
    }
}

fn generate(call: &mut Call<'_, '_>, bits: Option<&[u8]>) {
    let bits = match bits.map(parse_integer) {
        None => 256,
        Some(Some(bits @ 1..=4096)) => bits as usize,
        Some(Some(_)) => {
            return call.reply.error(
                "ERR ACL GENPASS argument must be the number of bits for the output password, a \
                 positive number up to 4096",
            );
        }
        Some(None) => {
            return call
                .reply
                .error("ERR value is not an integer or out of range");
        }
    };
    // A password is made of unpredictable bytes; the chance of loops need not be.
    let digits = bits.div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let read = File::open("/dev/urandom").and_then(|mut chance| chance.read_exact(&mut bytes));
    if let Err(why) = read {
        return call
            .reply
            .error(format!("ERR no randomness for a password: {why}"));
    }
    let mut password = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        use std::fmt::Write;
        let _ = write!(password, "{byte:02x}");
    }
    call.reply.bulk(&password.as_bytes()[..digits]);
}

fn log(call: &mut Call<'_, '_>, how: Option<&[u8]>) {
    let shared = call.shared.clone();
    let count = match how {
        None => 10,
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            shared.acl.log.kept().entries.clear();
            return call.reply.ok();
        }
        Some(count) => match parse_integer(count) {
            Some(count) => usize::try_from(count).unwrap_or(0),
            None => {
                return call
                    .reply
                    .error("ERR value is not an integer or out of range");
            }
        },
    };
    let now_ms = call.link.wall().as_millis() as u64;
    let kept = shared.acl.log.kept();
    let reply = &mut *call.reply;
    reply.array(kept.entries.len().min(count));
    for entry in kept.entries.iter().take(count) {
        reply.map(10);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        reply.bulk(b"reason");
        reply.bulk(entry.reason.name().as_bytes());
        reply.bulk(b"context");
        reply.bulk(entry.place.name().as_bytes());
        reply.bulk(b"object");
        reply.bulk(&entry.object);
        reply.bulk(b"username");
        reply.bulk(&entry.user);
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(entry.created_ms) as f64 / 1e3);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
        reply.bulk(b"entry-id");
        reply.integer(entry.id as i64);
        reply.bulk(b"timestamp-created");
        reply.integer(entry.created_ms as i64);
        reply.bulk(b"timestamp-last-updated");
        reply.integer(entry.updated_ms as i64);
    }
}

fn load(call: &mut Call<'_, '_>) {
    let shared = call.shared.clone();
    if shared.acl.file.get().is_none() {
        return call.reply.error(NO_FILE);
    }
    let password = shared.config.password();
    match shared.acl.load(password.as_deref(), &shared.attention) {
        Ok(()) => {
            end_gone(call);
            tell(call, |_| true);
            call.reply.ok();
        }
        Err(error) => {
            tracing::warn!(%error, "ACL LOAD: no user was changed");
            call.reply.error(format!(
                "ERR {error} WARNING: ACL errors detected, no change to the previously active ACL \
                 rules was performed"
            ));
        }
    }
}

fn save(call: &mut Call<'_, '_>) {
    let shared = call.shared.clone();
    let Some(path) = shared.acl.file.get() else {
        return call.reply.error(NO_FILE);
    };
    let _alone = shared.acl.begin_change();
    match file::write(path, &shared.acl) {
        Ok(()) => call.reply.ok(),
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "ACL SAVE: the users were not written");
            call.reply
                .error("ERR There was an error trying to save the ACLs. Please check the server logs for more information");
        }
    }
}
