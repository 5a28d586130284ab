//! The first line of a script that is for the server: `#!lua flags=no-writes,allow-oom`.

use crate::commands::Error;

/// What a script says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// It changes no key.
    pub(super) no_writes: bool,
    /// It may run when memory is short.
    pub(super) allow_oom: bool,
    /// It said anything: then the limit of memory is looked at before it begins.
    pub(super) declared: bool,
}

/// What the first line says, and the text to compile, in which that line is empty.
///
/// # Errors
/// It is for the server and wrong.
pub(super) fn read(text: &[u8]) -> Result<(Flags, Vec<u8>), Error> {
    if !text.starts_with(b"#!") {
        return Ok((Flags::default(), text.to_vec()));
    }
    let Some(end) = text.iter().position(|b| *b == b'\n') else {
        return Err(Error::new("ERR Invalid script shebang"));
    };
    let mut words = text[..end]
        .split(|b| b.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(Error::quoting(
            "ERR Unexpected engine in script shebang: ",
            engine,
            "",
        ));
    }
    let mut flags = Flags {
        declared: true,
        ..Flags::default()
    };
    for word in words {
        let Some(list) = word.strip_prefix(b"flags=") else {
            return Err(Error::quoting("ERR Unknown lua shebang option: ", word, ""));
        };
        for flag in list.split(|b| *b == b',').filter(|flag| !flag.is_empty()) {
            match flag {
                b"no-writes" => flags.no_writes = true,
                b"allow-oom" => flags.allow_oom = true,
                b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
                _ => {
                    let what = "ERR Unexpected flag in script shebang: ";
                    return Err(Error::quoting(what, flag, ""));
                }
            }
        }
    }
    Ok((flags, text[end..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_is_read_and_the_others_keep_their_numbers() {
        let (flags, text) = read(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert!(flags.no_writes && flags.allow_oom && flags.declared);
        assert_eq!(text, b"\nreturn 1");
        assert_eq!(read(b"return 1").unwrap().0, Flags::default());
        for bad in ["#!lua", "#!js\n1", "#!lua name=x\n1", "#!lua flags=nope\n1"] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
