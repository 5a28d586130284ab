//! Settings, complete and checked: what the rest of `serve` works with.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::CpuSet;
use tidewire::{EngineChoice, TcpOptions};
use tidewire_ingest::native::Fleet;
use tidewire_log::GROUP_WAIT_MAX;

use crate::exit::Failure;
use crate::serve::listeners::endpoint::{Endpoint, endpoints};
use crate::serve::listeners::kind::{Kind, Service};
use crate::serve::listeners::listen_at::{ListenAt, Place};
use crate::serve::listeners::tls::{Front, Handshake};
use crate::serve::logs::fleet::fleet;
use crate::serve::settings::args::Options;
use crate::size::Size;
use crate::span::Span;

/// The settings of `serve`.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The settings as they were asked for. The fields below hold the completed and checked values
    /// of some of them.
    options: Options,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Listeners that the service manager has passed on.
    given: Vec<ListenAt>,
    pub(crate) admin_is_given: bool,
    /// The path of the control socket, once it is open.
    pub(crate) control_path: Option<PathBuf>,
    /// The limit of open descriptors; `None` for no limit.
    pub(crate) descriptors: Option<u64>,
    pub(crate) handshake: Handshake,
    pub(crate) workers: usize,
    /// Memory of all connections together; bytes.
    pub(crate) memory: Option<usize>,
    /// Bytes that a turn of a loop makes, sends and receives.
    pub(crate) turn_output: usize,
    pub(crate) turn_send: usize,
    pub(crate) turn_receive: usize,
    pub(crate) tcp: TcpOptions,
    /// The layers in front of the admin listener.
    pub(crate) admin_front: Front,
    /// The servers that share the topic of the log of messages.
    pub(crate) fleet: Option<Fleet>,
}

impl Deref for Settings {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Settings {
    /// `given` is what the service manager passes on, as if it were asked for.
    pub(crate) fn from(mut options: Options, given: Vec<ListenAt>) -> Result<Settings, Failure> {
        if !given.is_empty() {
            options.add_given(&given);
        }
        if options.workers == Some(0) {
            return Err(Failure::usage(
                "--workers 0: at least one loop must carry connections",
            ));
        }
        if options.handshake.is_some_and(|span| span.limit().is_none()) {
            return Err(Failure::usage(
                "--handshake 0: without a limit, a client that connects and sends nothing would stay for ever",
            ));
        }
        if options.durable.group_wait.0 > GROUP_WAIT_MAX {
            return Err(Failure::usage(format!(
                "--group-wait: at most {}",
                Span(GROUP_WAIT_MAX)
            )));
        }
        check_cpus(&options.cpus)?;
        let engine = options.engine;
        if options.direct_descriptors
            && matches!(engine, EngineChoice::Threads | EngineChoice::Epoll)
        {
            return Err(Failure::usage(format!(
                "--direct-descriptors with --engine {engine}: only io_uring has tables for them",
            )));
        }
        let bind = options
            .bind
            .here()
            .map_err(|e| Failure::failed(format!("--bind: {e}")))?;
        options
            .admin
            .look_up()
            .map_err(|e| Failure::failed(format!("--admin: {e}")))?;
        let fleet = fleet(&options.durable)?;
        options.deadlines.check()?;
        let endpoints = endpoints(&options.services, &options.listen, &bind);
        let mut endpoints = endpoints.map_err(|e| Failure::failed(format!("--listen: {e}")))?;
        let proxy_from = options.proxy_from.as_deref().unwrap_or_default();
        for endpoint in &mut endpoints {
            endpoint.front = endpoint.front_of(&options.tls, proxy_from)?;
        }
        Ok(Settings {
            endpoints,
            given,
            admin_is_given: false,
            control_path: None,
            descriptors: None,
            handshake: options
                .handshake
                .map_or(Handshake::default(), |span| span.0.into()),
            workers: options.workers.unwrap_or_else(cores),
            memory: options
                .memory
                .map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            turn_output: of_turn("output", options.turn_output)?,
            turn_send: of_turn("send", options.turn_send)?,
            turn_receive: of_turn("receive", options.turn_receive)?,
            tcp: TcpOptions {
                congestion: options.congestion.clone(),
                keepalive: keepalive(options.tcp_keepalive)?,
                ..TcpOptions::default()
            },
            admin_front: options.admin.front(&options.tls)?,
            fleet,
            options,
        })
    }
}

impl Settings {
    /// Whether the service manager has passed this one on.
    pub(crate) fn is_given(&self, endpoint: &Endpoint) -> bool {
        let is = |given: &ListenAt| {
            given.kind == endpoint.kind && given.place == Place::At(endpoint.place.clone())
        };
        self.given.iter().any(is)
    }

    /// The listeners of a service in one of its modes.
    pub(crate) fn endpoints_of(&self, kind: Kind) -> impl Iterator<Item = &Endpoint> {
        self.endpoints
            .iter()
            .filter(move |endpoint| endpoint.kind == kind)
    }

    /// Whether a service is served in this mode.
    pub(crate) fn serves_kind(&self, kind: Kind) -> bool {
        self.endpoints_of(kind).next().is_some()
    }

    /// The modes in which a service is served, in the order of its listeners.
    pub(crate) fn kinds_of(&self, service: &Service) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for endpoint in &self.endpoints {
            if endpoint.kind.service == service && !kinds.contains(&endpoint.kind) {
                kinds.push(endpoint.kind);
            }
        }
        kinds
    }

    /// Whether a service is served in any mode.
    pub(crate) fn serves(&self, service: &Service) -> bool {
        !self.kinds_of(service).is_empty()
    }

    /// Whether every client that reaches this service may use it.
    pub(crate) fn is_open(&self, kind: Kind) -> bool {
        self.open.iter().any(|open| open.covers(kind))
    }
}

/// Refuses cores that this process may not run on.
fn check_cpus(asked: &[usize]) -> Result<(), Failure> {
    if asked.is_empty() {
        return Ok(());
    }
    let allowed = rustix::thread::sched_getaffinity(None);
    let allowed =
        allowed.map_err(|e| Failure::failed(format!("--cpus: cannot ask for the cores: {e}")))?;
    let may = |cpu: usize| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu);
    match asked.iter().find(|cpu| !may(**cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let all: Vec<String> = (0..CpuSet::MAX_CPU)
                .filter(|cpu| may(*cpu))
                .map(|cpu| cpu.to_string())
                .collect();
            Err(Failure::usage(format!(
                "--cpus {cpu}: this process may run on the cores {}",
                all.join(",")
            )))
        }
    }
}

/// Checks how many bytes a turn may handle.
fn of_turn(what: &str, size: Size) -> Result<usize, Failure> {
    let (least, most) = (Size(64 << 10), Size(1 << 30));
    match usize::try_from(size.0) {
        Ok(bytes) if (least.0..=most.0).contains(&size.0) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "--turn-{what} {size}: from {least} to {most}"
        ))),
    }
}

fn keepalive(silence: Span) -> Result<Option<Duration>, Failure> {
    let (least, most) = (Duration::from_secs(1), TcpOptions::KEEPALIVE_MAX);
    match silence.limit() {
        Some(time) if time < least || time > most || time.subsec_nanos() > 0 => {
            Err(Failure::usage(format!(
                "--tcp-keepalive {}: the kernel takes whole seconds, from 1 to {}; 0 turns keepalive off",
                Span(time),
                most.as_secs()
            )))
        }
        silence => Ok(silence),
    }
}

/// Cores that this process may run on: what it is pinned to counts.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
