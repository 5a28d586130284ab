//! The flags of `serve`, which are its settings; [`super::schema`] makes the keys of the file from them.

use std::path::PathBuf;

use tidewire::Network;
use tidewire::{EngineChoice, Placement};

use super::admin_options::AdminOptions;
use super::admission::AdmissionOptions;
use super::control::ControlAt;
use super::durable::{AckOptions, IngestOptions, LogOptions};
use super::http::HttpOptions;
use super::kind::Named;
use super::kv_options::KvOptions;
use super::listen_at::ListenAt;
use super::open::Open;
use super::scoped::Scoped;
use super::tls::TlsOptions;
use crate::count;
use crate::exit::Failure;
use crate::host::Host;
use crate::logging::LogFormat;
use crate::size::Size;
use crate::span::Span;

/// What is shown below the options.
const NOTES: &str = "\
Default ports: echo 12345, ingest 7400, kv/resp 6380, kv/binary 7000; when they are named: http 8080, discard 12346, \
ack/request-reply 8000 and 8001, ack/throttled 8002, ack/head-rest 8003, ack/sync 8004, ack/async 8005.

When ready, one line for each listener goes to stdout, such as
  listening service=kv mode=resp addr=127.0.0.1:6380 engine=uring

SIGTERM and SIGINT stop in order with status 0; a second one ends at once. SIGHUP reads the files of TLS
again. SIGUSR2 starts a successor with the same arguments, which takes over.

Sockets of a service manager (LISTEN_FDS) are served under their names: FileDescriptorName=kv/resp, admin, ...

Secrets come from files (--kv-password-file, --ingest-token-file, --admin-token-file) and from the environment \
(TIDEWIRE_KV_PASSWORD, TIDEWIRE_INGEST_TOKEN, TIDEWIRE_ADMIN_TOKEN), never from the command line, which others see.";

/// The flags.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = NOTES)]
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

