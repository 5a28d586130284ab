//! The system calls for which no safe wrapper does.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::io::Errno;

use crate::vocabulary::peer::Process;
use crate::vocabulary::time::Instant;

/// `CLOCK_MONOTONIC` in nanoseconds. The standard library's type hides the number behind arithmetic
/// that costs more than the clock, and rustix's reading of the vDSO crashes under valgrind.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives through the call, which fails for no valid
    // clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Leaves the choice of the local port to `connect` (`IP_BIND_ADDRESS_NO_PORT`, ip(7)), which knows
/// the destination and so can use a port for each.
pub(crate) fn bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the value points to an int
    // of the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes sent on a socket that have not been taken at the other end (`SIOCOUTQ`, tcp(7)).
pub(crate) fn untaken(socket: impl AsFd) -> Result<usize, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the request writes an int.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => Ok(usize::try_from(bytes).unwrap_or(0)),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Has a listener leave handshakes unfinished until data comes (`TCP_DEFER_ACCEPT`, tcp(7)).
#[cfg(test)]
pub(crate) fn defer_accept(listener: impl AsFd) -> io::Result<()> {
    let seconds: libc::c_int = 60;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the value points to an int
    // of the size given.
    let result = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The process at the other end of a Unix socket (`SO_PEERCRED`, unix(7)). The safe wrapper at hand
/// cannot hold the process number 0, which is what a process of another namespace has.
pub(crate) fn peer_process(socket: impl AsFd) -> Option<Process> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the pointers are to a value
    // of the size given and to that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    let pid = u32::try_from(cred.pid).ok().filter(|pid| *pid != 0);
    // A socket that is not connected has the user -1.
    (result == 0 && cred.uid != u32::MAX).then(|| Process::new(pid, cred.uid, cred.gid))
}

/// The address of the peer of a TCP socket, also when the connection is over already: what `accept`
/// tells, and `getpeername` does not any more (`SO_PEERNAME`).
pub(crate) fn peer_name(socket: impl AsFd) -> Option<SocketAddr> {
    // The kernel refuses to fill less than it is given, so its size has to be right.
    [
        size_of::<libc::sockaddr_in6>(),
        size_of::<libc::sockaddr_in>(),
    ]
    .into_iter()
    .find_map(|size| {
        // SAFETY: the storage that the closure is given can hold any address. The kernel writes at
        // most `size` bytes and says how many; if the call fails, the kernel writes none.
        let named = unsafe {
            socket2::SockAddr::try_init(|storage, len| {
                *len = size as libc::socklen_t;
                let fd = socket.as_fd().as_raw_fd();
                let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERNAME);
                match libc::getsockopt(fd, level, name, storage.cast(), len) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            })
        };
        named.ok()?.1.as_socket()
    })
}

/// Has a socket reset its connection when it is closed (`SO_LINGER` of zero, socket(7)).
pub(crate) fn reset_on_close(socket: impl AsFd) {
    // The call fails only for a descriptor that is no socket any more.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// poll(2), with times to the nanosecond. An interruption reports nothing.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    match ppoll(fds, timeout) {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => {
                fds.iter_mut().for_each(|fd| fd.revents = 0);
                Ok(())
            }
            e => Err(e),
        },
    }
}

/// The system call is made by its number: the C library's function is a point of cancellation, which
/// costs more than the call.
#[cfg(target_pointer_width = "64")]
fn ppoll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_long {
    let mut time = timeout.map(kernel_time);
    let time = time.as_mut();
    // SAFETY: the descriptors are as many as is said and live through the call, as does the time,
    // which the kernel changes, unless it is null; there is no signal mask.
    unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            time.map_or(std::ptr::null_mut(), std::ptr::from_mut),
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    }
}

/// The time of the kernel's call has another form on some of these.
#[cfg(not(target_pointer_width = "64"))]
fn ppoll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the descriptors are as many as is said and live through the call, as does the time,
    // unless it is null; there is no signal mask.
    unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            time,
            std::ptr::null(),
        )
    }
}

/// A time as the kernel takes it, on machines of any word size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KernelTime {
    seconds: i64,
    nanoseconds: i64,
}

fn kernel_time(d: Duration) -> KernelTime {
    KernelTime {
        seconds: d.as_secs().min(1 << 30) as i64,
        nanoseconds: d.subsec_nanos().into(),
    }
}

/// A time of the monotonic clock as timers take it. Zero would disarm one.
pub(crate) fn timespec_at(at: Instant) -> rustix::time::Timespec {
    let d = Duration::from_nanos(at.as_nanos().max(1));
    rustix::time::Timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: d.subsec_nanos().into(),
    }
}

/// For kernels that know nothing finer: never early, so up to a millisecond late.
fn whole_millis(d: Duration) -> i32 {
    let part = u64::from(d.subsec_nanos().div_ceil(1_000_000));
    let millis = d.as_secs().saturating_mul(1000).saturating_add(part);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

#[cold]
fn say_coarse(e: &io::Error) {
    tracing::info!(error = %e, "no epoll_pwait2 here: timers of epoll are up to 1 ms late");
}

/// Waits for events of an epoll descriptor, as many as `events` has room for. Times are kept to the
/// nanosecond where the kernel can (`epoll_pwait2`, Linux 5.11); a timer of 200 microseconds would be
/// five times late otherwise.
pub(crate) fn epoll_wait(
    epoll: impl AsFd,
    events: &mut Vec<libc::epoll_event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    /// The kernel has no better call, or a sandbox hides it.
    static COARSE: AtomicBool = AtomicBool::new(false);
    events.clear();
    let fd = epoll.as_fd().as_raw_fd();
    let room = i32::try_from(events.capacity()).unwrap_or(i32::MAX);
    let mut got = -1;
    if !COARSE.load(Relaxed) {
        let time = timeout.map(kernel_time);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the events have room for as many as is said, the time lives through the call or is
        // null, and there is no signal mask.
        got = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                events.as_mut_ptr(),
                room,
                time,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if got < 0 {
            let e = io::Error::last_os_error();
            if !matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
                return Err(e);
            }
            COARSE.store(true, Relaxed);
            say_coarse(&e);
        }
    }
    if got < 0 {
        // SAFETY: as above.
        got = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                fd,
                events.as_mut_ptr(),
                room,
                timeout.map_or(-1, whole_millis),
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the kernel has written so many, which is at most the capacity.
    unsafe { events.set_len(got as usize) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_the_kernel_as_they_are() {
        let time = kernel_time(Duration::from_nanos(3_000_200_001));
        assert_eq!((time.seconds, time.nanoseconds), (3, 200_001));
        let for_ever = kernel_time(Duration::MAX);
        assert_eq!(
            (for_ever.seconds, for_ever.nanoseconds),
            (1 << 30, 999_999_999)
        );
        let micros = |n| whole_millis(Duration::from_micros(n));
        assert_eq!(
            [micros(0), micros(1), micros(1000), micros(1001)],
            [0, 1, 1, 2]
        );
        assert_eq!(whole_millis(Duration::MAX), i32::MAX);
    }
}
