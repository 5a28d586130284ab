//! The file of users: a line for each, as ACL LIST shows it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::rights::Rights;
use super::rules;
use super::users::{Acl, DEFAULT, USERS_MAX};
use crate::service::attention::Attention;

/// Bytes of a file that is read.
const BYTES_MAX: u64 = 64 << 20;

/// Why a file of users was refused. No user of the file was taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AclFileError {
    /// The file cannot be read.
    #[error("the ACL file {0}: {1}")]
    Read(PathBuf, io::Error),
    /// The settings have a password for the user `default`, and the file has others or none.
    #[error(
        "{0}: the user default does not have the password of the settings: name it in one place"
    )]
    TwoPasswords(PathBuf),
    /// A line is not one that makes a user.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The reason of the refusal; the text repeats no secret.
        why: String,
    },
}

/// The users of a text.
pub(super) type Users = Vec<(Box<[u8]>, Rights)>;

/// Reads a file of users. `all_channels` is what users begin with, and `password` what the user
/// `default` has if no line is about it.
pub(super) fn read(
    path: &Path,
    all_channels: bool,
    password: Option<&str>,
) -> Result<Users, AclFileError> {
    let failed = |error| AclFileError::Read(path.to_owned(), error);
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(failed(io::Error::other("it is longer than 64 MiB")));
    }
    let mut users: Users = Vec::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |why: &str| AclFileError::Line {
            path: path.to_owned(),
            line: at + 1,
            why: why.to_owned(),
        };
        let words = line.split(|byte| byte.is_ascii_whitespace());
        let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
        let (name, rules) = match &words[..] {
            [] => continue,
            [first, ..] if first.starts_with(b"#") => continue,
            [b"user", name, rules @ ..] => (*name, rules),
            _ => return Err(wrong("a line begins with user and its name")),
        };
        if users.iter().any(|(known, _)| **known == *name) {
            return Err(wrong("this user has a line already"));
        }
        if !rules::is_name(name) || users.len() >= USERS_MAX {
            return Err(wrong("no name, or too many users"));
        }
        let rights = rules::apply(Rights::none(all_channels), rules, all_channels);
        let rights = rights.map_err(|bad| wrong(bad.why()))?;
        users.push((name.into(), rights));
    }
    if !users.iter().any(|(name, _)| **name == *DEFAULT) {
        users.push((DEFAULT.into(), Rights::of_default(password)));
    }
    Ok(users)
}

/// Writes all users, in the place of what the file held, so that a crash leaves one or the other.
pub(super) fn write(path: &Path, acl: &Acl) -> io::Result<()> {
    let mut text = Vec::new();
    for account in acl.all() {
        text.extend_from_slice(&account.rights().line(&account.name));
        text.push(b'\n');
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = write_new(&beside, &text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
        return written;
    }
    let directory = path.parent().filter(|at| !at.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    // No other user may try words on hashes of passwords.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

impl Acl {
    /// Replaces the users by those of the file.
    pub(crate) fn load(
        &self,
        password: Option<&str>,
        attention: &Attention,
    ) -> Result<(), AclFileError> {
        let Some(path) = self.file.get() else {
            return Ok(());
        };
        let _alone = self.begin_change();
        let all_channels = self.all_channels.load(std::sync::atomic::Ordering::Relaxed);
        let users = read(path, all_channels, password)?;
        self.replace(users, attention);
        Ok(())
    }

    /// Whether the user `default` has this password, and no other way in.
    pub(crate) fn default_has(&self, password: &str) -> bool {
        !self.has_no_password() && self.authenticate(DEFAULT, password.as_bytes()).is_some()
    }
}
