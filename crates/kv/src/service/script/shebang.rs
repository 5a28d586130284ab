//! The first line of a script that is for the server: `#!lua flags=no-writes,allow-oom`.

use tidewire_lua::FLAGS;

use crate::commands::Error;
use crate::resp::split;

/// The flags in the first line of a script or a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// The script changes no key.
    pub(super) no_writes: bool,
    /// The script may run when memory is short.
    pub(super) allow_oom: bool,
    /// The script declared flags: then the limit of memory is looked at before it begins.
    pub(super) declared: bool,
}

impl Flags {
    /// The flags of a function, which counts as declared.
    pub(super) fn of_function(flags: &[Vec<u8>]) -> Flags {
        let mut all = Flags {
            declared: true,
            ..Flags::default()
        };
        for flag in flags {
            all.add(flag);
        }
        all
    }

    /// False if no such flag exists.
    fn add(&mut self, flag: &[u8]) -> bool {
        match flag {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            // About replicas and clusters, which there are not.
            _ => return FLAGS.iter().any(|known| known.as_bytes() == flag),
        }
        true
    }
}

/// The name of a library, by its first line, whose words may stand in quotes.
///
/// # Errors
/// The error reply: the first line is missing, or malformed.
pub fn library_name(text: &[u8]) -> Result<Vec<u8>, Error> {
    read_library(text).map(|(name, _)| name)
}

/// The name of a library, and the text to load, in which the first line is empty.
///
/// # Errors
/// The error that the first line is missing, or malformed.
pub(super) fn read_library(text: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Error> {
    if !text.starts_with(b"#!") {
        return Err(Error::new("ERR Missing library metadata"));
    }
    let Some(end) = text.iter().position(|b| *b == b'\n') else {
        return Err(Error::new("ERR Invalid library metadata"));
    };
    let words = split(&text[..end]).ok_or(Error::new("ERR Invalid library metadata"))?;
    let engine = &words[0][2..];
    let mut name = None;
    for word in &words[1..] {
        let is_name = word
            .get(..5)
            .is_some_and(|begin| begin.eq_ignore_ascii_case(b"name="));
        if !is_name {
            return Err(Error::quoting(
                "ERR Invalid metadata value given: ",
                word,
                "",
            ));
        }
        if name.replace(&word[5..]).is_some() {
            return Err(Error::new(
                "ERR Invalid metadata value, name argument was given multiple times",
            ));
        }
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Error::quoting("ERR Engine '", engine, "' not found"));
    }
    let Some(name) = name else {
        return Err(Error::new("ERR Library name was not given"));
    };
    let is_letter = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    if name.is_empty() || !name.iter().all(is_letter) {
        return Err(Error::new(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ));
    }
    Ok((name.to_vec(), text[end..].to_vec()))
}

/// The flags in the first line, and the text to compile, in which that line is empty.
///
/// # Errors
/// The line is for the server and wrong.
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
            if !flags.add(flag) {
                let what = "ERR Unexpected flag in script shebang: ";
                return Err(Error::quoting(what, flag, ""));
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
