//! Sockets: connections come, bytes go, connections end.

use std::io::IoSlice;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::sim::kernel::files::{FileId, Listener, Stream, What};
use crate::sim::kernel::{Kernel, Port, SimFd};
use crate::sim::net::{
    End, Listener as Address, News, Notice, Owner, Place, Read, Status, Written, near,
};
use crate::vocabulary::endpoint::Endpoint;

/// Flags as poll(2) and epoll(7) share them.
pub(super) const IN: i32 = libc::EPOLLIN;
pub(super) const OUT: i32 = libc::EPOLLOUT;
pub(super) const ERR: i32 = libc::EPOLLERR;
pub(super) const HUP: i32 = libc::EPOLLHUP;
pub(super) const RDHUP: i32 = libc::EPOLLRDHUP;
/// Whatever has changed.
pub(super) const ANY: i32 = 0;

/// Why accepting fails now and then.
const ACCEPT_FAILS: [Errno; 6] = [
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOBUFS,
    Errno::NOMEM,
    Errno::PERM,
    Errno::PROTO,
];

impl Kernel {
    // ---- Listening ----

    /// A listener at this place. Several at one take turns, as the seed has it.
    pub(crate) fn listen(&mut self, at: &Endpoint) -> SimFd {
        let number = self.files.open(What::Listener(Listener {
            at: at.clone(),
            backlog: std::collections::VecDeque::new(),
            broken: false,
            filters: false,
        }));
        let id = self.files.id(number).expect("just opened");
        let port = self.ports.iter().position(|p| p.at == *at);
        let port = port.unwrap_or_else(|| {
            self.ports.push(Port {
                at: at.clone(),
                listeners: Vec::new(),
            });
            self.ports.len() - 1
        });
        self.ports[port].listeners.push(id);
        let address = Address {
            actor: self.actor,
            number: port as u32,
            backlog: usize::MAX,
        };
        self.net.listen(at.clone(), address);
        self.record("listen", number, 0);
        self.fd(number)
    }

    /// Drops the listener at this place.
    pub(crate) fn nobody_listens(&mut self, at: &Endpoint) {
        for port in self.ports.iter_mut().filter(|p| p.at == *at) {
            port.listeners.clear();
        }
        self.net.stop_listening_at(at);
    }

    /// No client begins to connect any more at this listener's place, once that is so for all
    /// listeners there; returns whether a client may be on its way into a queue.
    pub(super) fn begin_no_more(&mut self, number: RawFd) -> bool {
        let Some(id) = self.files.id(number) else {
            self.wrong(format!("the listener {number} is closed"));
            return false;
        };
        self.record("filter", number, 0);
        if let What::Listener(listener) = &mut self.files.get(id).what {
            listener.filters = true;
        }
        let Some(port) = self.ports.iter().position(|p| p.listeners.contains(&id)) else {
            return false;
        };
        let there = self.ports[port].listeners.clone();
        let filters = |id: FileId| match &self.files.get(id).what {
            What::Listener(listener) => listener.filters,
            _ => true,
        };
        let filtered: Vec<bool> = there.into_iter().map(filters).collect();
        if filtered.iter().all(|filters| *filters) {
            self.net.turn_deaf(&self.ports[port].at);
        }
        self.faults.slow_handshakes
    }

    /// A connection has come in.
    fn arrived(&mut self, end: End, port: u32, from: Endpoint) {
        let most = self.faults.backlog;
        let mut with_room = Vec::new();
        for &id in &self.ports[port as usize].listeners {
            if let What::Listener(listener) = &self.files.get(id).what
                && listener.backlog.len() < most
                && !listener.broken
            {
                with_room.push(id);
            }
        }
        if with_room.is_empty() {
            return self.net.close(end, true);
        }
        let id = with_room[self.rng.below(with_room.len() as u64) as usize];
        if let What::Listener(listener) = &mut self.files.get(id).what {
            listener.backlog.push_back((end, from));
        }
        self.wake(id, IN);
    }

    pub(super) fn accept(&mut self, number: RawFd) -> Result<(RawFd, Endpoint), Errno> {
        let accepted = self.accept_one(number);
        let result = accepted.as_ref().map_or_else(
            |e| -i64::from(e.raw_os_error()),
            |(accepted, _)| (*accepted).into(),
        );
        self.record("accept", number, result);
        accepted
    }

    fn accept_one(&mut self, number: RawFd) -> Result<(RawFd, Endpoint), Errno> {
        let Some(id) = self.files.id(number) else {
            self.wrong(format!("accepting on {number}, which is closed"));
            return Err(Errno::BADF);
        };
        self.accept_from(id)
    }

