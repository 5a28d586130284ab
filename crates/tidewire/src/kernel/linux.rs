//! The system calls, passed on to the kernel that this process runs on.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, acceptfrom_with,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::build::listen::TcpOptions;
use crate::kernel::calls::{Behind, Sys};
use crate::kernel::descriptor::Descriptor;
use crate::kernel::{connect, handshakes, sys};
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::Process;
use crate::vocabulary::time::Instant;

/// The kernel of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linux;

const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

#[inline]
fn send_flags(behind: Behind) -> SendFlags {
    match behind {
        Behind::Nothing => SEND,
        Behind::More => SEND.union(SendFlags::MORE),
    }
}

fn found(addr: rustix::io::Result<Option<rustix::net::SocketAddrAny>>) -> Option<Endpoint> {
    addr.ok().flatten().and_then(Endpoint::from_kernel)
}

impl Sys for Linux {
    type Fd = OwnedFd;

    #[inline]
    fn number(fd: &OwnedFd) -> RawFd {
        fd.as_raw_fd()
    }

    fn own(descriptor: Descriptor) -> OwnedFd {
        match descriptor {
            Descriptor::Linux(fd) => fd,
            Descriptor::Simulated(_) => unreachable!("loops of two kernels never meet"),
        }
    }

    fn look(descriptor: &Descriptor) -> &OwnedFd {
        match descriptor {
            Descriptor::Linux(fd) => fd,
            Descriptor::Simulated(_) => unreachable!("loops of two kernels never meet"),
        }
    }

    fn hand_over(fd: OwnedFd) -> Descriptor {
        Descriptor::Linux(fd)
    }

    fn event(&self) -> io::Result<Descriptor> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into())
    }

    fn timer(&self) -> io::Result<OwnedFd> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
    }

    fn set_timer(&self, timer: &OwnedFd, at: Instant) -> Result<(), Errno> {
        let none = Timespec::default();
        let once = Itimerspec {
            it_interval: none,
            it_value: sys::timespec_at(at),
        };
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop)
    }

    #[inline]
    fn recv(&self, fd: &OwnedFd, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::net::recv(fd, into, RecvFlags::DONTWAIT).map(|(_, n)| n)
    }

    #[inline]
    fn send(&self, fd: &OwnedFd, bytes: &[u8], behind: Behind) -> Result<usize, Errno> {
        rustix::net::send(fd, bytes, send_flags(behind))
    }

    #[inline]
    fn send_several(
        &self,
        fd: &OwnedFd,
        slices: &[IoSlice<'_>],
        behind: Behind,
    ) -> Result<usize, Errno> {
        let mut control = SendAncillaryBuffer::default();
        rustix::net::sendmsg(fd, slices, &mut control, send_flags(behind))
    }

    fn shut_write(&self, fd: &OwnedFd) -> Result<(), Errno> {
        rustix::net::shutdown(fd, Shutdown::Write)
    }

    fn reset_on_close(&self, fd: &OwnedFd) {
        sys::reset_on_close(fd);
    }

    fn error(&self, fd: &OwnedFd) -> Option<Errno> {
        let error = rustix::net::sockopt::socket_error(fd);
        error.unwrap_or_else(Err).err()
    }

    fn unread(&self, fd: &OwnedFd) -> Result<usize, Errno> {
        let held = rustix::io::ioctl_fionread(fd)?;
        Ok(usize::try_from(held).unwrap_or(usize::MAX))
    }

    fn untaken(&self, fd: &OwnedFd) -> Result<usize, Errno> {
        sys::untaken(fd)
    }

    fn set_blocking(&self, fd: &OwnedFd) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(fd, false)
    }

    #[inline]
    fn accept(&self, listener: &OwnedFd) -> Result<(OwnedFd, Option<Endpoint>), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, addr) = acceptfrom_with(listener, flags)?;
        Ok((socket, addr.and_then(Endpoint::from_kernel)))
    }

    fn begin_no_more(&self, listener: &OwnedFd) -> io::Result<bool> {
        handshakes::begin_no_more(listener).map(|()| true)
    }

    fn connect(
        &self,
        to: &Endpoint,
        from: Option<SocketAddr>,
        options: &TcpOptions,
    ) -> io::Result<OwnedFd> {
        connect::start(to, from, options)
    }

    fn outcome(&self, fd: &OwnedFd) -> Result<(), Errno> {
        connect::outcome(fd)
    }

    fn peer_name(&self, fd: &OwnedFd) -> Endpoint {
        let connected = found(rustix::net::getpeername(fd));
        // A peer that has reset the connection by now is asked for in the way of `accept`.
        let known = connected.or_else(|| sys::peer_name(fd).map(Endpoint::Tcp));
        known.unwrap_or_else(|| {
            let ours = found(rustix::net::getsockname(fd).map(Some));
            match ours {
                Some(Endpoint::Unix(_) | Endpoint::Abstract(_) | Endpoint::Unnamed) => {
                    Endpoint::Unnamed
                }
                Some(Endpoint::Tcp(SocketAddr::V6(_))) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
            }
        })
    }

    fn peer_process(&self, fd: &OwnedFd) -> Option<Process> {
        sys::peer_process(fd)
    }

    fn epoll(&self) -> io::Result<OwnedFd> {
        Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?)
    }

    fn epoll_add(
        &self,
        epoll: &OwnedFd,
        fd: &OwnedFd,
        token: u64,
        flags: i32,
    ) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token);
        let flags = epoll::EventFlags::from_bits_retain(flags as u32);
        epoll::add(epoll, fd, data, flags)
    }

    fn epoll_delete(&self, epoll: &OwnedFd, fd: &OwnedFd) {
        let _ = epoll::delete(epoll, fd);
    }

    #[inline]
    fn epoll_wait(
        &self,
        epoll: &OwnedFd,
        events: &mut Vec<libc::epoll_event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        sys::epoll_wait(epoll, events, timeout)
    }

    #[inline]
    fn poll(&self, fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
        sys::poll(fds, timeout)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
