//! The listener at an address: the process whose CPU is measured, unless the user names one.
//!
//! The idea: the kernel lists listening sockets with their inodes, and each process's descriptors
//! with their inodes. If several processes hold the socket, as with servers that fork workers, the
//! oldest counts: the others are its children.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use crate::procfs::Process;

/// The state of a listening socket in the kernel's list.
const LISTENING: &str = "0A";
/// The state of a connection in the kernel's lists.
const ESTABLISHED: &str = "01";

/// The process that listens at an address of this machine; `None` if there is none, or if its descriptors are not to be
/// seen by this user. The search takes some milliseconds; the pid can later belong to another process.
pub fn listens_at(addr: SocketAddr) -> Option<u32> {
    // Pids come around; times of the start do not.
    let holders = listen_at(addr).into_iter();
    holders.min_by_key(|pid| (started(*pid), *pid))
}

/// Processes that listen at an address and do not belong to the server that was started for it: the
/// server has become one of them, if it has forked itself away. Processes that are older than the
/// server are left out.
pub fn forked_away(addr: SocketAddr, server: &Process) -> Vec<u32> {
    let family = server.pids();
    let begun = server.pid().map_or(u64::MAX, started);
    let mut away = listen_at(addr);
    away.retain(|pid| {
        !family.contains(pid) && *pid != std::process::id() && started(*pid) >= begun
    });
    away
}

/// All processes that hold a socket which listens at an address of this machine.
pub(crate) fn listen_at(addr: SocketAddr) -> Vec<u32> {
    // An address of another machine may have the same port here.
    if TcpListener::bind((addr.ip(), 0)).is_err() {
        return Vec::new();
    }
    let inodes: Vec<u64> = lists().flat_map(|text| inodes(&text, addr)).collect();
    let wanted: Vec<String> = inodes.iter().map(|n| format!("socket:[{n}]")).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    processes().filter(|pid| holds(*pid, &wanted)).collect()
}

/// All processes that there are.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
}

/// The kernel's lists of sockets of this network namespace.
fn lists() -> impl Iterator<Item = String> {
    let lists = ["/proc/net/tcp", "/proc/net/tcp6"];
    lists
        .into_iter()
        .filter_map(|list| fs::read_to_string(list).ok())
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) inode: u64,
}

/// All ends of established connections in this network namespace.
pub(crate) fn established() -> Vec<End> {
    let ends = |text: String| -> Vec<End> {
        let lines = text.lines().skip(1);
        let ends = lines.filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
            let inode = fields.nth(5)?;
            (state == ESTABLISHED).then(|| {
                Some(End {
                    local: addr_of(local)?,
                    remote: addr_of(remote)?,
                    inode: inode.parse().ok()?,
                })
            })?
        });
        ends.collect()
    };
    lists().flat_map(ends).collect()
}

fn addr_of(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    Some(SocketAddr::new(
        ip_of(ip)?,
        u16::from_str_radix(port, 16).ok()?,
    ))
}

fn holds(pid: u32, wanted: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else {
        return false;
    };
    let mut links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| {
        link.to_str()
            .is_some_and(|link| wanted.iter().any(|one| one == link))
    })
}

/// When a process was started, in ticks since the machine was.
pub(crate) fn started(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process's name, in parentheses, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start = fields.split_ascii_whitespace().nth(19);
    start
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(u64::MAX)
}

/// Inodes of the sockets in such a list that listen at an address, or at all of them.
fn inodes(list: &str, addr: SocketAddr) -> Vec<u64> {
    let lines = list.lines().skip(1);
    let found = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let (ip, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let ip = ip_of(ip)?;
        let here = ip.is_unspecified() || ip.to_canonical() == addr.ip().to_canonical();
        (*state == LISTENING && port == addr.port() && here).then(|| inode.parse().ok())?
    });
    found.collect()
}

/// An address as the kernel writes it: words of 32 bits, each in this machine's order.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let words = hex.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        u32::from_str_radix(word, 16).ok().map(u32::to_ne_bytes)
    });
    let words: Vec<[u8; 4]> = words.collect::<Option<_>>()?;
    match words[..] {
        [one] => Some(Ipv4Addr::from(one).into()),
        [_, _, _, _] => {
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_by_what_it_listens_at() {
        for ip in ["127.0.0.1", "0.0.0.0", "127.0.0.9"] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let addr = listener.local_addr().unwrap();
            assert_eq!(listens_at(addr), Some(std::process::id()), "{addr}");
            let other = SocketAddr::from(([127, 0, 0, 77], addr.port()));
            let everywhere = addr.ip().is_unspecified();
            assert_eq!(listens_at(other).is_some(), everywhere, "{other}");
            drop(listener);
            assert_eq!(listens_at(addr), None, "{addr}");
        }
    }

    #[test]
    fn another_machine_is_not_looked_for_here() {
        let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listens_at(SocketAddr::from(([192, 0, 2, 1], port))), None);
    }

    #[test]
    fn damaged_lists_name_no_owner() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        let line = "  0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 x\n";
        let head = "  sl  local_address\n";
        assert_eq!(inodes(&[head, line].concat(), addr), [4711]);
        for (from, to) in [
            ("0A", "01"),
            ("0050", "0051"),
            ("0100007F", "zz"),
            ("4711", "x"),
            (":0050", ""),
        ] {
            assert!(
                inodes(&[head, &line.replacen(from, to, 1)].concat(), addr).is_empty(),
                "{from}"
            );
        }
        assert!(inodes("", addr).is_empty() && inodes("\n\n 1 2", addr).is_empty());
    }
}