    /// Takes a connection from the queue of a listener.
    pub(super) fn accept_from(&mut self, id: FileId) -> Result<(RawFd, Endpoint), Errno> {
        let (fails, aborts) = (
            self.faults.accept_fails_one_in,
            self.faults.accept_aborts_one_in,
        );
        let (fails, aborts) = (self.chance(fails), self.chance(aborts));
        let why = self.rng.below(ACCEPT_FAILS.len() as u64) as usize;
        let full = self.files.open_numbers().count() >= self.faults.descriptors_max;
        let What::Listener(listener) = &mut self.files.get(id).what else {
            return Err(Errno::INVAL);
        };
        if listener.broken {
            return Err(Errno::INVAL);
        }
        if listener.backlog.is_empty() {
            return Err(Errno::AGAIN);
        }
        if fails {
            return Err(ACCEPT_FAILS[why]);
        }
        if aborts && let Some((end, _)) = listener.backlog.pop_front() {
            self.net.close(end, true);
            return Err(Errno::CONNABORTED);
        }
        if full {
            return Err(Errno::MFILE);
        }
        let (end, peer) = listener.backlog.pop_front().expect("looked at above");
        let broken = matches!(self.net.status(end), Status::Broken(_));
        let number = self.files.open(What::Stream(Stream {
            end,
            peer: peer.clone(),
            connecting: false,
            error: broken.then_some(Errno::CONNRESET),
            broken,
            reset_on_close: false,
            shut: false,
            nonblocking: true,
        }));
        let id = self.files.id(number).expect("just opened");
        let owner = self.owner(id);
        self.net.accept(end, owner);
        Ok((number, peer))
    }

    fn owner(&mut self, id: FileId) -> Owner {
        Owner {
            actor: self.actor,
            conn: id.0,
            generation: self.files.get(id).generation,
        }
    }

    // ---- Connecting ----

    pub(super) fn connect(
        &mut self,
        to: &Endpoint,
        from: Option<Endpoint>,
    ) -> Result<RawFd, Errno> {
        const FAILS: [Errno; 4] = [
            Errno::ADDRNOTAVAIL,
            Errno::NETUNREACH,
            Errno::NOBUFS,
            Errno::MFILE,
        ];
        let one_in = self.faults.connect_fails_one_in;
        if self.chance(one_in) {
            let why = FAILS[self.rng.below(FAILS.len() as u64) as usize];
            self.record("connect", 0, -i64::from(why.raw_os_error()));
            return Err(why);
        }
        if !to.is_tcp()
            && let Some(why) = self.turned_away(to)
        {
            self.record("connect", 0, -i64::from(why.raw_os_error()));
            return Err(why);
        }
        self.last_port = self.last_port.wrapping_add(1).max(1024);
        let port = self.last_port;
        let from = match (from.and_then(|from| from.tcp()), to) {
            (Some(from), _) if from.port() > 0 => from.into(),
            (Some(from), _) => (from.ip(), port).into(),
            (None, to) => near(to, 0, port),
        };
        let number = self.open_file(What::Event { readable: false })?;
        let id = self.files.id(number).expect("just opened");
        let owner = self.owner(id);
        let end = self.net.connect(owner, from, to.clone());
        self.files.get(id).what = What::Stream(Stream {
            end,
            peer: to.clone(),
            connecting: true,
            error: None,
            broken: false,
            reset_on_close: false,
            shut: false,
            nonblocking: true,
        });
        self.record("connect", number, 0);
        Ok(number)
    }

    /// Why a Unix socket cannot be reached: it is connected at once, or not at all.
    fn turned_away(&self, to: &Endpoint) -> Option<Errno> {
        match self.net.place(to) {
            Place::Room => None,
            Place::Full => Some(Errno::AGAIN),
            Place::Nobody { ever: false } if to.path().is_some() => Some(Errno::NOENT),
            Place::Nobody { .. } => Some(Errno::CONNREFUSED),
        }
    }

    // ---- Bytes ----

    pub(super) fn recv(&mut self, number: RawFd, into: &mut [u8]) -> Result<usize, Errno> {
        let got = match self.files.id(number) {
            _ if self.interrupted() => Err(Errno::INTR),
            Some(id) => self.recv_from(id, into),
            None => {
                self.wrong(format!("receiving from {number}, which is closed"));
                Err(Errno::BADF)
            }
        };
        self.record("recv", number, result(got));
        got
    }

