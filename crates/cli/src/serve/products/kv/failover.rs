//! Failover without a human: its settings, and the server that begins anew when the store is another server's.
//!
//! One idea: whatever a server was, and whatever went wrong, it goes on as if it had just been started with its command line. So
//! there is one way to become a follower, and it is the start.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tidewire_kafka::{Settings as Home, Target};
use tidewire_kv::durable::{STREAM, left_by};
use tidewire_kv::service::Address;
use tidewire_replicate::Share;

use super::begun::has_taken_over;
use super::names::resp;
use super::settings::KvOptions;
use crate::exit::Failure;
use crate::serve::listeners::kind::Kind;
use crate::serve::running::now::now_ms;
use crate::serve::settings::frame::Settings;

/// How long the group of the servers may miss one: brokers take no less by default.
const SESSIONS: RangeInclusive<Duration> = Duration::from_secs(6)..=Duration::from_secs(300);
/// Most bytes of a name of a store.
const NAME_MAX: usize = 64;
/// Where the logs of former owners are put, in the directory of the data.
const FORMER: &str = "kv-former";
/// Before a server begins anew that has failed.
const PAUSE: Duration = Duration::from_secs(1);

impl KvOptions {
    /// Refuses settings of failover that cannot be.
    pub(super) fn check_failover(&self, settings: &Settings) -> Result<(), Failure> {
        if !self.failover {
            return Ok(());
        }
        let refused = |why: &str| Err(Failure::usage(why.to_owned()));
        if self.follow.is_some() || self.replicate.is_none() {
            return refused(
                "--kv-failover needs --kv-replicate HOME, and no --follow: all servers of the store are started with the same \
                 flags",
            );
        }
        let is_named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !(1..=NAME_MAX).contains(&self.master_name.len())
            || !self.master_name.chars().all(is_named)
        {
            return refused(
                "--kv-master-name: 1 to 64 letters, digits, dots, dashes and underscores",
            );
        }
        if !SESSIONS.contains(&self.session.0) {
            return refused("--kv-session: from 6s to 5m");
        }
        if let Some(at) = &self.address {
            let at = at.parse::<Address>();
            at.map_err(|e| Failure::usage(format!("--kv-address: {e}")))?;
            return Ok(());
        }
        let mut places = settings.endpoints.iter().filter(|e| e.kind == resp());
        match places.any(|e| is_address(&e.place)) {
            true => Ok(()),
            false => refused(
                "--kv-failover: clients and the other servers are told where this one is: --kv-address HOST:PORT",
            ),
        }
    }

    /// Where clients find this server: as it is said, or else where it listens.
    pub(super) fn own_address(
        &self,
        settings: &Settings,
        at: &[(Kind, tidewire::Endpoint)],
    ) -> Result<Address, Failure> {
        if let Some(at) = &self.address {
            return at
                .parse()
                .map_err(|e| Failure::usage(format!("--kv-address: {e}")));
        }
        let bound = at.iter().filter(|(kind, _)| *kind == resp());
        let bound = bound.map(|(_, place)| place);
        let asked = settings.endpoints.iter().filter(|e| e.kind == resp());
        let mut all = bound.chain(asked.map(|e| &e.place));
        let found = all.find(|place| is_address(place) && place.port() != Some(0));
        found
            .and_then(|place| place.to_string().parse().ok())
            .ok_or_else(|| Failure::usage("--kv-failover: say --kv-address HOST:PORT"))
    }
}

/// Whether clients elsewhere can be sent there.
fn is_address(place: &tidewire::Endpoint) -> bool {
    place.tcp().is_some_and(|at| !at.ip().is_unspecified())
}

/// A handle that makes the server begin again. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Anew(Arc<Inner>);

#[derive(Default)]
struct Inner {
    why: Mutex<Option<Why>>,
    stop: OnceLock<Arc<dyn Fn() + Send + Sync>>,
}

/// Why a server begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another server owns the store that this log, by its number, is of.
    Lost(u64),
    /// Following or taking over did not go on.
    Failed,
}

impl Anew {
    /// What ends the server in order.
    pub(super) fn stop_by(&self, stop: Arc<dyn Fn() + Send + Sync>) {
        self.0.stop.get_or_init(|| stop);
    }

