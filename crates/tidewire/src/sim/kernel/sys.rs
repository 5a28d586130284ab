//! The system calls, answered by the simulated kernel.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::build::listen::TcpOptions;
use crate::kernel::calls::{Behind, Sys};
use crate::kernel::connect;
use crate::kernel::descriptor::Descriptor;
use crate::sim::kernel::files::{Epoll, What};
use crate::sim::kernel::{Shared, SimFd, enter};
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::Process;
use crate::vocabulary::time::Instant;

/// The simulated kernel, as drivers see it.
#[derive(Clone)]
pub(crate) struct SimSys(pub(super) Shared);

impl SimSys {
    pub(crate) fn new(kernel: &Shared) -> SimSys {
        SimSys(kernel.clone())
    }
}

impl Sys for SimSys {
    type Fd = SimFd;

    fn number(fd: &SimFd) -> RawFd {
        fd.number
    }

    fn own(descriptor: Descriptor) -> SimFd {
        match descriptor {
            Descriptor::Simulated(fd) => fd,
            Descriptor::Linux(_) => unreachable!("loops of two kernels never meet"),
        }
    }

    fn look(descriptor: &Descriptor) -> &SimFd {
        match descriptor {
            Descriptor::Simulated(fd) => fd,
            Descriptor::Linux(_) => unreachable!("loops of two kernels never meet"),
        }
    }

    fn hand_over(fd: SimFd) -> Descriptor {
        Descriptor::Simulated(fd)
    }

    fn event(&self) -> io::Result<Descriptor> {
        let mut kernel = enter(&self.0);
        let number = kernel.open_file(What::Event { readable: false })?;
        kernel.record("eventfd", number, 0);
        Ok(Descriptor::Simulated(kernel.fd(number)))
    }

    fn timer(&self) -> io::Result<SimFd> {
        let mut kernel = enter(&self.0);
        let number = kernel.make_timer()?;
        Ok(kernel.fd(number))
    }

    fn set_timer(&self, timer: &SimFd, at: Instant) -> Result<(), Errno> {
        enter(&self.0).set_timer(timer.number, at.as_nanos())
    }

    fn recv(&self, fd: &SimFd, into: &mut [u8]) -> Result<usize, Errno> {
        enter(&self.0).recv(fd.number, into)
    }

    fn send(&self, fd: &SimFd, bytes: &[u8], _: Behind) -> Result<usize, Errno> {
        enter(&self.0).send(fd.number, &[IoSlice::new(bytes)])
    }

    fn send_several(&self, fd: &SimFd, slices: &[IoSlice<'_>], _: Behind) -> Result<usize, Errno> {
        enter(&self.0).send(fd.number, slices)
    }

    fn shut_write(&self, fd: &SimFd) -> Result<(), Errno> {
        enter(&self.0).shut_write(fd.number)
    }

    fn reset_on_close(&self, fd: &SimFd) {
        enter(&self.0).reset_on_close(fd.number);
    }

    fn error(&self, fd: &SimFd) -> Option<Errno> {
        let mut kernel = enter(&self.0);
        let error = kernel.stream(fd.number)?.error.take();
        let code = error.map_or(0, |e| e.raw_os_error());
        kernel.record("SO_ERROR", fd.number, code.into());
        error
    }

    fn unread(&self, fd: &SimFd) -> Result<usize, Errno> {
        enter(&self.0).unread(fd.number)
    }

    fn untaken(&self, fd: &SimFd) -> Result<usize, Errno> {
        enter(&self.0).untaken(fd.number)
    }

    fn set_blocking(&self, fd: &SimFd) -> Result<(), Errno> {
        let mut kernel = enter(&self.0);
        kernel.record("blocking", fd.number, 0);
        if let Some(stream) = kernel.stream(fd.number) {
            stream.nonblocking = false;
        }
        Ok(())
    }

    fn accept(&self, listener: &SimFd) -> Result<(SimFd, Option<Endpoint>), Errno> {
        let mut kernel = enter(&self.0);
        let (number, peer) = kernel.accept(listener.number)?;
        Ok((kernel.fd(number), Some(peer)))
    }

    fn begin_no_more(&self, listener: &SimFd) -> io::Result<bool> {
        Ok(enter(&self.0).begin_no_more(listener.number))
    }

    fn connect(
        &self,
        to: &Endpoint,
        from: Option<SocketAddr>,
        _options: &TcpOptions,
    ) -> io::Result<SimFd> {
        to.to_kernel()?;
        let mut kernel = enter(&self.0);
        let connected = kernel.connect(to, from.map(Endpoint::from));
        let number = connected.map_err(|e| connect::refused(to, e))?;
        Ok(kernel.fd(number))
    }

    fn outcome(&self, fd: &SimFd) -> Result<(), Errno> {
        let mut kernel = enter(&self.0);
        let stream = kernel.stream(fd.number).ok_or(Errno::BADF)?;
        let outcome = match stream.error.take() {
            Some(e) => Err(e),
            None if stream.connecting || stream.broken => Err(Errno::NOTCONN),
            None => Ok(()),
        };
        let code = outcome.map_or_else(|e| -e.raw_os_error(), |()| 0);
        kernel.record("outcome", fd.number, code.into());
        outcome
    }

    fn peer_name(&self, fd: &SimFd) -> Endpoint {
        let mut kernel = enter(&self.0);
        let stream = kernel.stream(fd.number);
        let name = stream.map_or(Endpoint::Unnamed, |s| s.peer.clone());
        kernel.record_name("peername", fd.number, &name);
        name
    }

    fn peer_process(&self, _fd: &SimFd) -> Option<Process> {
        None
    }

    fn epoll(&self) -> io::Result<SimFd> {
        let mut kernel = enter(&self.0);
        let number = kernel.open_file(What::Epoll(Epoll::default()))?;
        kernel.record("epoll", number, 0);
        Ok(kernel.fd(number))
    }

    fn epoll_add(&self, epoll: &SimFd, fd: &SimFd, token: u64, flags: i32) -> Result<(), Errno> {
        enter(&self.0).epoll_add(epoll.number, fd.number, token, flags)
    }

    fn epoll_delete(&self, epoll: &SimFd, fd: &SimFd) {
        enter(&self.0).epoll_delete(epoll.number, fd.number);
    }

    fn epoll_wait(
        &self,
        epoll: &SimFd,
        events: &mut Vec<libc::epoll_event>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        Ok(enter(&self.0).epoll_wait(epoll.number, events, timeout)?)
    }

    fn poll(&self, fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
        Ok(enter(&self.0).poll(fds, timeout)?)
    }

    fn pause(&self, _time: Duration) {
        // The simulation goes on with another loop, or with the time.
    }
}