    pub(super) fn recv_from(&mut self, id: FileId, into: &mut [u8]) -> Result<usize, Errno> {
        let Some(stream) = self.stream_of(id) else {
            return Err(Errno::NOTSOCK);
        };
        if stream.connecting {
            return Err(Errno::AGAIN);
        }
        let (end, broken) = (stream.end, stream.broken);
        if !broken {
            self.bytes_fail()?;
        }
        match self.net.read(end, into) {
            Read::Got(n) => {
                // Linux returns all bytes that are there. The bytes that are held back count as
                // just arrived, so they are a new event.
                if n < into.len() && self.net.unread(end) > 0 {
                    self.wake(id, IN);
                }
                self.hear();
                Ok(n)
            }
            Read::Nothing => Err(Errno::AGAIN),
            Read::End => Ok(0),
            Read::Broken(_) => {
                let stream = self.stream_of(id).expect("looked at above");
                let taken = std::mem::replace(&mut stream.broken, true);
                let error = match taken {
                    true => stream.error.take(),
                    false => Some(Errno::CONNRESET),
                };
                error.map_or(Ok(0), Err)
            }
        }
    }

    pub(super) fn send(&mut self, number: RawFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let sent = match self.files.id(number) {
            _ if self.interrupted() => Err(Errno::INTR),
            Some(id) => self.send_to(id, slices),
            None => {
                self.wrong(format!("sending to {number}, which is closed"));
                Err(Errno::BADF)
            }
        };
        self.record("send", number, result(sent));
        sent
    }

    pub(super) fn send_to(&mut self, id: FileId, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let Some(stream) = self.stream_of(id) else {
            return Err(Errno::NOTSOCK);
        };
        let (end, shut, connecting) = (stream.end, stream.shut, stream.connecting);
        if shut || connecting {
            let when = if shut {
                "after the end of output"
            } else {
                "before it is connected"
            };
            self.wrong(format!("sending to stream {} {when}", end.stream));
            return Err(Errno::PIPE);
        }
        if slices.iter().all(|s| s.is_empty()) {
            self.wrong(format!("sending nothing to stream {}", end.stream));
            return Ok(0);
        }
        self.bytes_fail()?;
        match self.net.write(end, slices) {
            Written::Took(n) => {
                self.hear();
                Ok(n)
            }
            Written::Blocked => Err(Errno::AGAIN),
            Written::Broken(_) => {
                let stream = self.stream_of(id).expect("looked at above");
                stream.broken = true;
                Err(stream.error.take().unwrap_or(Errno::PIPE))
            }
        }
    }

    /// Whether there is no memory for this call.
    fn bytes_fail(&mut self) -> Result<(), Errno> {
        let one_in = self.faults.bytes_fail_one_in;
        match self.chance(one_in) {
            true => Err(Errno::NOMEM),
            false => Ok(()),
        }
    }

    pub(super) fn shut_write(&mut self, number: RawFd) -> Result<(), Errno> {
        let Some(id) = self.files.id(number) else {
            self.wrong(format!("half-closing {number}, which is closed"));
            return Err(Errno::BADF);
        };
        self.record("shutdown", number, 0);
        self.shut_file(id)
    }

    pub(super) fn shut_file(&mut self, id: FileId) -> Result<(), Errno> {
        let stream = self.stream_of(id).ok_or(Errno::NOTSOCK)?;
        if stream.connecting || stream.broken {
            return Err(Errno::NOTCONN);
        }
        stream.shut = true;
        let end = stream.end;
        self.net.finish(end);
        self.wake(id, ANY);
        self.hear();
        Ok(())
    }

    // ---- What is known of a stream ----

    pub(super) fn stream(&mut self, number: RawFd) -> Option<&mut Stream> {
        let id = self.files.id(number)?;
        self.stream_of(id)
    }

