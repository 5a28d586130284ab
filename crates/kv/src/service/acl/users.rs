//! All users, and how a change of one reaches its connections.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use super::log::Log;
use super::password::Hash;
use super::rights::Rights;
use crate::service::attention::Attention;

/// Users that there may be.
pub(super) const USERS_MAX: usize = 10_000;

/// Memory that the names, rules and passwords of all users may take at first, as ACL SETUSER makes them; bytes.
const BYTES_MAX: usize = 64 << 20;

/// Bytes that a user takes beside its name and rights.
const EACH: usize = 256;

/// Why a user cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There are as many as there may be.
    Users,
    /// The users take as much memory as they may take.
    Memory,
}

/// The user of every connection at first.
pub(super) const DEFAULT: &[u8] = b"default";

/// A user; connections share the account of their user.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) name: Box<[u8]>,
    rights: RwLock<Arc<Rights>>,
    gone: AtomicBool,
}

impl Account {
    fn new(name: &[u8], rights: Rights) -> Arc<Account> {
        Arc::new(Account {
            name: name.into(),
            rights: RwLock::new(Arc::new(rights)),
            gone: AtomicBool::new(false),
        })
    }

    /// The user's present rights.
    pub(crate) fn rights(&self) -> Arc<Rights> {
        let rights = self.rights.read();
        rights.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the user was deleted: its connections may run no command.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    fn set(&self, rights: Rights) {
        let mut held = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(rights);
    }

    /// Bytes of memory that the account takes, about.
    fn bytes(&self) -> usize {
        EACH + self.name.len() + self.rights().bytes()
    }
}

type Accounts = BTreeMap<Box<[u8]>, Arc<Account>>;

/// The default user needs no password.
const OPEN: u8 = 1;
/// Any password would do for it, or would if it were on.
const NOPASS: u8 = 2;
/// The user may do everything.
const UNRESTRICTED: u8 = 4;

/// All users, and the files and log beside them.
#[derive(Debug)]
pub(crate) struct Acl {
    accounts: RwLock<Accounts>,
    default: Arc<Account>,
    /// Bytes of all accounts.
    bytes: AtomicUsize,
    /// The properties of the default user that every new connection needs.
    default_is: AtomicU8,
    /// The lock is held during a change, so that changes come one after the other.
    changing: Mutex<()>,
    pub(crate) log: Log,
    /// New users may hear all channels.
    pub(crate) all_channels: AtomicBool,
    pub(crate) log_max: AtomicUsize,
    /// Memory that all users may take, `acl-users-memory-limit`; bytes.
    pub(crate) bytes_max: AtomicUsize,
    /// The file in which users are kept, if any.
    pub(crate) file: OnceLock<PathBuf>,
}

impl Acl {
    /// The user `default` alone, with this password.
    pub(crate) fn new(password: Option<&str>) -> Acl {
        let default = Account::new(DEFAULT, Rights::of_default(password));
        let acl = Acl {
            bytes: AtomicUsize::new(default.bytes()),
            accounts: RwLock::new([(default.name.clone(), default.clone())].into()),
            default,
            default_is: AtomicU8::new(0),
            changing: Mutex::default(),
            log: Log::default(),
            all_channels: AtomicBool::new(false),
            log_max: AtomicUsize::new(128),
            bytes_max: AtomicUsize::new(BYTES_MAX),
            file: OnceLock::new(),
        };
        acl.note_default();
        acl
    }

    /// The user of a connection at first.
    pub(crate) fn default_account(&self) -> &Arc<Account> {
        &self.default
    }

    fn default_is(&self, what: u8) -> bool {
        self.default_is.load(Relaxed) & what == what
    }

    /// Whether a connection has to log in.
    pub(crate) fn needs_password(&self) -> bool {
        !self.default_is(OPEN)
    }

    /// Whether no password is set.
    pub(crate) fn has_no_password(&self) -> bool {
        self.default_is(NOPASS)
    }

