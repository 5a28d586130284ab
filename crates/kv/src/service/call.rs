//! A command that is about the connection or the server rather than about keys, while it runs.

use std::sync::Arc;

use tidewire::Cx;

use super::clients::Card;
use super::conn::RespConn;
use super::session::Session;
use super::shared::Here;
use super::table;
use crate::reply::Reply;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It was run; its reply is written.
    Done,
    /// It cannot run now, and has done nothing: to be tried again a little later.
    Later,
}

/// What a command is given.
pub(crate) struct Call<'a, 'c> {
    pub(crate) shared: Here,
    pub(crate) session: &'a mut Session,
    pub(crate) card: &'a Arc<Card>,
    pub(crate) cx: &'a mut Cx<'c, RespConn>,
    pub(crate) reply: &'a mut Reply,
    /// The name first.
    pub(crate) args: &'a [&'a [u8]],
    /// Within a transaction, where nothing may wait.
    pub(crate) in_transaction: bool,
}

impl Call<'_, '_> {
    /// Milliseconds of the loops' clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.cx.link.now().as_nanos() / 1_000_000
    }

    pub(crate) fn arity_error(&mut self) {
        let name = String::from_utf8_lossy(self.args[0]).to_ascii_lowercase();
        self.reply.error(&arity_error(&name));
    }

    /// For a subcommand that did not match: unknown, or known with other arguments.
    pub(crate) fn subcommand_error(&mut self, known: &[&str]) {
        let command = String::from_utf8_lossy(self.args[0]).into_owned();
        let sub = String::from_utf8_lossy(self.args[1]).into_owned();
        let lower = sub.to_ascii_lowercase();
        if known.contains(&lower.as_str()) {
            let name = format!("{}|{lower}", command.to_ascii_lowercase());
            return self.reply.error(&arity_error(&name));
        }
        let sub: String = sub.chars().take(128).collect();
        self.reply.error(&format!(
            "ERR unknown subcommand '{sub}'. Try {} HELP.",
            command.to_ascii_uppercase()
        ));
    }

    pub(crate) fn help(&mut self, lines: &[&str]) {
        self.reply.array(lines.len() + 2);
        for line in lines {
            self.reply.simple(line);
        }
        self.reply.simple("HELP");
        self.reply.simple("    Print this help.");
    }

    /// The name of the running command, with its subcommand if it is the one that runs.
    pub(crate) fn full_name(&self, id: u32) -> String {
        let name = table::table().name(id as u16);
        let runs = self.args[0].eq_ignore_ascii_case(name.as_bytes());
        match self.args.get(1) {
            Some(sub) if runs && table::table().has_subcommands(id as u16) => {
                format!(
                    "{name}|{}",
                    String::from_utf8_lossy(sub).to_ascii_lowercase()
                )
            }
            _ => name.to_string(),
        }
    }
}

/// The error for a wrong number of arguments.
pub(crate) fn arity_error(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// The error for a command nobody knows; repeats some of what was sent.
#[cold]
pub(crate) fn unknown_command(args: &[&[u8]]) -> String {
    let shown = |text: &[u8], most: usize| {
        let text = &text[..text.len().min(most)];
        let text = String::from_utf8_lossy(text);
        text.replace(['\r', '\n'], " ")
    };
    let mut message = format!(
        "ERR unknown command '{}', with args beginning with: ",
        shown(args[0], 128)
    );
    let mut left = 128;
    for arg in &args[1..] {
        if left == 0 {
            break;
        }
        let text = shown(arg, left);
        left = left.saturating_sub(text.len() + 3);
        message.push_str(&format!("'{text}' "));
    }
    message
}