    pub(super) fn stream_of(&mut self, id: FileId) -> Option<&mut Stream> {
        match &mut self.files.find(id)?.what {
            What::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(super) fn unread(&mut self, number: RawFd) -> Result<usize, Errno> {
        let end = self.stream(number).ok_or(Errno::BADF)?.end;
        let unread = self.net.unread(end);
        self.record("unread", number, unread as i64);
        Ok(unread)
    }

    pub(super) fn untaken(&mut self, number: RawFd) -> Result<usize, Errno> {
        let end = self.stream(number).ok_or(Errno::BADF)?.end;
        let untaken = self.net.untaken(end);
        self.record("untaken", number, untaken as i64);
        Ok(untaken)
    }

    /// The events of a file, as poll(2) reports them.
    pub(super) fn mask(&mut self, id: FileId) -> i32 {
        let Some(file) = self.files.find(id) else {
            return 0;
        };
        let stream = match &file.what {
            What::Listener(l) => {
                let ready = !l.backlog.is_empty() || l.broken;
                return if ready { IN } else { 0 };
            }
            What::Timer(timer) => return if timer.rung { IN } else { 0 },
            What::Event { readable } => return if *readable { IN | OUT } else { OUT },
            What::Epoll(_) => return 0,
            What::Stream(stream) if stream.connecting => return 0,
            What::Stream(stream) => stream,
        };
        let ended = stream.broken || self.net.status(stream.end) != Status::Fine;
        [
            (IN, ended || self.net.unread(stream.end) > 0),
            (RDHUP, ended),
            (
                HUP,
                stream.broken || ended && stream.shut || self.net.is_hung_up(stream.end),
            ),
            (ERR, stream.error.is_some()),
            (
                OUT,
                stream.broken || stream.shut || self.net.takes(stream.end),
            ),
        ]
        .into_iter()
        .fold(0, |mask, (flag, on)| mask | if on { flag } else { 0 })
    }

    // ---- News ----

    /// Takes the news that have arrived from the network.
    pub(super) fn hear(&mut self) {
        while let Some(notice) = self.net.inboxes[self.actor].pop_front() {
            match notice {
                Notice::Accept {
                    end,
                    listener,
                    from,
                } => self.arrived(end, listener.number, from),
                Notice::End {
                    conn,
                    generation,
                    news,
                } => {
                    let id = FileId(conn);
                    let file = self.files.find(id);
                    if file.is_some_and(|file| file.generation == generation) {
                        self.news(id, news);
                    }
                }
            }
        }
    }

    fn news(&mut self, id: FileId, news: News) {
        const REFUSED: [Errno; 3] = [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH];
        let drawn = match self.faults.odd_errors {
            true => self.rng.below(REFUSED.len() as u64) as usize,
            false => 0,
        };
        let Some(stream) = self.stream_of(id) else {
            return;
        };
        let end = stream.end;
        match news {
            News::Connected => {
                stream.connecting = false;
                self.wake(id, OUT);
            }
            News::Refused => {
                stream.connecting = false;
                stream.broken = true;
                stream.error = Some(REFUSED[drawn]);
                self.wake(id, ANY);
            }
            News::Writable => self.wake(id, OUT),
            News::Readable => match self.net.status(end) {
                Status::Fine => self.wake(id, IN),
                Status::Ended => self.wake(id, ANY),
                Status::Broken(_) => {
                    let stream = self.stream_of(id).expect("looked at above");
                    stream.connecting = false;
                    if !std::mem::replace(&mut stream.broken, true) {
                        let errors = [Errno::CONNRESET, Errno::TIMEDOUT, Errno::CONNRESET];
                        stream.error = Some(errors[drawn]);
                    }
                    self.wake(id, ANY);
                }
            },
        }
    }

    // ---- Ends ----

    pub(super) fn reset_on_close(&mut self, number: RawFd) {
        self.record("linger", number, 0);
        if let Some(id) = self.files.id(number) {
            self.set_reset_on_close(id);
        }
    }

    pub(super) fn set_reset_on_close(&mut self, id: FileId) {
        if let Some(stream) = self.stream_of(id) {
            stream.reset_on_close = true;
        }
    }

    /// Forgets a number, and the file if nothing else refers to it.
    pub(super) fn close(&mut self, number: RawFd) {
        let Some(id) = self.files.forget(number) else {
            return self.wrong(format!("closing {number}, which is closed"));
        };
        self.record("close", number, 0);
        self.closed_under_operations(id, number);
        self.release(id);
    }

    /// Drops one reference to a file.
    pub(super) fn release(&mut self, id: FileId) {
        let Some(file) = self.files.release(id) else {
            return;
        };
        for watcher in &file.watchers {
            self.forget_ready(watcher.epoll, id);
        }
        match file.what {
            What::Stream(stream) => {
                self.net.close(stream.end, stream.reset_on_close);
                self.hear();
            }
            What::Listener(listener) => {
                for (end, _) in listener.backlog {
                    self.net.close(end, true);
                }
                for port in &mut self.ports {
                    port.listeners.retain(|listener| *listener != id);
                    if port.at == listener.at && port.listeners.is_empty() {
                        self.net.stop_listening_at(&port.at);
                    }
                }
            }
            What::Epoll(_) => self.files.unwatched_by(id),
            What::Timer(_) => self.timers.retain(|timer| *timer != id),
            What::Event { .. } => {}
        }
    }

    pub(super) fn set_event(&mut self, number: RawFd, on: bool) {
        self.record(if on { "notify" } else { "clear" }, number, 0);
        let Some(id) = self.files.id(number) else {
            return self.wrong(format!("the event {number} is closed"));
        };
        if let What::Event { readable } = &mut self.files.get(id).what {
            *readable = on;
        }
        if on {
            self.wake(id, IN);
        }
    }
}

/// A call's result in the form that the kernel gives.
pub(super) fn result(got: Result<usize, Errno>) -> i64 {
    got.map_or_else(|e| -i64::from(e.raw_os_error()), |n| n as i64)
}
