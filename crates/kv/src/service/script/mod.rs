//! Scripts: EVAL and its kin, and SCRIPT.
//!
//! The one idea: a script is a transaction that finds out what it is while it runs. It holds all shards,
//! what it has changed is one unit of the log, and nothing else of the service knows of Lua.

mod cache;
mod command;
mod host;
mod run;
mod shebang;
mod vm;

pub(crate) use cache::Scripts;
pub(super) use command::{SUBCOMMANDS, info, script, unreachable};
pub(crate) use run::Kind;
pub(super) use run::WHOLE;
pub(crate) use vm::Interpreter;
