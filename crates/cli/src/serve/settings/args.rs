//! The flags of `serve`, which are its settings; [`super::schema`] makes the keys of the file from them.

use std::path::PathBuf;
use std::time::Duration;

use tidewire::{EngineChoice, Limits, Network, Placement};

use crate::count;
use crate::host::Host;
use crate::logging::LogFormat;
use crate::serve::admin::options::AdminOptions;
use crate::serve::handover::control::ControlAt;
use crate::serve::listeners::admission::AdmissionOptions;
use crate::serve::listeners::deadlines::Deadlines;
use crate::serve::listeners::kind::{Kind, Named, in_words, services};
use crate::serve::listeners::listen_at::ListenAt;
use crate::serve::listeners::open::Open;
use crate::serve::listeners::tls::{Handshake, TlsOptions};
use crate::serve::logs::options::LogOptions;
use crate::serve::settings::defaults::{secs, with_default};
use crate::serve::settings::schema::variable;
use crate::size::Size;
use crate::span::Span;

/// The secret of the admin listener; services have secrets of their own.
pub(crate) const ADMIN_TOKEN: &str = "admin-token";

/// The text below the options.
fn notes() -> String {
    let ports = |kind: Kind| {
        let ports: Vec<String> = kind.ports().iter().map(u16::to_string).collect();
        format!("{kind} {}", ports.join(" and "))
    };
    let listed = |is_default: bool| {
        let services = services().filter(move |service| service.is_default == is_default);
        let kinds = services.flat_map(|service| service.kinds());
        kinds.map(ports).collect::<Vec<_>>().join(", ")
    };
    let own = services().filter_map(|service| service.secret);
    let secrets: Vec<&str> = [ADMIN_TOKEN].into_iter().chain(own).collect();
    let files = secrets.iter().map(|name| format!("--{name}-file"));
    let variables = secrets.iter().map(|name| variable(name));
    format!(
        "\
Default ports: {}; when they are named: {}.

When ready, one line for each listener goes to stdout, such as
  listening service=kv mode=resp addr=127.0.0.1:6380 engine=uring

SIGTERM and SIGINT stop in order with status 0; a second one ends at once. SIGHUP reads the files of TLS
again. SIGUSR2 starts a successor with the same arguments, which takes over.

Sockets of a service manager (LISTEN_FDS) are served under their names: FileDescriptorName=kv/resp, admin, ...

Secrets come from files ({}) and from the environment \
({}), never from the command line, which others see.",
        listed(true),
        listed(false),
        files.collect::<Vec<_>>().join(", "),
        variables.collect::<Vec<_>>().join(", "),
    )
}

/// The services that may be named, for help.
fn names() -> String {
    let names = services().map(|service| match service.modes.len() {
        1 => service.name.to_owned(),
        n => {
            let all = if n == 2 { "both" } else { "all" };
            format!("{0} ({all} modes), {0}/MODE", service.name)
        }
    });
    let default = services().filter(|service| service.is_default);
    let default = in_words(default.map(|service| service.name), "and");
    let names = names.collect::<Vec<_>>().join(", ");
    format!("Services to run: {names} [default: {default}]")
}

/// The flags.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = notes())]
pub(crate) struct Flags {
    /// Reads settings from this TOML file: its keys are the names of the flags without the dashes in front,
    /// at the top or in tables such as [kv]. `tidewire config example` prints one with all of them, `tidewire config
    /// check` says what is wrong with one. A flag goes before the environment (TIDEWIRE_WORKERS for --workers), and
    /// that before the file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Default bytes that a turn of a loop makes, sends and receives.
const TURN_OUTPUT: Size = Size(256 << 10);
const TURN_SEND: Size = Size(1 << 20);
const TURN_RECEIVE: Size = Size(4 << 20);

/// When a loop counts as stuck.
const STALL: Duration = Duration::from_millis(100);

/// Default time of a graceful stop.
const STOP: Duration = Duration::from_secs(10);

/// Silence after which the kernel asks TCP clients whether they are still there: Redis's.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// All settings of the frame; for absent ones the system or each service decides.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Services to run.
    #[arg(value_name = "SERVICE", help = names())]
    pub(crate) services: Vec<Named>,

    /// What runs the loops: threads, epoll, uring, or auto, which takes uring where it works
    #[arg(long, default_value_t = EngineChoice::default())]
    pub(crate) engine: EngineChoice,

