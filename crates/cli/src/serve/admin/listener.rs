//! The admin listener of `serve`: its address, the clients that may use it, and what it shows.

use std::io;

use tidewire::{Endpoint, Listen, StartError};
use tidewire_admin::catalogue::admin as metrics;
use tidewire_admin::{Admin, Levels, Panel};

use crate::exit::Failure;
use crate::logging::{self, Logging};
use crate::secret;
use crate::serve::admin::options::{At, default_place, reaches_beyond};
use crate::serve::admin::shown::Found;
use crate::serve::listeners::fronts::{AdminFront, Fronts};
use crate::serve::product::Plan;
use crate::serve::settings::frame::Settings;

struct OfLogging(logging::Levels);

impl Levels for OfLogging {
    fn shown(&self) -> String {
        self.0.shown()
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        self.0.set(filter)
    }
}

/// Makes the panel for a server with these settings.
pub(crate) fn panel(plan: &Plan, logging: &Logging) -> Panel {
    let panel = Panel::new(plan.shown(&Found::default()));
    panel.set_levels(OfLogging(logging.levels()));
    let counts = logging.counts();
    panel.add(move |to| {
        let counts = counts();
        to.add(&metrics::LOG_LINES, &[], counts.lines);
        to.add(&metrics::LOG_LINES_DROPPED, &[], counts.dropped);
        to.add(&metrics::LOG_WRITES_FAILED, &[], counts.failed);
    });
    panel
}

/// Starts the listener, unless it is off, or its default address is taken.
pub(crate) fn start(
    settings: &Settings,
    fronts: &Fronts,
    panel: &Panel,
    inherited: Option<(Endpoint, Listen)>,
) -> Result<Option<Admin>, Failure> {
    let (options, front) = (&settings.admin, &settings.admin_front);
    let (place, asked) = match &options.admin {
        Some(At::Off) => return Ok(None),
        Some(At::Place { place, .. }) => (place.clone(), true),
        None | Some(At::Host { .. }) => (default_place().into(), false),
    };
    // An admin listener that is asked for at another place moves: it is no service.
    let same = |at: &Endpoint| *at == place || (place.port() == Some(0) && at.ip() == place.ip());
    let (place, listen) = match inherited {
        Some((at, listen)) if !asked || same(&at) => (at, listen),
        _ => (place.clone(), Listen::at(&place)),
    };
    let token = options.token()?;
    let beyond = reaches_beyond(&place);
    if beyond && token.is_none() {
        return Err(Failure::usage(format!(
            "--admin {place}: other hosts reach it, and it requires no secret: add \
             --admin-token-file FILE, or listen on 127.0.0.1"
        )));
    }
    if let Some(path) = &options.admin_token_file
        && secret::is_exposed(path)
    {
        tracing::warn!(file = %path.display(), "other users may read this secret: chmod 600");
    }
    if beyond && front.is_bare() {
        tracing::warn!(
            addr = %place,
            "the admin token crosses the network in the clear: --tls-cert and --tls-key end that"
        );
    }
    fronts.put_admin(front)?;
    let names = options.admin_host.clone();
    let started = match front.is_bare() {
        true => Admin::start(listen, panel, token, names),
        false => Admin::start_behind(AdminFront(fronts.clone()), listen, panel, token, names),
    };
    match started {
        Ok(admin) => Ok(Some(admin)),
        Err(StartError::Listen { addr, source })
            if !asked && source.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!(
                addr,
                "no admin listener: its default address is taken; --admin ADDR chooses another, \
                 --admin off does without"
            );
            Ok(None)
        }
        Err(e) => Err(Failure::failed(format!(
            "the admin listener: {e}; --admin chooses another address, or none (off)"
        ))),
    }
}
