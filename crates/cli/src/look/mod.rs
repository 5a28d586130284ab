//! Looking at a running server from outside, through its admin listener: `tidewire info`, once, and `tidewire top`,
//! live. Both commands and the dashboard use one page of the admin listener.

mod change;
mod columns;
mod connect;
mod fetch;
mod info;
mod numbers;
mod report;
mod top;
mod whom;

pub(crate) use info::Info;
pub(crate) use top::Top;