    /// Loops that carry connections; the threads engine has one for each connection instead
    /// [default: one for each core that the process may run on]
    #[arg(long, value_name = "N", value_parser = count::plain::<usize>)]
    pub(crate) workers: Option<usize>,

    /// How connections come to loops: shared (each accepts for itself), acceptor (one more loop accepts
    /// and hands them out in turn) or least-connections (it hands them to the loop that has fewest)
    #[arg(long, value_name = "HOW", value_enum, default_value_t = PlacementName::Shared)]
    pub(crate) placement: PlacementName,

    /// IP address for all listeners that don't name one, or a host, for all its addresses
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) bind: Host,

    /// Listens for a service at IP:PORT, HOST:PORT (all its addresses), PORT on the --bind address, or a Unix socket (unix:/PATH or
    /// unix:@NAME), instead of its default ports; may be repeated. A path may have ?mode=0660&owner=USER:GROUP
    /// behind it, which say which users may connect. Port 0 takes any free port. tls: or
    /// plain: in front of ADDR says what is spoken there
    #[arg(long, value_name = "SERVICE[/MODE]=ADDR")]
    pub(crate) listen: Vec<ListenAt>,

    /// Lets every client in that reaches these services, secret or not: all, or names as above with a comma
    /// in between. Without it kv and ingest, and ack with a level, turn away other hosts until there is
    /// a password or token; and a port that knows no password is not opened beside one that asks for it
    #[arg(
        long,
        value_name = "SERVICES",
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    pub(crate) open: Vec<Open>,

    /// Networks, such as 10.0.0.0/8, or unix, in which proxies stand: a connection from there must name its client
    /// with a header of the PROXY protocol, version 1 or 2; others cannot. Not given
    /// for a listener of the file that has a proxy-from of its own
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pub(crate) proxy_from: Option<Vec<Network>>,

    /// How long a TLS handshake, or the header of a proxy, may take.
    #[arg(long, value_name = "SECS",
          help = with_default("How long a TLS handshake, or the header of a proxy, may take", Handshake::default()))]
    pub(crate) handshake: Option<Span>,

    /// Cores to pin the loops to, such as 0,1 [default: not pinned]
    #[arg(long, value_name = "CORES", value_delimiter = ',', value_parser = count::plain::<usize>)]
    pub(crate) cpus: Vec<usize>,

    /// Longest time to poll before a loop sleeps; spares the wake-up, burns the core. 0 is off
    #[arg(long, value_name = "MICROS", value_parser = count::plain::<u64>, default_value_t = 0)]
    pub(crate) busy_poll: u64,

    /// On io_uring, keeps connections in a table of each loop's ring instead of among the descriptors of the
    /// process, whose limit (RLIMIT_NOFILE) is then one for each loop; needs Linux 6.8. What looks at the
    /// descriptors of the process from outside sees none of them
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true", default_value_t = false,
        action = clap::ArgAction::Set)]
    pub(crate) direct_descriptors: bool,

    /// Deadlines of connections.
    #[command(flatten)]
    pub(crate) deadlines: Deadlines,

    /// Largest payload of an ack message.
    #[arg(long, value_name = "BYTES", value_parser = count::plain::<u32>,
          help = "Largest payload of an ack message, in bytes; a larger one closes its connection")]
    pub(crate) max_payload: Option<u32>,

    /// Memory that all connections together may hold in queued output, carried input and chunks of
    /// input that are kept. When it runs short, connections that hold much are not read from, then new
    /// ones are refused, then the ones that hold most are closed [default: half of the machine's memory, or of the control group's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,

    /// Output that a loop makes in one turn, for all its connections, before it hears others: 64KiB to 1GiB. A connection that makes more waits while others
    /// do, and goes on a quarter of it at a time; one that makes little does not wait
    #[arg(long, value_name = "SIZE", default_value_t = TURN_OUTPUT)]
    pub(crate) turn_output: Size,

    /// Output that a loop sends in one turn, for all its connections: 64KiB to 1GiB. A connection
    /// with more to send waits while others do, and goes on a quarter of it at a time
    #[arg(long, value_name = "SIZE", default_value_t = TURN_SEND)]
    pub(crate) turn_send: Size,

    /// Input that a loop takes in one turn where more than 16 connections have some: 64KiB to 1GiB. Each is given the
    /// same part of it, at least a chunk, and the rest in the turns that follow. For epoll
    #[arg(long, value_name = "SIZE", default_value_t = TURN_RECEIVE)]
    pub(crate) turn_receive: Size,

    /// How long a finished connection may take to flush, and then to see its peer close
    #[arg(long, value_name = "SECS", default_value = secs(Limits::default().linger))]
    pub(crate) linger: Span,

    /// Congestion control of accepted connections, such as cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Has the kernel ask TCP clients that have been silent for this long whether they are still there, three
    /// times, a third of it apart: a connection whose client's host has vanished fails after twice this
    /// time. At most 32767 s; 0 turns that off
    #[arg(long, value_name = "SECS", default_value = secs(KEEPALIVE))]
    pub(crate) tcp_keepalive: Span,

    /// How logs are written to stderr: text for people, logfmt or json, a line each [default: text on a
    /// terminal, else logfmt]
    #[arg(long)]
    pub(crate) log_format: Option<LogFormat>,

    /// What is logged: error, warn, info, debug, trace, or pairs such as tidewire=debug
    /// [default: RUST_LOG, else info]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// Logs a line at info for each connection that is closed: service, peer, reason, bytes, seconds. What is said
    /// of the target tidewire::connection in --log, or at the admin listener, goes before this
    /// [default: no such lines]
    #[arg(long)]
    pub(crate) log_connections: bool,

    /// How long a graceful stop may take before connections are cut
    #[arg(long, value_name = "SECS", default_value = secs(STOP))]
    pub(crate) stop_deadline: Span,

    /// When a loop that does not get on counts as stuck: that is logged, with the service and the callback
    /// that it is in, and counted. 5ms or more; 0 does not look
    #[arg(long, value_name = "SECS", default_value = secs(STALL))]
    pub(crate) stall_threshold: Span,

    /// Logs the counters this often [default: only at the end]
    #[arg(long, value_name = "SECS")]
    pub(crate) stats_interval: Option<Span>,

    /// Which clients are let in.
    #[command(flatten, next_help_heading = "Admission")]
    pub(crate) admission: AdmissionOptions,

    /// A Unix socket at which a successor, of the same user or root, asks for all listeners; off has none
    /// [default: tidewire.sock in RUNTIME_DIRECTORY, else in XDG_RUNTIME_DIR, else for root in /run; left out,
    /// with a warning, where it is taken]
    #[arg(long, value_name = "PATH", help_heading = "Handover")]
    pub(crate) control: Option<ControlAt>,

    /// Takes over from the server whose control socket this is: its listeners are served here, no connection
    /// attempt is refused meanwhile, and what it has accepted it finishes. What it listens to must be in these
    /// settings, too; its logs are taken over when it has committed them
    #[arg(long, help_heading = "Handover")]
    pub(crate) takeover: bool,

    /// Takes over even if that leaves keys or a log behind: keys of a store without --durability, or a store or log of the
    /// running server that these settings do not name
    #[arg(long, requires = "takeover", help_heading = "Handover")]
    pub(crate) takeover_forget: bool,

    /// TLS.
    #[command(flatten, next_help_heading = "TLS")]
    pub(crate) tls: TlsOptions,

    /// The admin listener.
    #[command(flatten, next_help_heading = "Admin listener")]
    pub(crate) admin: AdminOptions,

    /// The durable log.
    #[command(flatten, next_help_heading = "Durable log")]
    pub(crate) durable: LogOptions,
}

/// How connections come to loops.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum PlacementName {
    /// Each loop accepts its own connections.
    Shared,
    /// One more loop accepts.
    Acceptor,
    /// An acceptor gives each connection to the loop that has fewest.
    LeastConnections,
}

impl From<PlacementName> for Placement {
    fn from(name: PlacementName) -> Placement {
        match name {
            PlacementName::Shared => Placement::Shared,
            PlacementName::Acceptor => Placement::Acceptor,
            PlacementName::LeastConnections => Placement::LeastConnections,
        }
    }
}

impl Options {
    /// Adds listeners that are there already. If no service is named, they are all that is meant.
    pub(crate) fn add_given(&mut self, given: &[ListenAt]) {
        for one in given {
            let same = |l: &ListenAt| l.kind == one.kind && l.place == one.place;
            if !self.listen.iter().any(same) {
                self.listen.push(one.clone());
            }
        }
        if self.services.is_empty() {
            let kinds = self.listen.iter().map(|listen| Named(vec![listen.kind]));
            self.services = kinds.collect();
        }
    }
}
