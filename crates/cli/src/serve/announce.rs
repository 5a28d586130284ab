//! Where a server listens, for people and for programs that started it.

use std::io::{self, Write};

use tidewire::Running;
use tidewire_admin::Admin;

use super::endpoint::Endpoint;
use super::kind::Kind;
use super::kv_options::KvOptions;
use super::log::Logs;
use super::tls::Front;

/// One line for each listener, for people and for programs that started this one.
pub(super) fn announce(
    endpoints: &[Endpoint],
    running: &Running,
    logs: &Logs,
    kv: &KvOptions,
    admin: Option<(&Admin, &Front)>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (endpoint, addr) in endpoints.iter().zip(running.addrs()) {
        write!(out, "listening service={}", endpoint.kind.service())?;
        if let Some(mode) = endpoint.kind.mode() {
            write!(out, " mode={mode}")?;
        }
        write!(out, " addr={addr} engine={}", running.engine())?;
        write!(out, "{}", endpoint.front.described())?;
        match endpoint.kind {
            Kind::Ingest => {
                if let Some(log) = &logs.messages {
                    let directory = word(&log.directory.to_string_lossy());
                    write!(out, " dir={directory} policy={}", log.policy())?;
                }
            }
            Kind::Kv(_) => {
                write!(out, " durability={}", kv.durability())?;
                if let Some(log) = &logs.kv {
                    let directory = word(&log.directory.to_string_lossy());
                    write!(out, " dir={directory}")?;
                }
                if let Some(home) = &kv.follow {
                    write!(out, " follows={}", word(home))?;
                }
            }
            Kind::Echo | Kind::Http | Kind::Ack(_) | Kind::Discard => {}
        }
        writeln!(out)?;
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

/// A text as one word of a line.
fn word(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_whitespace() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}