/// Everything that may be set; absent means the default.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Services to run: echo, ack (all modes), ack/MODE, ingest, kv (both modes), kv/MODE, http,
    /// discard [default: echo, ingest and kv]
    #[arg(value_name = "SERVICE")]
    pub(crate) services: Vec<Named>,

    /// What runs the loops: threads, epoll, uring, or auto, which takes uring where it works
    /// [default: auto]
    #[arg(long)]
    pub(crate) engine: Option<EngineChoice>,

    /// Loops that carry connections; the threads engine has one for each connection instead
    /// [default: one for each core that the process may run on]
    #[arg(long, value_name = "N", value_parser = count::plain::<usize>)]
    pub(crate) workers: Option<usize>,

    /// How connections come to loops: shared (each accepts for itself), acceptor (one more loop accepts
    /// and hands them out in turn) or least-connections (it hands them to the loop that has fewest)
    /// [default: shared]
    #[arg(long, value_name = "HOW")]
    pub(crate) placement: Option<PlacementName>,

    /// IP address for all listeners that don't name one, or a host, for all its addresses [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    pub(crate) bind: Option<Host>,

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

    /// How long a TLS handshake, or the header of a proxy, may take [default: 10 and 5]
    #[arg(long, value_name = "SECS")]
    pub(crate) handshake: Option<Span>,

    /// Cores to pin the loops to, such as 0,1 [default: not pinned]
    #[arg(long, value_name = "CORES", value_delimiter = ',', value_parser = count::plain::<usize>)]
    pub(crate) cpus: Vec<usize>,

    /// Longest time to poll before a loop sleeps; spares the wake-up, burns the core
    /// [default: 0, off]
    #[arg(long, value_name = "MICROS", value_parser = count::plain::<u64>)]
    pub(crate) busy_poll: Option<u64>,

    /// On io_uring, keeps connections in a table of each loop's ring instead of among the descriptors of the
    /// process, whose limit (RLIMIT_NOFILE) is then one for each loop; needs Linux 6.8. What looks at the
    /// descriptors of the process from outside sees none of them [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) direct_descriptors: Option<bool>,

    /// Closes connections on which nothing moves for this long; 0 is never. Here and in the four below,
    /// SERVICE= in front is for that service; may be repeated. An ingest connection may be
    /// quiet for ever, one of kv/resp between commands, too (--kv-timeout)
    /// [default: 5 s for ack, 60 s for others]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    pub(crate) idle: Vec<Scoped<Span>>,

    /// Closes connections whose client has said nothing at all for this long from the beginning; 0 is
    /// never [default: 0; ingest awaits its hello for 5 s]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    pub(crate) first_byte: Vec<Scoped<Span>>,

    /// How long a request may take from its first byte to its last; each KiB of it that has come gives a second more. A client
    /// that takes longer is cut (http: answered 408). 0 is no limit
    /// [default: 60; http 10 for a head, 20 for a body]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    pub(crate) whole_request: Vec<Scoped<Span>>,

    /// Cuts connections whose client takes none of the output that waits for it for this long, whatever
    /// it sends meanwhile; 0 is never [default: 60]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    pub(crate) write_stall: Vec<Scoped<Span>>,

    /// Ends connections in order that have been open for this long; 0 is never [default: 0]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    pub(crate) lifetime: Vec<Scoped<Span>>,

    /// Largest payload of an ack message, in bytes; a larger one closes its connection
    /// [default: 16777216]
    #[arg(long, value_name = "BYTES", value_parser = count::plain::<u32>)]
    pub(crate) max_payload: Option<u32>,

    /// Memory that all connections together may hold in queued output, carried input and chunks of
    /// input that are kept. When it runs short, connections that hold much are not read from, then new
    /// ones are refused, then the ones that hold most are closed [default: half of the machine's memory, or of the control group's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,

    /// Output that a loop makes in one turn, for all its connections, before it hears others: 64KiB to 1GiB. A connection that makes more waits while others
    /// do, and goes on a quarter of it at a time; one that makes little does not wait
    /// [default: 256KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) turn_output: Option<Size>,

    /// Output that a loop sends in one turn, for all its connections: 64KiB to 1GiB. A connection
    /// with more to send waits while others do, and goes on a quarter of it at a time [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) turn_send: Option<Size>,

    /// Input that a loop takes in one turn where more than 16 connections have some: 64KiB to 1GiB. Each is given the
    /// same part of it, at least a chunk, and the rest in the turns that follow. For epoll [default: 4MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) turn_receive: Option<Size>,

    /// How long a finished connection may take to flush, and then to see its peer close
    /// [default: 5]
    #[arg(long, value_name = "SECS")]
    pub(crate) linger: Option<Span>,

    /// Congestion control of accepted connections, such as cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Has the kernel ask TCP clients that have been silent for this long whether they are still there, three
    /// times, a third of it apart: a connection whose client's host has vanished fails after twice this
    /// time. At most 32767 s; 0 turns that off [default: 300]
    #[arg(long, value_name = "SECS")]
    pub(crate) tcp_keepalive: Option<Span>,

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

    /// How long a graceful stop may take before connections are cut [default: 10]
    #[arg(long, value_name = "SECS")]
    pub(crate) stop_deadline: Option<Span>,

    /// When a loop that does not get on counts as stuck: that is logged, with the service and the callback
    /// that it is in, and counted. 5ms or more; 0 does not look [default: 100ms]
    #[arg(long, value_name = "SECS")]
    pub(crate) stall_threshold: Option<Span>,

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

    /// The service ingest.
    #[command(flatten, next_help_heading = "Ingest")]
    pub(crate) ingest: IngestOptions,

    /// The service ack.
    #[command(flatten, next_help_heading = "Ack")]
    pub(crate) ack: AckOptions,

    /// The service http.
    #[command(flatten, next_help_heading = "HTTP")]
    pub(crate) http: HttpOptions,

    /// The key-value store.
    #[command(flatten, next_help_heading = "Key-value store")]
    pub(crate) kv: KvOptions,
}

/// How connections come to loops.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum PlacementName {
    /// Each loop accepts for itself.
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

    /// Takes the secrets that the environment holds, where nothing that goes before it says them.
    pub(crate) fn take_secrets(&mut self) -> Result<(), Failure> {
        self.kv.take_secret()?;
        self.admin.take_secret()?;
        self.ingest.take_secret()
    }
}
