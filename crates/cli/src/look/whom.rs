//! The server that `info` and `top` look at.

use std::path::PathBuf;

use crate::tls::TlsArgs;

/// The server to ask, and its secrets.
#[derive(Debug, clap::Args)]
pub(crate) struct Whom {
    /// The server's admin listener: HOST:PORT, or a URL; https:// as --tls
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:7480")]
    pub(super) admin: String,

    /// A file whose one line is the admin token; the environment's TIDEWIRE_ADMIN_TOKEN does too
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub(super) admin_token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) tls: TlsArgs,
}
