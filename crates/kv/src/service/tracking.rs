//! CLIENT TRACKING: a client that caches what it has read is notified when that changes.
//!
//! The store decides which client is notified of which change ([`Tracker`]). The functions here
//! take a client's wishes, and write the changed keys to the client, or to the connection that it
//! names instead.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tidewire::{Cx, Handle};

use super::batch::Batch;
use super::call::{Call, TOO_MUCH_HELD};
use super::clients::Card;
use super::conn::RespConn;
use super::following::{Following, Mode};
use super::holdings::{Holding, PREFIX};
use super::message::Message;
use super::outcome::Outcome;
use super::session::Session;
use super::table::{Entry, What};
use crate::commands::{Error, Spec};
use crate::number::parse_integer;
use crate::reply::{Proto, Reply};
use crate::store::{Changed, Notify, Tracker};

/// Beginnings of keys that one client may name.
const PREFIXES_MAX: usize = 1024;

/// The route on which a client is reached.
struct Route {
    own: Handle<Message>,
    instead: Option<Arc<Card>>,
}

impl Notify for Route {
    fn notify(&self, tracker: &Arc<Tracker>) {
        let told = match &self.instead {
            None => self.own.try_post(Message::Changed(tracker.clone())),
            Some(card) if card.gone.load(Relaxed) => self.own.try_post(Message::RedirectGone),
            Some(card) => card.handle.try_post(Message::Changed(tracker.clone())),
        };
        if told.is_err() {
            // No connection is better than one with a stale cache.
            self.own.abort();
        }
    }
}

impl Session {
    /// The tracker that is to be told of what the next command reads.
    pub(crate) fn tracker(&self) -> Option<Arc<Tracker>> {
        if let Some(tracker) = &self.reads_for {
            return Some(tracker.clone());
        }
        let following = self.tracking()?;
        let wants = match following.mode {
            Mode::Reads => true,
            Mode::OptIn => following.caching,
            Mode::OptOut => !following.caching,
            Mode::Broadcast => false,
        };
        wants.then(|| following.tracker.clone())
    }
}

impl Batch<'_> {
    /// Notes what a command has read, which has just been run for this client.
    fn note(&mut self, session: &Session, spec: &Spec, args: &[&[u8]]) {
        if let Some(tracker) = session.tracker() {
            self.track(spec, args, &tracker);
        }
    }
}

impl RespConn {
    /// Runs a command of a client that wants to be told of changes.
    #[cold]
    pub(super) fn run_tracked(
        &mut self,
        entry: &'static Entry,
        batch: &mut Batch<'_>,
        args: &[&[u8]],
        reply: &mut Reply,
        cx: &mut Cx<'_, RespConn>,
    ) -> Outcome {
        batch.set_client(self.not_told());
        if let What::Data(spec) = entry.what
            && self.session.tracker().is_some()
        {
            batch.hold_for(spec, args);
        }
        let outcome = self.run_now(entry, batch, args, reply, cx);
        if let (What::Data(spec), Outcome::Done) = (entry.what, outcome) {
            batch.note(&self.session, spec, args);
            self.bound_notes(cx);
        }
        let is_queuing = self.session.is_queuing();
        if let Some(following) = self.session.tracking_mut()
            && entry.name != "client"
            && !is_queuing
            && outcome != Outcome::Later
        {
            following.caching = false;
        }
        outcome
    }

    /// Ends the connection if more notes were taken for it than the limit allows: a client cannot keep a key of whose
    /// changes it would not be notified.
    fn bound_notes(&self, cx: &mut Cx<'_, RespConn>) {
        let Some(following) = self.session.tracking() else {
            return;
        };
        let limit = cx.local.shared.config.query_buffer.load(Relaxed);
        let held = self.card().holdings.sum() + following.tracker.bytes() as u64;
        if held > limit as u64 {
            cx.local.note_refused(limit, &cx.link);
            cx.link.abort_because("client memory limit");
        }
    }

    /// The client that need not be notified of the changes by this session; 0 is none.
    pub(super) fn not_told(&self) -> u64 {
        let following = self.session.tracking();
        following
            .filter(|following| following.no_loop)
            .map_or(self.session.changes_as, |_| self.card().id)
    }

    /// Writes what has changed of what this client itself has asked for, if anything waits.
    pub(super) fn tell_own_changes(&mut self, cx: &mut Cx<'_, RespConn>) {
        if let Some(following) = self.session.tracking()
            && following.redirect == 0
        {
            let tracker = following.tracker.clone();
            self.tell_changes(&tracker, cx);
        }
    }

