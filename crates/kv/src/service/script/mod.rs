//! Scripts and functions: EVAL, FCALL and their kin, SCRIPT and FUNCTION.
//!
//! The one idea: a script is a transaction that finds out what it is while it runs. It holds all
//! shards, what it has changed is one unit of the log, and nothing else of the service knows of
//! Lua. A script that may take long runs on a thread beside the loops, so that the loops can tell
//! others of it.

mod apart;
mod at;
mod brief;
mod cache;
mod command;
mod function;
mod functions;
mod host;
mod run;
mod shebang;
mod vm;

pub(super) use apart::Away;
pub(super) use at::At;
pub(crate) use cache::Scripts;
pub(super) use command::{
    SUBCOMMANDS, answer, busy_text, info, may_run_when_busy, memory, script, unreachable,
};
pub(super) use function::SUBCOMMANDS as FUNCTION_SUBCOMMANDS;
pub(crate) use run::Kind;
pub(super) use run::{WHOLE, runs_beside};
pub use shebang::library_name;
pub(crate) use vm::Interpreter;
