//! Access control: users, what each may run and touch, and what was refused.
//!
//! A connection keeps the rights of its user, and compares one number before each command to learn
//! that rights have changed. A connection of a user with all rights looks no further: see
//! [`Session::is_plain`](super::session::Session::is_plain).

mod access;
pub(super) mod category;
mod command;
mod denied;
mod file;
mod guard;
mod leaves;
mod log;
mod password;
mod rights;
mod rules;
mod selector;
mod users;

pub(super) use command::{SUBCOMMANDS, acl};
pub(super) use denied::Denied;
pub use file::AclFileError;
pub(super) use guard::Place;
pub(super) use leaves::{categories_of_call, names};
pub(super) use log::{Reason, Where};
pub(super) use rights::{Rights, name_of_call};
pub(super) use users::{Account, Acl};