    /// Notes the keys that a command of a transaction or script has read.
    pub(super) fn note_read(&self, batch: &mut Batch<'_>, spec: &Spec, args: &[&[u8]]) {
        if self.session.tracking().is_some() || self.session.reads_for.is_some() {
            batch.note(&self.session, spec, args);
        }
    }

    /// Writes what has changed to this connection, which has asked for it, or was named by a client
    /// that did.
    pub(super) fn tell_changes(&mut self, tracker: &Arc<Tracker>, cx: &mut Cx<'_, RespConn>) {
        let is_own = self
            .session
            .tracking()
            .is_some_and(|own| Arc::ptr_eq(&own.tracker, tracker));
        if is_own && self.is_served(&cx.local.shared.store) {
            // Invalidations of the connection's own command are sent behind its reply.
            return;
        }
        let mut reply = Reply::new(self.session.proto);
        match self.session.proto {
            Proto::Resp3 => {
                reply.push(2);
                reply.bulk(b"invalidate");
            }
            Proto::Resp2 if self.session.is_subscribed() => {
                reply.array(3);
                reply.bulk(b"message");
                reply.bulk(b"__redis__:invalidate");
            }
            // The client could not tell this from a reply.
            Proto::Resp2 => {
                let _ = tracker.take();
                return;
            }
        }
        let Some((changed, ticket)) = tracker.take() else {
            return;
        };
        match changed {
            Changed::All => reply.null_array(),
            Changed::Keys(mut keys) => {
                // The names of others' keys are none of its business.
                self.session.heed(&cx.local.shared);
                if !self.session.rights().is_unrestricted() {
                    keys.retain(|key| self.session.rights().may_know(key));
                }
                if keys.is_empty() {
                    return;
                }
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
        }
        // A crash may take the change back, and then nothing has changed.
        cx.local.arm();
        if let Some(waiting) = &mut cx.local.waiting
            && !waiting.hold(ticket, &mut cx.link)
        {
            return;
        }
        let most = cx.local.shared.config.subscriber_output.load(Relaxed);
        self.hand_out(&Bytes::from(reply.take()), most, cx);
    }

    /// The connection that receives this client's notifications has closed.
    pub(super) fn redirect_gone(&mut self, cx: &mut Cx<'_, RespConn>) {
        let Some(following) = self.session.tracking() else {
            return;
        };
        let listener = cx.local.shared.clients.find(following.redirect);
        if following.redirect == 0 || listener.is_some_and(|card| !card.gone.load(Relaxed)) {
            // The client has named another since.
            return;
        }
        // The notice is not taken, and the next change is told of again.
        let _ = following.tracker.take();
        self.card().redirect_broken.store(true, Relaxed);
        if self.session.proto == Proto::Resp3 {
            let mut reply = Reply::new(Proto::Resp3);
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(following.redirect as i64);
            let most = cx.local.shared.config.subscriber_output.load(Relaxed);
            self.hand_out(&Bytes::from(reply.take()), most, cx);
        }
    }
}

/// Ends the invalidations of a client. `alone` says that no locks of the store are held.
pub(super) fn end(call: &mut Call<'_, '_>) {
    let alone = !call.in_transaction;
    if let Some(before) = call.session.set_tracking(None) {
        call.shared.store.end_tracking(&before.tracker, alone);
        call.card.names().tracker = Weak::new();
    }
    show(call.card, None);
}

/// Brings the figures of the client's card up to date.
fn show(card: &Card, following: Option<&Following>) {
    card.tracks.store(following.is_some(), Relaxed);
    let prefixes = following.into_iter().flat_map(|f| &f.prefixes);
    let held = prefixes.map(|prefix| PREFIX + prefix.len()).sum();
    card.holdings.set(Holding::Prefixes, held);
    let broadcast = following.is_some_and(|f| f.mode == Mode::Broadcast);
    card.broadcast.store(broadcast, Relaxed);
    card.redirect_broken.store(false, Relaxed);
    card.redirect
        .store(following.map_or(0, |f| f.redirect), Relaxed);
}

/// The options of CLIENT TRACKING ON.
#[derive(Default)]
struct Wish<'a> {
    redirect: Option<Arc<Card>>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    prefixes: Vec<&'a [u8]>,
}

