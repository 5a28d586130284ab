//! `tidewire info`: what a running server is doing, once.

use std::io::{self, Write};

use super::change::Change;
use super::fetch::{Asker, parse};
use super::report::report;
use super::whom::Whom;
use crate::exit::Failure;

/// The server to ask, and the form of the output.
#[derive(Debug, clap::Args)]
pub(crate) struct Info {
    #[command(flatten)]
    whom: Whom,

    /// Prints all there is as JSON: what /stats.json of the admin listener holds
    #[arg(long)]
    json: bool,
}

impl Info {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        run(self)
    }
}

fn run(args: &Info) -> Result<(), Failure> {
    let text = Asker::new(&args.whom)?.text().map_err(Failure::failed)?;
    let shown = match args.json {
        true => format!("{}\n", text.trim_end()),
        false => {
            let page = parse(&text).map_err(Failure::failed)?;
            report(&Change::new(&page, None))
        }
    };
    let mut out = io::stdout().lock();
    let written = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Failure::failed(format!("cannot write to stdout: {e}")))
}
