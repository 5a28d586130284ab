//! A command that is about the connection or the server rather than about keys, while it runs.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use tidewire::Link;

use super::clients::Card;
use super::local::RespLocal;
use super::session::Session;
use super::shared::{Here, Shared};
use super::table::{Entry, Table, table};
use crate::commands::{Error, subcommands};
use crate::reply::Reply;

/// The reply to a command that would leave more behind than its client may have held.
pub(crate) const TOO_MUCH_HELD: &str = "ERR the client would make the server hold more than the query buffer limit \
    allows (client-query-buffer-limit)";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The command was run; its reply is written.
    Done,
    /// The command cannot run now, and has done nothing: to be tried again a little later.
    Later,
}

/// Runs a command that is about the connection or the server.
pub(crate) type Run = fn(&mut Call<'_, '_>) -> Flow;

/// The functions of commands, by the numbers of their entries.
static RUNS: OnceLock<Vec<Option<Run>>> = OnceLock::new();

/// The function of a command about the connection or the server.
pub(crate) fn run_of(entry: &Entry) -> Run {
    let runs = RUNS.get().expect("installed");
    runs[usize::from(entry.id)].expect("a command about the connection or the server")
}

/// Installs the function that runs each command. The first call counts.
pub(super) fn install(table: &'static Table, all: impl Iterator<Item = (&'static str, Run)>) {
    RUNS.get_or_init(|| {
        let mut runs = vec![None; table.all().len()];
        for (name, run) in all {
            if let Some(entry) = table.find(name.as_bytes()) {
                runs[usize::from(entry.id)] = Some(run);
            }
        }
        runs
    });
}

/// The context of a command that concerns neither its connection nor its loop.
pub(crate) struct Asked<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) reply: &'a mut Reply,
    /// The name first.
    pub(crate) args: &'a [&'a [u8]],
}

impl Asked<'_> {
    pub(crate) fn arity_error(&mut self) {
        let name = self.args[0].to_ascii_lowercase();
        let text = Error::quoting("ERR wrong number of arguments for '", &name, "' command");
        self.reply.error(text.0);
    }

    /// The error for a known subcommand with wrong arguments.
    pub(crate) fn subcommand_error(&mut self, command: &str) {
        let or = " or wrong number of arguments for";
        let error = subcommands::unknown(command, self.args[1], or);
        self.reply.error(error.0);
    }

    pub(crate) fn help(&mut self, lines: &[&str]) {
        self.reply.array(lines.len() + 2);
        for line in lines {
            self.reply.simple(line);
        }
        self.reply.simple("HELP");
        self.reply.simple("    Print this help.");
    }
}

/// The context of a command.
pub(crate) struct Call<'a, 'c> {
    pub(crate) shared: Here,
    pub(crate) session: &'a mut Session,
    pub(crate) card: &'a Arc<Card>,
    /// The connection's way out.
    pub(crate) link: &'a mut Link<'c>,
    /// The state of the connection's loop.
    pub(crate) local: &'a mut RespLocal,
    pub(crate) reply: &'a mut Reply,
    /// The name first.
    pub(crate) args: &'a [&'a [u8]],
    /// Whether the command runs within a transaction, where no command may wait.
    pub(crate) in_transaction: bool,
}

impl Call<'_, '_> {
    /// Milliseconds of the loops' clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.link.now().as_nanos() / 1_000_000
    }

    /// Whether so many bytes more may stay because of this client; else it is told.
    pub(crate) fn may_hold(&mut self, more: usize) -> bool {
        let limit = self.shared.config.query_buffer.load(Relaxed);
        if self.card.holdings.sum() + more as u64 <= limit as u64 {
            return true;
        }
        self.reply.error(TOO_MUCH_HELD);
        self.local.note_refused(limit, self.link);
        false
    }

    /// The call without the connection and the loop.
    pub(crate) fn asked(&mut self) -> Asked<'_> {
        Asked {
            shared: &self.shared,
            reply: self.reply,
            args: self.args,
        }
    }

    /// The error for a known subcommand with wrong arguments.
    pub(crate) fn subcommand_error(&mut self, command: &str) {
        self.asked().subcommand_error(command);
    }

    pub(crate) fn help(&mut self, lines: &[&str]) {
        self.asked().help(lines);
    }

    /// The name of the running command, with its subcommand if it is the one that runs.
    pub(crate) fn full_name(&self, id: u32) -> String {
        let name = table().name(id as u16);
        let runs = self.args[0].eq_ignore_ascii_case(name.as_bytes());
        match self.args.get(1) {
            Some(sub) if runs && table().entry(id as u16).has_subcommands() => {
                format!(
                    "{name}|{}",
                    String::from_utf8_lossy(sub).to_ascii_lowercase()
                )
            }
            _ => name.to_string(),
        }
    }
}

/// The error for an unknown command; it repeats some of the client's arguments.
#[cold]
pub(crate) fn unknown_command(args: &[&[u8]]) -> Error {
    /// Bytes that are repeated, of the name and of all arguments.
    const SHOWN: usize = 128;
    let mut shown = Vec::new();
    for arg in &args[1..] {
        if shown.len() >= SHOWN {
            break;
        }
        let left = SHOWN - shown.len();
        let arg = arg.split(|byte| *byte == 0).next().unwrap_or_default();
        shown.extend_from_slice(b"'");
        shown.extend_from_slice(&arg[..arg.len().min(left)]);
        shown.extend_from_slice(b"' ");
    }
    let name = &args[0][..args[0].len().min(SHOWN)];
    let mut error = Error::quoting(
        "ERR unknown command '",
        name,
        "', with args beginning with: ",
    );
    error.0.to_mut().extend_from_slice(&shown);
    error
}
