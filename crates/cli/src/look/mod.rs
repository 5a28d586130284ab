//! Looking at a running server from outside, through its admin listener: `tidewire info`, once, and `tidewire top`,
//! live. Both are drawn from the page that its dashboard is drawn from.

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
