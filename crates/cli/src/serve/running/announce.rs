//! Where a server listens, for people and for programs that started it.

use std::io::{self, Write};

use tidewire::Running;
use tidewire_admin::Admin;

use crate::serve::listeners::tls::Front;
use crate::serve::logs::open::Logs;
use crate::serve::product::Plan;

/// Logs one line for each listener, for people and for programs that started this one.
pub(crate) fn announce(
    plan: &Plan,
    running: &Running,
    logs: &Logs,
    admin: Option<(&Admin, &Front)>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (endpoint, addr) in plan.endpoints.iter().zip(running.addrs()) {
        write!(out, "listening service={}", endpoint.kind.service.name)?;
        if let Some(mode) = endpoint.kind.mode() {
            write!(out, " mode={mode}")?;
        }
        write!(out, " addr={addr} engine={}", running.engine())?;
        write!(out, "{}", endpoint.front.described())?;
        let product = plan.of(endpoint.kind.service);
        writeln!(out, "{}", product.described(logs))?;
    }
    if let Some((admin, front)) = admin {
        // The last line: programs that count lines count the lines of the services.
        writeln!(
            out,
            "listening service=admin addr={} engine=epoll{}",
            admin.addr(),
            front.described()
        )?;
    }
    out.flush()
}
