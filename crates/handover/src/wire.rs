//! Packets on a connected socket, with the sockets that travel with them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::message::{Message, Packet, VERSION};

/// Bytes of a packet.
const PACKET_MAX: usize = 64 << 10;
/// Sockets that travel with one packet; the kernel takes 253.
pub(crate) const SOCKETS_MAX: usize = 128;

/// Why the conversation is over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The other side has closed the socket.
    #[error("the other process has gone")]
    Gone,
    /// No message arrived in time.
    #[error("the other process does not answer")]
    Silent,
    /// The other side speaks another version of the protocol.
    #[error("the other process speaks version {0} of the handover, this one speaks {VERSION}")]
    Version(u64),
    /// The bytes are no valid packet, or the packet is not allowed at this point.
    #[error("the other process has sent an unexpected message: {0}")]
    Unexpected(String),
    /// The other side refuses, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The socket fails.
    #[error("the control socket: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for Broken {
    fn from(e: Errno) -> Broken {
        match e {
            // The latter where too many descriptors are on their way to processes that do not read: later there are fewer.
            Errno::AGAIN | Errno::TOOMANYREFS => Broken::Silent,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Broken::Gone,
            e => Broken::Io(e.into()),
        }
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct Wire(OwnedFd);

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wire {
    /// The wire of a connected socket whose other end must be of the same user, or
    /// of root.
    pub(crate) fn of_friend(socket: OwnedFd) -> Result<Wire, Broken> {
        // Not by rustix: a process of another namespace has the number 0 here, which that takes for an error, "Success".
        let theirs = getsockopt(&socket, sockopt::PeerCredentials);
        let theirs = theirs.map_err(io::Error::from)?.uid();
        let ours = rustix::process::geteuid().as_raw();
        if theirs != ours && theirs != 0 {
            let why =
                format!("user {theirs} is neither root nor user {ours}, the owner of this socket");
            return Err(Broken::Refused(why));
        }
        Ok(Wire(socket))
    }

    /// How long sending and receiving may take; of no effect on a socket that does not block.
    pub(crate) fn patience(&self, most: Duration) -> Result<(), Broken> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(most))?;
        set_socket_timeout(&self.0, Timeout::Send, Some(most))?;
        Ok(())
    }

    /// Receiving may take as long as the other side lives.
    pub(crate) fn wait_without_end(&self) -> Result<(), Broken> {
        set_socket_timeout(&self.0, Timeout::Recv, None)?;
        Ok(())
    }

    pub(crate) fn send(&self, message: Message, sockets: &[BorrowedFd<'_>]) -> Result<(), Broken> {
        let handover = VERSION;
        let packet = Packet { handover, message };
        let text = serde_json::to_vec(&packet).map_err(io::Error::from)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(sockets)) {
            let why = format!("{} sockets in one packet", sockets.len());
            return Err(Broken::Unexpected(why));
        }
        let parts = [IoSlice::new(&text)];
        sendmsg(&self.0, &parts, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Tries to tell the other side why the session ends.
    pub(crate) fn refuse(&self, why: &str) {
        // A peer that has gone need not know.
        let _ = self.send(Message::Refuse { why: why.into() }, &[]);
    }

    /// Sends a message, and waits for the answer. A peer that has gone may have given its reason
    /// before.
    pub(crate) fn ask(&self, message: Message) -> Result<(Message, Vec<OwnedFd>), Broken> {
        match self.send(message, &[]) {
            Ok(()) | Err(Broken::Gone) => self.receive(),
            Err(other) => Err(other),
        }
    }

    pub(crate) fn receive(&self) -> Result<(Message, Vec<OwnedFd>), Broken> {
        match self.receive_once() {
            // The other side has closed without reading everything; packets that it sent before are
            // still there.
            Err(Broken::Gone) => self.receive_once(),
            other => other,
        }
    }

    fn receive_once(&self) -> Result<(Message, Vec<OwnedFd>), Broken> {
        let mut bytes = vec![0; PACKET_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = loop {
            match recvmsg(&self.0, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut sockets = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                sockets.extend(all);
            }
        }
        if got
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            let why = "the packet is too long, or it carries more sockets than this process may open (RLIMIT_NOFILE)";
            return Err(Broken::Unexpected(why.into()));
        }
        if got.bytes == 0 {
            return Err(Broken::Gone);
        }
        parse(&bytes[..got.bytes]).map(|message| (message, sockets))
    }
}

fn parse(text: &[u8]) -> Result<Message, Broken> {
    let shown = || Broken::Unexpected(String::from_utf8_lossy(&text[..text.len().min(100)]).into());
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|_| shown())?;
    let version = value["handover"].as_u64().ok_or_else(shown)?;
    // The part that every version understands comes first.
    if let Some(why) = value["refuse"]["why"].as_str() {
        return Err(Broken::Refused(why.into()));
    }
    if version != u64::from(VERSION) {
        return Err(Broken::Version(version));
    }
    let packet: Packet = serde_json::from_value(value).map_err(|_| shown())?;
    Ok(packet.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_packet_is_an_error_that_shows_it() {
        for text in [
            "",
            "x",
            "{}",
            "[1]",
            r#"{"handover":"1"}"#,
            r#"{"handover":1}"#,
        ] {
            let wrong = parse(text.as_bytes());
            assert!(matches!(&wrong, Err(Broken::Unexpected(shown)) if shown == text));
        }
        let unknown = parse(br#"{"handover":1,"dance":{}}"#);
        assert!(matches!(unknown, Err(Broken::Unexpected(_))));
        let newer = parse(br#"{"handover":2,"hello":{}}"#);
        assert!(matches!(newer, Err(Broken::Version(2))));
        // A refusal is understood whatever version it is of.
        let refused = parse(br#"{"handover":9,"refuse":{"why":"no","since":1}}"#);
        assert!(matches!(refused, Err(Broken::Refused(why)) if why == "no"));
        let go = parse(br#"{"handover":1,"go":{}}"#);
        assert!(matches!(go, Ok(Message::Go { connections: false })));
    }
}
