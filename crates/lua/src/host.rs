//! The host of a script: it runs the script's commands, and says whether the script goes on.

use std::borrow::Cow;

use crate::value::Value;

/// The calls of a script to its host.
pub trait Host {
    /// Runs a command and gives its reply; an error of the command is a [`Value::Error`].
    ///
    /// # Errors
    /// The error that the script has to stop.
    fn call(&mut self, call: Call<'_>) -> Result<Value<'_>, Stop>;

    /// `redis.log`: a level from 0, debugging, to 3, a warning.
    fn log(&mut self, level: u8, text: &[u8]);

    /// `redis.acl_check_cmd`: whether the script's caller may run a command; `None` if there is no
    /// such command.
    fn may_call(&mut self, args: &[&[u8]]) -> Option<bool> {
        let _ = args;
        Some(true)
    }

    /// The first seed of `math.random` in this run.
    fn chance(&mut self) -> u32 {
        0
    }

    /// The watch has said [`Verdict::Tell`]: between two of the script's commands. Gives why it is to
    /// stop, if it is.
    fn told(&mut self) -> Option<Stop> {
        None
    }
}

/// A call of `redis.call` or `redis.pcall`.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The command's name, then its arguments; at least one.
    pub args: &'a [&'a [u8]],
    /// The script wants replies in the third version of the protocol.
    pub resp3: bool,
}

/// Why a script was ended: the error line for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop(pub Cow<'static, str>);

/// Whether a running script goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The script goes on.
    Go,
    /// The host is [told](Host::told), and the script goes on unless the host
    /// says otherwise.
    Tell,
    /// The script stops.
    Stop(Stop),
}

scoped_tls_hkt::scoped_thread_local!(
    /// The host of the script that runs on this thread.
    static mut HOST: for<'a> &'a mut (dyn Host + 'a)
);

/// Runs `script` against a host.
pub(crate) fn against<R>(host: &mut dyn Host, script: impl FnOnce() -> R) -> R {
    HOST.set(host, script)
}

/// The host of what runs on this thread is told that it takes long; a library that is loaded has none.
pub(crate) fn tell() -> Option<Stop> {
    with(|host| host.told())?
}

/// Does something with the host of the script that runs on this thread; `None` while a library is loaded.
pub(crate) fn with<R>(act: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
    HOST.is_set().then(|| HOST.with(|host| act(host)))
}
