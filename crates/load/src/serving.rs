//! The serving processes: they hold the server's ends of the generator's connections.
//!
//! The idea: the process that listens is not always the process that serves. Several processes may
//! share a port, a parent may hold the socket of a child that it has passed it to, a server may
//! fork itself away. The kernel's list of connections names the inode of each end, and each process
//! its descriptors, so the connections themselves say whose CPU is to be measured, or that it
//! cannot be told.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::owner;
use crate::procfs::{KnownBy, Process};

/// Facts about a process that is measured as the server, found from its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serving {
    /// Connections of the generator of which the server's end was seen.
    pub connections: usize,
    /// Connections held by processes that are not measured.
    pub elsewhere: usize,
    /// Other processes that also hold such connections.
    pub others: BTreeSet<u32>,
    /// Connections without a visible holder: of another user's process, or of a ring's descriptors.
    pub unseen: usize,
    /// Connections were looked for, and nothing may be said by what was found.
    pub unknown: bool,
}

impl Serving {
    /// Adds the observations of another time.
    pub fn add(&mut self, later: &Serving) {
        self.connections += later.connections;
        self.elsewhere += later.elsewhere;
        self.others.extend(&later.others);
        self.unseen += later.unseen;
    }
}

/// Finds the processes to measure as the server at `addr`, by the connections that `generators`
/// have there; begins with the process that is taken for the server. A process that the user has
/// named stays; a process that was started or guessed is replaced by the processes that hold the
/// connections.
pub fn find(named: &Process, addr: SocketAddr, generators: &[u32]) -> (Process, Serving) {
    let mut ends = Ends::of(addr, generators);
    // The kernel establishes connections before a process accepts them; until then no process holds
    // them.
    for _ in 0..ACCEPT_TRIES {
        if ends.accepted {
            break;
        }
        std::thread::sleep(ACCEPT_PAUSE);
        ends = Ends::of(addr, generators);
    }
    let measured = ends.whom(named, addr, generators);
    let serving = ends.beside(&measured);
    (measured, serving)
}

/// Finds facts about a process from the connections of this moment.
pub fn of(measured: &Process, addr: SocketAddr, generators: &[u32]) -> Serving {
    Ends::of(addr, generators).beside(measured)
}

/// How often connections that are not accepted yet are looked at again,
const ACCEPT_TRIES: u32 = 50;
/// and how long after the last time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);
/// The inode of a connection that is not accepted.
const NOT_ACCEPTED: u64 = 0;

/// The server's ends, and which processes hold each.
struct Ends {
    holders: Vec<BTreeSet<u32>>,
    /// Connections are there, and all of them have been accepted.
    accepted: bool,
}

impl Ends {
    fn of(addr: SocketAddr, generators: &[u32]) -> Ends {
        let own: HashSet<u64> = generators.iter().flat_map(|pid| sockets(*pid)).collect();
        let all = owner::established();
        let addr = canonical(addr);
        let same = |one: SocketAddr| canonical(one) == addr;
        let mine = all
            .iter()
            .filter(|one| same(one.remote) && own.contains(&one.inode));
        let mine: HashSet<SocketAddr> = mine.map(|one| canonical(one.local)).collect();
        let ends = all.iter().filter(|one| {
            // A ring's descriptors are in no list: then all connections to the server are taken for the generator's.
            same(one.local) && (mine.is_empty() || mine.contains(&canonical(one.remote)))
        });
        let ends: Vec<u64> = ends.map(|one| one.inode).collect();
        let wanted: HashMap<u64, usize> = ends.iter().copied().zip(0..).collect();
        let mut holders = vec![BTreeSet::new(); ends.len()];
        if !wanted.is_empty() {
            for pid in owner::processes().filter(|pid| !generators.contains(pid)) {
                for place in sockets(pid).iter().filter_map(|inode| wanted.get(inode)) {
                    holders[*place].insert(pid);
                }
            }
        }
        let accepted = !ends.is_empty() && !ends.contains(&NOT_ACCEPTED);
        Ends { holders, accepted }
    }

    fn whom(&self, named: &Process, addr: SocketAddr, generators: &[u32]) -> Process {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for pid in self.holders.iter().flatten() {
            *counts.entry(*pid).or_default() += 1;
        }
        let (Some(pid), false) = (named.pid(), counts.is_empty()) else {
            return named.clone();
        };
        let holders: Vec<u32> = counts.into_keys().collect();
        let family = named.pids();
        let all_within = holders.iter().all(|holder| family.contains(holder));
        match named.is_known_by() {
            KnownBy::Name => named.clone(),
            KnownBy::Start if all_within => named.clone(),
            // The process is what this process has become, not one that had the address before.
            KnownBy::Start => {
                let begun = owner::started(pid);
                let away = holders
                    .into_iter()
                    .filter(|holder| !family.contains(holder) && owner::started(*holder) >= begun);
                named.clone().with_others(away.collect())
            }
            KnownBy::Listening => {
                let listening = owner::listen_at(addr);
                let serves = |pid: &u32| holders.contains(pid) || listening.contains(pid);
                // A process that serves itself, or whose children do and nothing else; not a
                // process that has only passed the socket on, and has other children besides.
                let whole = holders.contains(&pid) || family.iter().skip(1).all(serves);
                if all_within && whole && !generators.contains(&pid) {
                    return named.clone();
                }
                let (first, rest) = (holders[0], holders[1..].to_vec());
                let found = Process::new(first).with_children().with_others(rest);
                found.known_by(KnownBy::Listening)
            }
        }
    }