/// Runs CLIENT TRACKING.
pub(super) fn tracking(call: &mut Call<'_, '_>) {
    let on = match call.args[2].to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return call.reply.error("ERR syntax error"),
    };
    let wish = match wish(call) {
        Ok(wish) => wish,
        Err(error) => return call.reply.error(error.0),
    };
    if !on {
        end(call);
        return call.reply.ok();
    }
    match begin(call, wish) {
        Ok(()) => call.reply.ok(),
        Err(error) => call.reply.error(error.0),
    }
}

fn wish<'a>(call: &Call<'a, '_>) -> Result<Wish<'a>, Error> {
    let mut wish = Wish::default();
    let mut rest = &call.args[3..];
    while let [option, behind @ ..] = rest {
        rest = match (option.to_ascii_lowercase().as_slice(), behind) {
            (b"redirect", [id, behind @ ..]) => {
                if wish.redirect.is_some() {
                    return Err(Error::new(
                        "ERR A client can only redirect to a single other client",
                    ));
                }
                let id = parse_integer(id).ok_or(Error::NOT_INTEGER)?;
                let card = u64::try_from(id)
                    .ok()
                    .and_then(|id| call.shared.clients.find(id));
                wish.redirect = Some(card.ok_or(Error::new(
                    "ERR The client ID you want redirect to does not exist",
                ))?);
                behind
            }
            (b"prefix", [prefix, behind @ ..]) => {
                wish.prefixes.push(prefix);
                behind
            }
            (b"bcast", _) => {
                wish.broadcast = true;
                behind
            }
            (b"optin", _) => {
                wish.opt_in = true;
                behind
            }
            (b"optout", _) => {
                wish.opt_out = true;
                behind
            }
            (b"noloop", _) => {
                wish.no_loop = true;
                behind
            }
            _ => return Err(Error::SYNTAX),
        };
    }
    Ok(wish)
}

