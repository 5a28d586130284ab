//! Settings, complete and checked: what the rest of `serve` works with.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tidewire::{EngineChoice, Limits, Placement, TcpOptions};

use super::args::{Args, LogFormat, Options};
use super::endpoint::{Endpoint, endpoints};
use crate::exit::Failure;

/// A connection of an acknowledging service that is silent for this long is closed, as it always
/// was in the field.
const ACK_IDLE: Duration = Duration::from_secs(5);

/// What `serve` does.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) engine: EngineChoice,
    pub(crate) workers: usize,
    pub(crate) placement: Placement,
    pub(crate) cpus: Vec<usize>,
    pub(crate) busy_poll: Duration,
    pub(crate) tcp: TcpOptions,
    /// Of every service but the acknowledging ones.
    pub(crate) limits: Limits,
    pub(crate) ack_limits: Limits,
    /// Bytes; `None` is the service's default.
    pub(crate) max_payload: Option<u32>,
    pub(crate) log_format: LogFormat,
    pub(crate) log: Option<String>,
    pub(crate) stop_deadline: Duration,
    pub(crate) stats_interval: Option<Duration>,
}

impl Settings {
    pub(crate) fn from(args: Args) -> Result<Settings, Failure> {
        let options = match &args.config {
            Some(path) => args.options.over(Options::read(path)?),
            None => args.options,
        };
        if options.workers == Some(0) {
            return Err(Failure::usage(
                "--workers 0: at least one loop must carry connections",
            ));
        }
        let bind = options.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let base = Limits::default();
        let limits = Limits {
            connections: options.max_connections.unwrap_or(base.connections),
            linger: options.linger.map_or(base.linger, |span| span.0),
            idle: options.idle.map_or(base.idle, |span| span.limit()),
            ..base
        };
        let ack_limits = Limits {
            idle: options.idle.map_or(Some(ACK_IDLE), |span| span.limit()),
            ..limits.clone()
        };
        let mut endpoints = endpoints(&options.services, &options.listen, bind);
        endpoints.retain(|endpoint| !matches!(endpoint.kind, super::endpoint::Kind::Ack(_)));
        Ok(Settings {
            endpoints,
            engine: options.engine.unwrap_or_default(),
            workers: options.workers.unwrap_or_else(cores),
            placement: options
                .placement
                .map_or(Placement::default(), Placement::from),
            cpus: options.cpus,
            busy_poll: Duration::from_micros(options.busy_poll.unwrap_or(0)),
            tcp: TcpOptions {
                congestion: options.congestion,
                ..TcpOptions::default()
            },
            limits,
            ack_limits,
            max_payload: options.max_payload,
            log_format: options.log_format.unwrap_or(LogFormat::Text),
            log: options.log,
            stop_deadline: options
                .stop_deadline
                .map_or(Duration::from_secs(10), |span| span.0),
            stats_interval: options.stats_interval.and_then(|span| span.limit()),
        })
    }
}

/// Cores that this process may run on: what it is pinned to counts.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
