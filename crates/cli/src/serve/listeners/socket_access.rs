//! Which users may connect to a listening Unix socket: `?mode=0660&owner=USER:GROUP` behind its
//! path.

use std::fmt;

use nix::unistd::{Group, User};
use tidewire::Listen;

/// Mode and owner of a socket's file; parts that are not given are the system's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketAccess {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl SocketAccess {
    /// Takes the part behind `?` off the text of a Unix socket.
    pub(crate) fn split(text: &str) -> Result<(&str, SocketAccess), String> {
        let mut access = SocketAccess::default();
        let Some((place, asked)) = text.split_once('?') else {
            return Ok((text, access));
        };
        if !place.starts_with("unix:/") {
            return Err(format!(
                "{text:?}: only a Unix socket with a path has a mode and an owner"
            ));
        }
        for pair in asked.split('&') {
            match pair.split_once('=') {
                Some(("mode", mode)) => access.set_mode(mode)?,
                Some(("owner", owner)) => access.set_owner(owner)?,
                _ => {
                    return Err(format!(
                        "{pair:?}: mode=0660 or owner=USER:GROUP, with & in between"
                    ));
                }
            }
        }
        Ok((place, access))
    }

    /// Sets the mode, given in octal digits.
    pub(crate) fn set_mode(&mut self, text: &str) -> Result<(), String> {
        let mode = u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777);
        let what = || format!("{text:?} is no mode of a socket: write octal digits such as 0660");
        self.mode = Some(mode.ok_or_else(what)?);
        Ok(())
    }

    /// `USER`, `USER:GROUP` or `:GROUP`; names or numbers.
    pub(crate) fn set_owner(&mut self, text: &str) -> Result<(), String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        if user.is_empty() && group.is_empty() {
            return Err(format!("{text:?} is no owner: USER, USER:GROUP or :GROUP"));
        }
        let find = |name: &str, of: fn(&str) -> nix::Result<Option<u32>>, what: &str| {
            if name.is_empty() {
                return Ok(None);
            }
            match name.parse() {
                // To the kernel, this number means that user and group stay as they are.
                Ok(u32::MAX) => {
                    return Err(format!("{name} is no {what}: the number is too large"));
                }
                Ok(number) => return Ok(Some(number)),
                Err(_) => {}
            }
            match of(name) {
                Ok(Some(number)) => Ok(Some(number)),
                Ok(None) => Err(format!("there is no {what} {name:?} on this machine")),
                Err(e) => Err(format!("cannot find the {what} {name:?}: {e}")),
            }
        };
        let user_of = |name: &str| Ok(User::from_name(name)?.map(|user| user.uid.as_raw()));
        let group_of = |name: &str| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
        self.uid = find(user, user_of, "user")?;
        self.gid = find(group, group_of, "group")?;
        Ok(())
    }

    pub(crate) fn is_some(&self) -> bool {
        *self != SocketAccess::default()
    }

    /// A listener with this mode and owner.
    pub(crate) fn of(self, listen: Listen) -> Listen {
        let listen = match self.mode {
            Some(mode) => listen.mode(mode),
            None => listen,
        };
        match (self.uid, self.gid) {
            (None, None) => listen,
            (uid, gid) => listen.owner(uid, gid),
        }
    }
}

/// Formats the access in the form in which it is parsed.
impl fmt::Display for SocketAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: Option<u32>| id.map_or(String::new(), |id| id.to_string());
        let mode = self.mode.map(|mode| format!("mode={mode:04o}"));
        let owner = match (self.uid, self.gid) {
            (None, None) => None,
            (uid, None) => Some(format!("owner={}", id(uid))),
            (uid, gid) => Some(format!("owner={}:{}", id(uid), id(gid))),
        };
        let all: Vec<String> = mode.into_iter().chain(owner).collect();
        f.write_str(&all.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written() {
        for (text, shown) in [
            ("mode=0660", "mode=0660"),
            ("mode=600&owner=7:8", "mode=0600&owner=7:8"),
            ("owner=:8", "owner=:8"),
            ("owner=root:root", "owner=0:0"),
            ("owner=root&mode=777", "mode=0777&owner=0"),
        ] {
            let whole = format!("unix:/run/x.sock?{text}");
            let (place, access) = SocketAccess::split(&whole).unwrap();
            assert_eq!(
                (place, access.to_string().as_str()),
                ("unix:/run/x.sock", shown)
            );
        }
        assert!(!SocketAccess::split("127.0.0.1:1").unwrap().1.is_some());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("unix:/x?mode=0999", "no mode"),
            ("unix:/x?mode=1777", "no mode"),
            ("unix:/x?mode=", "no mode"),
            ("unix:/x?owner=:", "no owner"),
            ("unix:/x?owner=4294967295", "no user"),
            ("unix:/x?owner=0:4294967295", "no group"),
            ("unix:/x?owner=nobody-of-that-name", "no user"),
            ("unix:/x?owner=root:nobody-of-that-name", "no group"),
            ("unix:/x?size=3", "mode=0660"),
            ("unix:@x?mode=0600", "with a path"),
            ("127.0.0.1:80?mode=0600", "with a path"),
        ] {
            let e = SocketAccess::split(text).unwrap_err();
            assert!(e.contains(said), "{text}: {e}");
        }
    }
}
