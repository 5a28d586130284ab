//! Settings, complete and checked: what the rest of `serve` works with.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::CpuSet;
use tidewire::{EngineChoice, Placement, TcpOptions};
use tidewire_http::Settings as HttpSettings;
use tidewire_ingest::{Level, native};
use tidewire_log::{GROUP_WAIT_MAX, Policy};

use super::admin_options::AdminOptions;
use super::admission::AdmissionOptions;
use super::args::Options;
use super::begun::has_taken_over;
use super::control::ControlAt;
use super::deadlines::Deadlines;
use super::durable::{LogOptions, OnLogFailure};
use super::endpoint::{Endpoint, endpoints};
use super::fleet::fleet;
use super::given::Given;
use super::kind::{Kind, Named};
use super::kv_options::KvOptions;
use super::listen_at::{ListenAt, Place};
use super::log::kv_directory;
use super::open::Open;
use super::sources::Sources;
use super::tls::{Front, Handshake};
use crate::exit::Failure;
use crate::host::Host;
use crate::logging::LogFormat;
use crate::size::Size;
use crate::span::Span;

/// When a loop counts as stuck, by default.
const STALL: Duration = Duration::from_millis(100);

/// What a turn of a loop makes, sends and receives, by default.
const TURN_OUTPUT: Size = Size(256 << 10);
const TURN_SEND: Size = Size(1 << 20);
const TURN_RECEIVE: Size = Size(4 << 20);

/// Silence after which the kernel asks TCP clients whether they are still there, by default:
/// Redis's.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// What `serve` does.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoints: Vec<Endpoint>,
    /// Flags that are for something which may not be there.
    pub(crate) flags: Given,
    /// Listeners that the service manager has passed on.
    given: Vec<ListenAt>,
    pub(crate) admin_is_given: bool,
    pub(crate) control: Option<ControlAt>,
    /// Where the control socket is, once it is open.
    pub(crate) control_path: Option<PathBuf>,
    /// The most that may be open; `None` for no limit.
    pub(crate) descriptors: Option<u64>,
    pub(crate) handshake: Handshake,
    pub(crate) engine: EngineChoice,
    pub(crate) workers: usize,
    pub(crate) placement: Placement,
    pub(crate) cpus: Vec<usize>,
    pub(crate) busy_poll: Duration,
    /// Connections stand in the tables of rings.
    pub(crate) direct_descriptors: bool,
    /// Memory of all connections together; bytes.
    pub(crate) memory: Option<usize>,
    /// What a turn of a loop makes, sends and receives; bytes.
    pub(crate) turn_output: usize,
    pub(crate) turn_send: usize,
    pub(crate) turn_receive: usize,
    pub(crate) tcp: TcpOptions,
    /// Absent, here and below, is what the service says.
    pub(super) linger: Option<Duration>,
    pub(super) deadlines: Deadlines,
    /// Bytes.
    pub(crate) max_payload: Option<u32>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) log_connections: bool,
    pub(crate) stop_deadline: Duration,
    /// When a loop counts as stuck; loops are not watched without it.
    pub(crate) stall_threshold: Option<Duration>,
    pub(crate) admission: AdmissionOptions,
    pub(crate) admin: AdminOptions,
    /// What stands in front of the admin listener.
    pub(crate) admin_front: Front,
    pub(crate) stats_interval: Option<Duration>,
    pub(crate) durable: LogOptions,
    pub(crate) on_log_failure: OnLogFailure,
    pub(crate) ingest: native::Settings,
    /// What an acknowledgement of a classic port means.
    pub(crate) ack_level: Level,
    /// Where its messages go.
    pub(crate) ack_stream: String,
    pub(crate) http: HttpSettings,
    pub(crate) kv: KvOptions,
    /// Services that turn no client away.
    pub(crate) open: Vec<Open>,
    pub(crate) ingest_token_file: Option<PathBuf>,
    /// Where the settings come from, to read the tokens of ingest again.
    pub(crate) sources: Sources,
    /// The binary port was not opened, because the store has a password.
    pub(crate) binary_left_out: bool,
}