    /// Asks for it. The first reason counts.
    pub(super) fn ask(&self, why: Why) {
        let mut asked = self.0.why.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_some() {
            return;
        }
        *asked = Some(why);
        drop(asked);
        tracing::info!(?why, "the server begins anew, as another start would");
        if let Some(stop) = self.0.stop.get() {
            stop();
        }
    }

    /// Why it was asked for, if it was.
    pub(super) fn why(&self) -> Option<Why> {
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares for the next start, with all logs closed: the log of a store that another server owns is put aside. Whether it was
    /// at this home is looked up before.
    pub(super) fn prepare(
        &self,
        directory: &Path,
        target: &Target,
        home: &Home,
    ) -> Result<(), Failure> {
        match self.why() {
            None => Ok(()),
            Some(Why::Failed) => {
                std::thread::sleep(PAUSE);
                Ok(())
            }
            Some(Why::Lost(_)) if !has_taken_over(directory) => Ok(()),
            Some(Why::Lost(log)) => {
                let held = match tidewire_kafka::held(target, Share::Whole, home) {
                    Ok(held) => held,
                    Err(why) => {
                        // The next start finds out again that the store is another server's.
                        tracing::warn!(%why, "the home is not reached, so the log of the former owner is left for now");
                        std::thread::sleep(PAUSE);
                        return Ok(());
                    }
                };
                let has_any = held.streams.contains_key(STREAM);
                if has_any && !held.streams.contains_key(&left_by(log)) {
                    return Err(Failure::wrong(format!(
                        "the store in {} was never at {target}, which another server's store is at: move the directory away, \
                         or give this store a topic of its own",
                        directory.display()
                    )));
                }
                put_aside(directory)
            }
        }
    }
}

/// Moves the log away; no file is deleted.
fn put_aside(directory: &Path) -> Result<(), Failure> {
    let to = aside(directory);
    let moved = fs::create_dir_all(&to).and_then(|()| {
        fs::rename(
            directory,
            to.join(directory.file_name().unwrap_or_default()),
        )
    });
    moved.map_err(|e| {
        Failure::failed(format!(
            "cannot move the log of a former owner from {} to {}: {e}; move it away by hand, and start the server again",
            directory.display(),
            to.display()
        ))
    })?;
    tracing::warn!(
        to = %to.display(),
        "another server owns the store now: the log of this one was put aside. tidewire log unreplicated --data tells what is in it \
         alone; then it may be deleted"
    );
    Ok(())
}

/// A directory that is not there yet.
fn aside(directory: &Path) -> PathBuf {
    let parent = directory.parent().unwrap_or(directory).join(FORMER);
    let name = |n: u64| parent.join(n.to_string());
    let first = now_ms();
    let mut free = (first..).map(name).filter(|path| !path.exists());
    free.next().unwrap_or_else(|| name(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_put_aside_whole_and_the_next_one_does_not_replace_it() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("kv");
        for n in ["1", "2"] {
            fs::create_dir(&directory).expect("a directory");
            fs::write(directory.join("a.seg"), n).expect("written");
            put_aside(&directory).expect("moved");
            assert!(!directory.exists());
        }
        let former = fs::read_dir(place.path().join(FORMER)).expect("there");
        let mut found: Vec<String> = former
            .map(|entry| entry.expect("an entry").path().join("kv").join("a.seg"))
            .map(|file| fs::read_to_string(file).expect("there"))
            .collect();
        found.sort();
        assert_eq!(found, ["1", "2"]);
    }

    #[test]
    fn the_first_reason_counts_and_the_server_is_ended_once() {
        let anew = Anew::default();
        let ended = Arc::new(Mutex::new(0));
        let counts = ended.clone();
        anew.stop_by(Arc::new(move || *counts.lock().expect("no panic") += 1));
        assert_eq!(anew.why(), None);
        anew.ask(Why::Lost(7));
        anew.ask(Why::Failed);
        assert_eq!(anew.why(), Some(Why::Lost(7)));
        assert_eq!(*ended.lock().expect("no panic"), 1);
    }
}