fn begin(call: &mut Call<'_, '_>, mut wish: Wish<'_>) -> Result<(), Error> {
    if !wish.broadcast && !wish.prefixes.is_empty() {
        return Err(Error::new(
            "ERR PREFIX option requires BCAST mode to be enabled",
        ));
    }
    let before = call.session.tracking().map(|f| f.mode);
    if before.is_some_and(|mode| (mode == Mode::Broadcast) != wish.broadcast) {
        return Err(Error::new(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    if wish.broadcast && (wish.opt_in || wish.opt_out) {
        return Err(Error::new(
            "ERR OPTIN and OPTOUT are not compatible with BCAST",
        ));
    }
    if wish.opt_in && wish.opt_out {
        return Err(Error::new(
            "ERR You can't specify both OPTIN mode and OPTOUT mode",
        ));
    }
    let mode = match () {
        () if wish.broadcast => Mode::Broadcast,
        () if wish.opt_in => Mode::OptIn,
        () if wish.opt_out => Mode::OptOut,
        () => Mode::Reads,
    };
    let switches = |before| {
        matches!(
            (before, mode),
            (Mode::OptIn, Mode::OptOut) | (Mode::OptOut, Mode::OptIn)
        )
    };
    if before.is_some_and(switches) {
        return Err(Error::new(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    if mode == Mode::Broadcast && call.in_transaction {
        // The command takes the locks of all keys, some of which the transaction has.
        return Err(Error::new(
            "ERR CLIENT TRACKING BCAST is not for transactions",
        ));
    }
    if wish.broadcast && wish.prefixes.is_empty() {
        wish.prefixes.push(b"");
    }
    let known = call.session.tracking();
    let mut prefixes = known.map_or_else(BTreeSet::new, |f| f.prefixes.clone());
    add_prefixes(&mut prefixes, &wish.prefixes)?;
    let held: usize = prefixes.iter().map(|prefix| PREFIX + prefix.len()).sum();
    let before = call.card.holdings.get(Holding::Prefixes);
    let limit = call.shared.config.query_buffer.load(Relaxed);
    if call.card.holdings.sum() - before + held as u64 > limit as u64 {
        call.local.note_refused(limit, call.link);
        return Err(Error::new(TOO_MUCH_HELD));
    }
    let redirect = wish.redirect.as_ref().map_or(0, |card| card.id);
    if let Some(card) = &wish.redirect {
        card.hears_for_others.store(true, Relaxed);
    }
    let route = Route {
        own: call.card.handle.clone(),
        instead: wish.redirect,
    };
    let store = call.shared.store.clone();
    let tracker = match known {
        Some(known) => {
            known.tracker.change(!wish.no_loop, Box::new(route));
            known.tracker.clone()
        }
        None => {
            let tracker = Tracker::new(call.card.id, !wish.no_loop, Box::new(route));
            store.begin_tracking(&tracker);
            tracker
        }
    };
    if mode == Mode::Broadcast {
        let is_new =
            |prefix: &&Arc<[u8]>| known.is_none_or(|known| !known.prefixes.contains(*prefix));
        store.track_prefixes(&tracker, prefixes.iter().filter(is_new));
    }
    let following = Following {
        tracker,
        mode,
        no_loop: wish.no_loop,
        prefixes,
        redirect,
        caching: false,
    };
    show(call.card, Some(&following));
    call.card.names().tracker = Arc::downgrade(&following.tracker);
    call.session.set_tracking(Some(Box::new(following)));
    Ok(())
}

fn add_prefixes(known: &mut BTreeSet<Arc<[u8]>>, more: &[&[u8]]) -> Result<(), Error> {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let error = |a: &[u8], what: &str, b: &[u8]| {
        let shown =
            |prefix: &[u8]| String::from_utf8_lossy(&prefix[..prefix.len().min(128)]).into_owned();
        Error::text(format!(
            "ERR Prefix '{}' overlaps with {what} prefix '{}'. Prefixes for a single client must not overlap.",
            shown(a),
            shown(b),
        ))
    };
    if known.len() + more.len() > PREFIXES_MAX {
        return Err(Error::new("ERR a client may name 1024 prefixes"));
    }
    for (at, prefix) in more.iter().enumerate() {
        let others = known.iter().map(|other| &**other);
        if let Some(other) = others
            .filter(|other| other != prefix)
            .find(|other| overlap(prefix, other))
        {
            return Err(error(prefix, "an existing", other));
        }
        if let Some(other) = more[at + 1..].iter().find(|other| overlap(prefix, other)) {
            return Err(error(prefix, "another provided", other));
        }
    }
    for &prefix in more {
        if !known.contains(prefix) {
            known.insert(prefix.into());
        }
    }
    Ok(())
}

/// Runs CLIENT CACHING.
pub(super) fn caching(call: &mut Call<'_, '_>) {
    let yes = match call.args[2].to_ascii_lowercase().as_slice() {
        b"yes" => true,
        b"no" => false,
        _ => return call.reply.error("ERR syntax error"),
    };
    let Some(following) = call.session.tracking_mut() else {
        return call.reply.error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        );
    };
    match (yes, following.mode) {
        (true, Mode::OptIn) | (false, Mode::OptOut) => {
            following.caching = true;
            call.reply.ok();
        }
        (true, _) => call
            .reply
            .error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
        (false, _) => call
            .reply
            .error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
    }
}

/// Runs CLIENT GETREDIR.
pub(super) fn redirect(call: &mut Call<'_, '_>) {
    let redirect = call.session.tracking().map_or(-1, |f| f.redirect as i64);
    call.reply.integer(redirect);
}

/// Runs CLIENT TRACKINGINFO.
pub(super) fn info(call: &mut Call<'_, '_>) {
    let reply = &mut *call.reply;
    let following = call.session.tracking();
    let mut flags = vec![if following.is_some() { "on" } else { "off" }];
    if let Some(following) = following {
        let caching = following.caching;
        flags.extend(match following.mode {
            Mode::Reads => None,
            Mode::Broadcast => Some("bcast"),
            Mode::OptIn => Some("optin"),
            Mode::OptOut => Some("optout"),
        });
        flags.extend((caching && following.mode == Mode::OptIn).then_some("caching-yes"));
        flags.extend((caching && following.mode == Mode::OptOut).then_some("caching-no"));
        flags.extend(following.no_loop.then_some("noloop"));
        let broken = call.card.redirect_broken.load(Relaxed);
        flags.extend(broken.then_some("broken_redirect"));
    }
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(following.map_or(-1, |f| f.redirect as i64));
    reply.bulk(b"prefixes");
    match following {
        Some(following) => {
            reply.array(following.prefixes.len());
            let each = following.prefixes.iter();
            each.for_each(|prefix| reply.bulk(prefix));
        }
        None => reply.array(0),
    }
}
