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

use std::path::PathBuf;

pub(crate) use info::Info;
pub(crate) use top::Top;

use crate::tls::TlsArgs;

/// Which server, and what it asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Whom {
    /// The server's admin listener: HOST:PORT, or a URL; https:// as --tls
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:7480")]
    admin: String,

    /// A file whose one line is the admin token; the environment's TIDEWIRE_ADMIN_TOKEN does too
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArgs,
}

impl Info {
    pub(crate) fn run(&self) -> Result<(), crate::exit::Failure> {
        info::run(self)
    }
}

impl Top {
    pub(crate) fn run(&self) -> Result<(), crate::exit::Failure> {
        top::run(self)
    }
}