    /// Whether every client may do everything without a password.
    pub(crate) fn is_open(&self) -> bool {
        self.default_is(OPEN | UNRESTRICTED)
    }

    fn note_default(&self) {
        let rights = self.default.rights();
        let flag = |yes: bool, flag: u8| if yes { flag } else { 0 };
        let is = flag(rights.is_open(), OPEN)
            | flag(rights.nopass, NOPASS)
            | flag(rights.is_unrestricted(), UNRESTRICTED);
        self.default_is.store(is, Relaxed);
    }

    fn accounts(&self) -> std::sync::RwLockReadGuard<'_, Accounts> {
        self.accounts.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Account>> {
        self.accounts().get(name).cloned()
    }

    /// All users in the order of their names.
    pub(super) fn all(&self) -> Vec<Arc<Account>> {
        self.accounts().values().cloned().collect()
    }

    /// The user that has this name and password, and may be logged in to.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<Account>> {
        let given = Hash::of(password);
        self.find(name)
            .filter(|account| account.rights().accepts(given))
    }

    /// Keeps other connections from changing users meanwhile.
    pub(super) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of memory that all users take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Creates a user, or gives an existing one other rights.
    ///
    /// # Errors
    /// There are too many users, or they take too much memory; nothing has changed.
    pub(super) fn put(
        &self,
        name: &[u8],
        rights: Rights,
        attention: &Attention,
    ) -> Result<(), Refused> {
        let known = self.find(name);
        let before = known.as_ref().map_or(0, |account| account.bytes());
        let after = EACH + name.len() + rights.bytes();
        // A change that takes less memory than before is always accepted.
        if after > before && self.bytes() - before + after > self.bytes_max.load(Relaxed) {
            return Err(Refused::Memory);
        }
        match known {
            Some(account) => account.set(rights),
            None => {
                let mut accounts = self
                    .accounts
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                if accounts.len() >= USERS_MAX {
                    return Err(Refused::Users);
                }
                accounts.insert(name.into(), Account::new(name, rights));
            }
        }
        self.bytes.fetch_add(after, Relaxed);
        self.bytes.fetch_sub(before, Relaxed);
        self.changed(attention);
        Ok(())
    }

    /// Deletes a user.
    pub(super) fn remove(&self, name: &[u8], attention: &Attention) -> Option<Arc<Account>> {
        let mut accounts = self
            .accounts
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let account = accounts.remove(name)?;
        drop(accounts);
        account.gone.store(true, Relaxed);
        self.bytes.fetch_sub(account.bytes(), Relaxed);
        self.changed(attention);
        Some(account)
    }

    /// Replaces all users by these users. Users that stay keep their connections.
    pub(super) fn replace(&self, users: Vec<(Box<[u8]>, Rights)>, attention: &Attention) {
        let mut accounts = self
            .accounts
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *accounts);
        for (name, rights) in users {
            let account = match before.remove(&name) {
                Some(account) => {
                    account.set(rights);
                    account
                }
                None => Account::new(&name, rights),
            };
            accounts.insert(name, account);
        }
        for gone in before.values() {
            gone.gone.store(true, Relaxed);
        }
        let bytes = accounts.values().map(|account| account.bytes()).sum();
        self.bytes.store(bytes, Relaxed);
        drop(accounts);
        self.changed(attention);
    }

    /// Gives the default user this password and no other, or none.
    pub(crate) fn set_default_password(&self, password: Option<&str>, attention: &Attention) {
        let _alone = self.begin_change();
        let before = self.default.bytes();
        let mut rights = Rights::clone(&self.default.rights());
        rights.set_password(password);
        self.default.set(rights);
        self.bytes.fetch_add(self.default.bytes(), Relaxed);
        self.bytes.fetch_sub(before, Relaxed);
        self.changed(attention);
    }

    /// Has every connection look at its rights before its next command.
    fn changed(&self, attention: &Attention) {
        self.note_default();
        attention.rights_changed();
    }
}