impl Settings {
    /// `given` is what the service manager passes on, as if it were asked for.
    pub(crate) fn from(
        mut options: Options,
        sources: Sources,
        flags: Given,
        given: Vec<ListenAt>,
    ) -> Result<Settings, Failure> {
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
        if options.durable.group_wait() > GROUP_WAIT_MAX {
            return Err(Failure::usage(format!(
                "--group-wait: at most {}",
                Span(GROUP_WAIT_MAX)
            )));
        }
        check_cpus(&options.cpus)?;
        let engine = options.engine.unwrap_or_default();
        let direct_descriptors = options.direct_descriptors.unwrap_or(false);
        if direct_descriptors && matches!(engine, EngineChoice::Threads | EngineChoice::Epoll) {
            return Err(Failure::usage(format!(
                "--direct-descriptors with --engine {engine}: only io_uring has tables for them",
            )));
        }
        let bind = options.bind.take();
        let bind = bind.unwrap_or(Host::Ip(Ipv4Addr::LOCALHOST.into()));
        let bind = bind
            .here()
            .map_err(|e| Failure::failed(format!("--bind: {e}")))?;
        options
            .admin
            .look_up()
            .map_err(|e| Failure::failed(format!("--admin: {e}")))?;
        let mut ingest = options.ingest.settings(options.max_payload)?;
        ingest.fleet = fleet(&options.durable)?;
        ingest.replicated = options.durable.replicate.is_some();
        let deadlines = Deadlines::of(&options);
        deadlines.check()?;
        let endpoints = endpoints(&options.services, &options.listen, &bind);
        let mut endpoints = endpoints.map_err(|e| Failure::failed(format!("--listen: {e}")))?;
        let proxy_from = options.proxy_from.unwrap_or_default();
        for endpoint in &mut endpoints {
            endpoint.front = endpoint.front_of(&options.tls, &proxy_from)?;
        }
        Ok(Settings {
            endpoints,
            flags,
            given,
            admin_is_given: false,
            control: options.control,
            control_path: None,
            descriptors: None,
            handshake: options
                .handshake
                .map_or(Handshake::default(), |span| span.0.into()),
            engine,
            workers: options.workers.unwrap_or_else(cores),
            placement: options
                .placement
                .map_or(Placement::default(), Placement::from),
            cpus: options.cpus,
            memory: options
                .memory
                .map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            turn_output: of_turn("output", options.turn_output, TURN_OUTPUT)?,
            turn_send: of_turn("send", options.turn_send, TURN_SEND)?,
            turn_receive: of_turn("receive", options.turn_receive, TURN_RECEIVE)?,
            busy_poll: Duration::from_micros(options.busy_poll.unwrap_or(0)),
            direct_descriptors,
            tcp: TcpOptions {
                congestion: options.congestion,
                keepalive: keepalive(options.tcp_keepalive)?,
                ..TcpOptions::default()
            },
            linger: options.linger.map(|span| span.0),
            http: options.http.settings(deadlines.of_http_requests())?,
            deadlines,
            max_payload: options.max_payload,
            log_format: options.log_format,
            log_connections: options.log_connections,
            stop_deadline: options
                .stop_deadline
                .map_or(Duration::from_secs(10), |span| span.0),
            stall_threshold: options
                .stall_threshold
                .map_or(Some(STALL), |span| span.limit()),
            admission: options.admission,
            admin_front: options.admin.front(&options.tls)?,
            admin: options.admin,
            stats_interval: options.stats_interval.and_then(|span| span.limit()),
            on_log_failure: options.durable.on_failure.unwrap_or_default(),
            durable: options.durable,
            ingest,
            ack_level: options.ack.level.unwrap_or_default(),
            ack_stream: options.ack.stream.unwrap_or_else(|| "default".into()),
            kv: options.kv,
            open: options.open,
            ingest_token_file: options.ingest.token_file,
            sources,
            binary_left_out: false,
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

    /// The directories of the logs that are needed, as another process would name them.
    pub(crate) fn log_directories(&self) -> Vec<PathBuf> {
        let kv = self.kv_durability().map(|_| kv_directory(&self.durable));
        let messages = self.need_log().then(|| self.durable.directory());
        let all = [messages, kv].into_iter().flatten();
        // A path that is not there yet is not locked.
        all.map(|path| path.canonicalize().unwrap_or(path))
            .collect()
    }

    /// Directories among them that hold a key-value store.
    pub(crate) fn store_directories(&self) -> Vec<PathBuf> {
        let kv = self.kv_durability().map(|_| kv_directory(&self.durable));
        let kv = kv.map(|path| path.canonicalize().unwrap_or(path));
        kv.into_iter().collect()
    }

    /// Whether answers wait for a sync of some log.
    pub(crate) fn awaits_syncs(&self) -> bool {
        let messages = self.durable.policy.map_or(Policy::Sync, |name| name.0);
        let has_messages = self.need_log() && messages == Policy::Sync;
        has_messages || self.kv_durability() == Some(Policy::Sync)
    }

    /// The services, by their names, that write to a log.
    pub(crate) fn services_with_logs(&self) -> Vec<String> {
        let writes = |kind| match kind {
            Kind::Ingest => true,
            Kind::Ack(_) => self.ack_level != Level::None,
            Kind::Kv(_) => self.kv_durability().is_some(),
            Kind::Echo | Kind::Http | Kind::Discard => false,
        };
        let kinds = self.endpoints.iter().map(|endpoint| endpoint.kind);
        kinds
            .filter(|kind| writes(*kind))
            .map(|kind| Named(vec![kind]).to_string())
            .collect()
    }

    /// Whether there is key-value data.
    pub(crate) fn serves_kv(&self) -> bool {
        let mut kinds = self.endpoints.iter().map(|endpoint| endpoint.kind);
        kinds.any(|kind| matches!(kind, Kind::Kv(_)))
    }

    /// Whether this service is served.
    pub(crate) fn serves(&self, kind: Kind) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.kind == kind)
    }

    /// Whether anything that runs writes to the log.
    pub(crate) fn need_log(&self) -> bool {
        self.endpoints.iter().any(|endpoint| match endpoint.kind {
            Kind::Ingest => true,
            Kind::Ack(_) => self.ack_level != Level::None,
            Kind::Echo | Kind::Kv(_) | Kind::Http | Kind::Discard => false,
        })
    }

    /// When the log of keys commits that is there from the start; `None` if there is none, as for a
    /// follower of another server's store that has not taken it over.
    pub(crate) fn kv_log_policy(&self) -> Option<Policy> {
        let owns = self.kv.follow.is_none() || has_taken_over(&kv_directory(&self.durable));
        self.kv_durability().filter(|_| owns)
    }

    /// When changes of keys are durable; `None` for never.
    pub(crate) fn kv_durability(&self) -> Option<Policy> {
        let policy = self.kv.durability().policy();
        policy.filter(|_| self.serves_kv())
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

/// What a turn may take of something.
fn of_turn(what: &str, asked: Option<Size>, default: Size) -> Result<usize, Failure> {
    let (least, most) = (Size(64 << 10), Size(1 << 30));
    let size = asked.unwrap_or(default);
    match usize::try_from(size.0) {
        Ok(bytes) if (least.0..=most.0).contains(&size.0) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "--turn-{what} {size}: from {least} to {most}"
        ))),
    }
}

fn keepalive(asked: Option<Span>) -> Result<Option<Duration>, Failure> {
    let silence = asked.map_or(Some(KEEPALIVE), Span::limit);
    let (least, most) = (Duration::from_secs(1), TcpOptions::KEEPALIVE_MAX);
    match silence {
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
