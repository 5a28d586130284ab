//! Scripts and functions: EVAL, FCALL and their kin, SCRIPT and FUNCTION.
//!
//! The one idea: a script is a transaction that finds out what it is while it runs. A script holds
//! all shards, its changes are one unit of the log, and no other part of the service knows Lua. A
//! script that may take long runs on a thread beside the loops, so that the loops can tell others
//! of it.

mod answered;
mod apart;
mod at;
mod away;
mod brief;
mod cache;
mod command;
mod fence;
mod function;
mod functions;
mod host;
mod kind;
mod known;
mod phase;
mod run;
mod shebang;
mod stops;
mod text;
mod thread;
mod vm;
mod watched;

pub(super) use at::At;
pub(super) use away::Away;
pub(crate) use cache::Scripts;
pub(super) use command::{SUBCOMMANDS, answer, busy_text, info, may_run_when_busy, memory};
pub(super) use function::SUBCOMMANDS as FUNCTION_SUBCOMMANDS;
pub(crate) use kind::Kind;
pub(super) use run::{WHOLE, may_write, runs_beside};
pub use shebang::library_name;
pub(crate) use vm::Interpreter;
