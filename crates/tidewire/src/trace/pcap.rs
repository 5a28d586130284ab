//! A connection as a capture that Wireshark and tcpdump open: raw IP packets, made up from what was said.
//!
//! The file is as draft-ietf-opsawg-pcap has it, with nanoseconds and the link type `LINKTYPE_RAW`; packets
//! are as RFC 791, RFC 8200 and RFC 9293 have them, with checksums.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::vocabulary::endpoint::Endpoint;

/// The file header: magic number for nanoseconds, version 2.4, two unused fields, the longest packet, the link
/// type.
pub(crate) const HEADER: [u8; 24] = {
    let words: [u32; 6] = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, LINKTYPE_RAW];
    let mut bytes = [0; 24];
    let mut at = 0;
    while at < 24 {
        bytes[at] = words[at / 4].to_le_bytes()[at % 4];
        at += 1;
    }
    bytes
};

/// Link type "raw": a packet begins with its IP header, whose first four bits name the version.
const LINKTYPE_RAW: u32 = 101;
const TCP: u8 = 6;
/// Most bytes of payload in a packet.
const PAYLOAD_MAX: usize = 60_000;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// The two sides of a connection, of which side 0 has connected.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    ends: [SocketAddr; 2],
    /// The sequence number that each side sends next.
    next: [u32; 2],
}

impl Flow {
    /// `number` tells connections apart whose ends have no address.
    pub(crate) fn new(from: &Endpoint, to: &Endpoint, number: u32) -> Flow {
        let named = |end: &Endpoint, port: u16| {
            let nameless = (Ipv4Addr::LOCALHOST, port).into();
            end.tcp().unwrap_or(nameless)
        };
        let port = 1024 + (number % 60_000) as u16;
        Flow {
            ends: [named(from, port), named(to, 1)],
            next: [0; 2],
        }
    }

    /// Adds what `side` sends to `out`: a packet with these flags, or as many as the payload takes.
    pub(crate) fn send(
        &mut self,
        out: &mut Vec<u8>,
        at: Duration,
        side: u8,
        flags: u8,
        payload: &[u8],
    ) {
        if payload.is_empty() {
            return self.packet(out, at, side, flags, payload);
        }
        for piece in payload.chunks(PAYLOAD_MAX) {
            self.packet(out, at, side, flags | PSH, piece);
        }
    }

    fn packet(&mut self, out: &mut Vec<u8>, at: Duration, side: u8, flags: u8, payload: &[u8]) {
        let (side, other) = (usize::from(side), 1 - usize::from(side));
        let mut tcp = Vec::with_capacity(20 + payload.len());
        for end in [side, other] {
            tcp.extend_from_slice(&self.ends[end].port().to_be_bytes());
        }
        tcp.extend_from_slice(&self.next[side].to_be_bytes());
        let seen = if flags & ACK > 0 { self.next[other] } else { 0 };
        tcp.extend_from_slice(&seen.to_be_bytes());
        // The header has five words; then a window that is always open, the checksum (0 for now),
        // and no urgent data.
        tcp.extend_from_slice(&[5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend_from_slice(payload);
        let counted = payload.len() as u32 + u32::from(flags & (SYN | FIN) > 0);
        self.next[side] = self.next[side].wrapping_add(counted);
        let ip = ip(self.ends[side].ip(), self.ends[other].ip(), &mut tcp);
        let len = (ip.len() + tcp.len()) as u32;
        for word in [at.as_secs() as u32, at.subsec_nanos(), len, len] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&ip);
        out.extend_from_slice(&tcp);
    }
}

/// The IP header of a segment, whose checksum it fills in.
fn ip(from: IpAddr, to: IpAddr, tcp: &mut [u8]) -> Vec<u8> {
    let len = tcp.len() as u16;
    let (header, pseudo) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            let mut header = vec![0x45, 0];
            header.extend_from_slice(&(20 + len).to_be_bytes());
            // No fragments; 64 hops.
            header.extend_from_slice(&[0, 0, 0x40, 0, 64, TCP, 0, 0]);
            header.extend_from_slice(&addresses);
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (header, addresses)
        }
        (from, to) => {
            let v6 = |ip| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let addresses = [v6(from), v6(to)].concat();
            let mut header = vec![0x60, 0, 0, 0];
            header.extend_from_slice(&len.to_be_bytes());
            header.extend_from_slice(&[TCP, 64]);
            header.extend_from_slice(&addresses);
            (header, addresses)
        }
    };
    let [high, low] = len.to_be_bytes();
    let sum = checksum(&[&pseudo, &[0, TCP, high, low], tcp]);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    header
}

/// The checksum of RFC 1071. All parts but the last have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        let (pairs, odd) = part.as_chunks::<2>();
        sum += pairs
            .iter()
            .map(|p| u32::from(u16::from_be_bytes(*p)))
            .sum::<u32>();
        sum += odd.iter().map(|b| u32::from(*b) << 8).sum::<u32>();
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum that RFC 1071 computes in its section 3.
    #[test]
    fn the_checksum_is_that_of_its_document() {
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&[&example]), !0xddf2);
        assert_eq!(checksum(&[&example[..4], &example[4..]]), !0xddf2);
    }

    #[test]
    fn a_packet_to_the_byte() {
        let mut flow = Flow::new(
            &([10, 0, 0, 1], 1024).into(),
            &([10, 0, 0, 2], 80).into(),
            0,
        );
        let mut out = Vec::new();
        let at = Duration::new(3, 7);
        flow.send(&mut out, at, 0, SYN, b"");
        flow.send(&mut out, at, 1, SYN | ACK, b"");
        let third = out.len();
        flow.send(&mut out, at, 0, ACK, b"abc");
        #[rustfmt::skip]
        let expected = [
            3, 0, 0, 0, 7, 0, 0, 0, 43, 0, 0, 0, 43, 0, 0, 0,
            0x45, 0, 0, 43, 0, 0, 0x40, 0, 64, 6, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2,
            4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0xd3, 0x12, 0, 0,
            b'a', b'b', b'c',
        ];
        assert_eq!(out[third..], expected);
        // A packet's sum with its checksum is zero.
        let tcp = &out[third + 36..];
        let pseudo = [10, 0, 0, 1, 10, 0, 0, 2, 0, TCP, 0, tcp.len() as u8];
        assert_eq!(checksum(&[&pseudo, tcp]), 0);
    }
}