    fn beside(&self, measured: &Process) -> Serving {
        let family: BTreeSet<u32> = measured.pids().into_iter().collect();
        let mut serving = Serving {
            connections: self.holders.len(),
            ..Serving::default()
        };
        for holders in &self.holders {
            if holders.is_empty() {
                serving.unseen += 1;
            } else if holders.is_disjoint(&family) {
                serving.elsewhere += 1;
                serving.others.extend(holders);
            }
        }
        let nothing = serving.connections == 0 || serving.unseen > 0;
        serving.unknown = nothing && !family.iter().any(|pid| has_ring(*pid));
        serving
    }
}

/// An IPv4 address that is written as IPv6, as IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// The targets of a process's descriptors, as far as they may be seen.
fn descriptors(pid: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
    let links = entries.into_iter().flatten().flatten();
    links.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.into_os_string().into_string().ok()
    })
}

/// The inodes of the sockets that a process holds.
fn sockets(pid: u32) -> Vec<u64> {
    let numbers = descriptors(pid).filter_map(|link| {
        let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
        number.parse().ok()
    });
    numbers.collect()
}

/// Whether a process may hold connections that are no descriptors.
fn has_ring(pid: u32) -> bool {
    descriptors(pid).any(|link| link.contains("io_uring"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};

    /// A process that holds a socket and does nothing.
    struct Holder(Child);

    impl Holder {
        fn of(socket: impl Into<OwnedFd>) -> Holder {
            let mut sleep = Command::new("sleep");
            let child = sleep.arg("300").stdin(Stdio::from(socket.into())).spawn();
            Holder(child.unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Connections of this process, and the far end of each.
    fn connections(n: usize) -> (SocketAddr, Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut ends = (Vec::new(), Vec::new());
        for _ in 0..n {
            ends.0.push(TcpStream::connect(addr).unwrap());
            ends.1.push(listener.accept().unwrap().0);
        }
        (addr, ends.0, ends.1)
    }

    #[test]
    fn processes_that_share_a_port_are_all_found() {
        let (addr, _near, far) = connections(4);
        let me = [std::process::id()];
        let holders: Vec<Holder> = far.into_iter().map(Holder::of).collect();
        let one = Process::new(holders[1].pid()).with_children();
        let guessed = one.clone().known_by(KnownBy::Listening);
        let (found, serving) = find(&guessed, addr, &me);
        let mut pids = found.pids();
        pids.sort_unstable();
        let mut expected: Vec<u32> = holders.iter().map(Holder::pid).collect();
        expected.sort_unstable();
        assert_eq!(pids, expected);
        assert_eq!(
            (serving.connections, serving.elsewhere, serving.unknown),
            (4, 0, false)
        );
        // The process that the user has named is measured, and a line says that others serve.
        let (found, serving) = find(&one, addr, &me);
        assert_eq!((found, serving.elsewhere), (one, 3));
        assert_eq!(serving.others.len(), 3);
    }

    #[test]
    fn one_that_only_passed_the_socket_on_is_not_measured() {
        let (addr, _near, mut far) = connections(1);
        let serves = Holder::of(far.remove(0));
        // The child's parent is this process, which has another child besides.
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let other = Holder::of(near);
        let parent = Process::new(std::process::id()).with_children();
        let parent = parent.known_by(KnownBy::Listening);
        let (found, serving) = find(&parent, addr, &[std::process::id()]);
        assert_eq!(found.pids(), [serves.pid()]);
        assert_eq!(serving.elsewhere, 0);
        drop(other);
    }

    #[test]
    fn one_that_sleeps_is_found_out() {
        let (addr, _near, mut far) = connections(1);
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (serves, sleeps) = (Holder::of(far.remove(0)), Holder::of(near));
        let (_, serving) = find(&Process::new(sleeps.pid()), addr, &[std::process::id()]);
        assert_eq!((serving.elsewhere, serving.unknown), (1, false));
        assert_eq!(serving.others, BTreeSet::from([serves.pid()]));
    }

    #[test]
    fn one_that_was_started_and_forked_itself_away_is_followed() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let started = Holder::of(near);
        let (addr, _near, mut far) = connections(1);
        let away = Holder::of(far.remove(0));
        let process = Process::new(started.pid()).with_children();
        let (found, serving) = find(
            &process.known_by(KnownBy::Start),
            addr,
            &[std::process::id()],
        );
        assert_eq!(found.pids(), [started.pid(), away.pid()]);
        assert_eq!(serving.elsewhere, 0);
    }

    #[test]
    fn a_connection_that_is_accepted_late_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let _near = TcpStream::connect(addr).unwrap();
        let me = [std::process::id()];
        let ends = Ends::of(addr, &me);
        assert_eq!((ends.holders.len(), ends.accepted), (1, false));
        let _holder = Holder::of(listener.accept().unwrap().0);
        assert!(Ends::of(addr, &me).accepted);
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        let addr = "127.0.0.1:1".parse().unwrap();
        let me = Process::new(std::process::id());
        let (_, serving) = find(&me, addr, &[std::process::id()]);
        assert!(serving.unknown);
    }
}
