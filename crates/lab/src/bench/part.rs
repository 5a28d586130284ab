//! The part of a load that one of several processes makes, as given to the process.

use std::net::SocketAddr;
use std::str::FromStr;

use tidewire_load::workload::Part;

/// A part of a load, and the server that it goes to: `I/N@IP:PORT`, I from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartAt {
    pub(super) part: Part,
    pub(super) addr: SocketAddr,
}

impl FromStr for PartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<PartAt, String> {
        let read = || {
            let (part, addr) = text.split_once('@')?;
            let (number, of) = part.split_once('/')?;
            Some(PartAt {
                part: Part::new(number.parse().ok()?, of.parse().ok()?)?,
                addr: addr.parse().ok()?,
            })
        };
        read().ok_or_else(|| format!("{text:?} is not I/N@IP:PORT"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_possible_parts_are_parsed() {
        let at: PartAt = "2/6@127.0.0.1:7000".parse().unwrap();
        assert_eq!(Some(at.part), Part::new(2, 6));
        assert_eq!(at.addr.port(), 7000);
        for bad in [
            "",
            "2/6",
            "6/6@127.0.0.1:7",
            "0/0@127.0.0.1:7",
            "1@127.0.0.1:7",
            "1/2@here",
        ] {
            assert!(bad.parse::<PartAt>().is_err(), "{bad}");
        }
    }
}
