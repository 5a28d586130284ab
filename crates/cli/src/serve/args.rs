//! The settings of `serve` as flags and as keys of a file: one list for both.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::de::{self, Deserialize, Deserializer};
use tidewire::Network;
use tidewire::{EngineChoice, Placement};

use super::admin::AdminOptions;
use super::admission::AdmissionOptions;
use super::control::ControlAt;
use super::durable::{AckOptions, IngestOptions, LogKey, LogOptions};
use super::endpoint::Named;
use super::http::HttpOptions;
use super::kv::KvOptions;
use super::listen_at::ListenAt;
use super::open::Open;
use super::scoped::{Scoped, list, several};
use super::settings::TokenSource;
use super::tls::{TlsOptions, networks};
use super::unused::Given;
use crate::exit::Failure;
use crate::logging::LogFormat;
use crate::size::Size;
use crate::span::Span;

/// What is shown below the options.
const PORTS: &str = "\
Default ports: echo 12345, ack/request-reply 8000 and 8001, ack/throttled 8002, ack/head-rest 8003, \
ack/sync 8004, ack/async 8005, ingest 7400, kv/resp 6380, kv/binary 7000, \
http 8080, discard 12346.
When ready, one line for each listener goes to stdout, such as
  listening service=ack mode=sync addr=127.0.0.1:8004 engine=uring
SIGTERM and SIGINT stop in order with status 0; a second one ends at once. SIGHUP reads the files of TLS
again. SIGUSR2 starts a successor with the same arguments, which takes over.
Sockets of a service manager (LISTEN_FDS) are served under their names: FileDescriptorName=kv/resp, admin, ...";

/// What to serve, and how.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = PORTS)]
pub(crate) struct Args {
    /// Reads settings from this TOML file: the same names as the flags without their dashes in
    /// front, the services as `services = [...]`; those of the durable log in a section `[log]`, of
    /// ingest in `[ingest]`, of ack in `[ack]`, of the key-value store in `[kv]`, without `kv-`, of
    /// TLS in `[tls]`, without `tls-`, of http in `[http]`,
    /// without `http-`, of admission in `[admission]`. A `[[listen]]` may be a table:
    /// service, at, mode, owner, tls, tls-cert, tls-key, tls-client-ca, proxy-from, and what `[admission]`
    /// has, for this listener. Flags win.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Everything that may be set; absent means the default.
#[derive(Debug, Default, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Options {
    /// Services to run: echo, ack (all modes), ack/MODE, ingest, kv (both modes), kv/MODE, http,
    /// discard [default: all but http and discard]
    #[arg(value_name = "SERVICE")]
    pub(crate) services: Vec<Named>,

    /// What runs the loops: threads, epoll, uring, or auto, which takes uring where it works
    /// [default: auto]
    #[arg(long)]
    #[serde(deserialize_with = "from_text")]
    pub(crate) engine: Option<EngineChoice>,

    /// Loops that carry connections; the threads engine has one for each connection instead
    /// [default: one for each core that the process may run on]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,

    /// How connections come to loops: shared (each accepts for itself), acceptor (one more loop accepts
    /// and hands them out in turn) or least-connections (it hands them to who carries fewest)
    /// [default: shared]
    #[arg(long, value_name = "HOW")]
    pub(crate) placement: Option<PlacementName>,

    /// IP address for all listeners that don't name one [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub(crate) bind: Option<IpAddr>,

    /// Listens for a service at IP:PORT, PORT on the --bind address, or a Unix socket (unix:/PATH or
    /// unix:@NAME), instead of its default ports; may be repeated. A path may have ?mode=0660&owner=USER:GROUP
    /// behind it, which say who may connect. Port 0 takes any free port. tls: or
    /// plain: in front of ADDR says what is spoken there
    #[arg(long, value_name = "SERVICE[/MODE]=ADDR")]
    pub(crate) listen: Vec<ListenAt>,

    /// Lets everybody in who reaches these services, secret or not: all, or names as above with a comma
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

    /// Networks, such as 10.0.0.0/8, or unix, in which proxies stand: who connects from there must say
    /// with a header of the PROXY protocol, version 1 or 2, for whom it does; others cannot. Not given
    /// for a listener of the file that has a proxy-from of its own
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    #[serde(deserialize_with = "networks")]
    pub(crate) proxy_from: Option<Vec<Network>>,

    /// How long a TLS handshake, or the header of a proxy, may take [default: 10 and 5]
    #[arg(long, value_name = "SECS")]
    pub(crate) handshake: Option<Span>,

    /// Cores to pin the loops to, such as 0,1 [default: not pinned]
    #[arg(long, value_name = "CORES", value_delimiter = ',')]
    pub(crate) cpus: Vec<usize>,

    /// Longest time to poll before a loop sleeps; spares the wake-up, burns the core
    /// [default: 0, off]
    #[arg(long, value_name = "MICROS")]
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
    #[serde(deserialize_with = "several")]
    pub(crate) idle: Vec<Scoped<Span>>,

    /// Closes connections whose client has said nothing at all for this long from the beginning; 0 is
    /// never [default: 0; ingest awaits its hello for 5 s]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    #[serde(deserialize_with = "several")]
    pub(crate) first_byte: Vec<Scoped<Span>>,

    /// How long a request may take from its first byte to its last; each KiB of it that has come gives
    /// a second more. Who takes longer is cut (http: answered 408). 0 is no limit
    /// [default: 60; http 10 for a head, 20 for a body]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    #[serde(deserialize_with = "several")]
    pub(crate) whole_request: Vec<Scoped<Span>>,

    /// Cuts connections whose client takes none of the output that waits for it for this long, whatever
    /// it sends meanwhile; 0 is never [default: 60]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    #[serde(deserialize_with = "several")]
    pub(crate) write_stall: Vec<Scoped<Span>>,

    /// Ends connections in order that have been open for this long; 0 is never [default: 0]
    #[arg(long, value_name = "[SERVICE=]SECS")]
    #[serde(deserialize_with = "several")]
    pub(crate) lifetime: Vec<Scoped<Span>>,

    /// Largest payload of an ack message, in bytes; a larger one closes its connection
    /// [default: 16777216]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_payload: Option<u32>,

    /// Memory that all connections together may hold in queued output, carried input and chunks of
    /// input that are kept. When it runs short, those that hold much are not read from, then new ones are
    /// refused, then those that hold most are closed [default: half of the machine's memory, or of the control group's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,

    /// How long a finished connection may take to flush, and then to see its peer close
    /// [default: 5]
    #[arg(long, value_name = "SECS")]
    pub(crate) linger: Option<Span>,

    /// Congestion control of accepted connections, such as cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Has the kernel ask TCP clients that have been silent for this long whether they are still there, three
    /// times, a third of it apart: a connection whose client's host has vanished fails after twice this
    /// time. At most 32767 s; 0 asks nobody [default: 300]
    #[arg(long, value_name = "SECS")]
    pub(crate) tcp_keepalive: Option<Span>,

    /// How logs are written to stderr: text for people, logfmt or json, a line each [default: text on a
    /// terminal, else logfmt]
    #[arg(long)]
    pub(crate) log_format: Option<LogFormat>,

    /// What is logged: error, warn, info, debug, trace, or pairs such as tidewire=debug
    /// [default: RUST_LOG, else info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip)]
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

    /// Who is let in; in the file the table `[admission]`.
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
    #[serde(skip)]
    pub(crate) takeover: bool,

    /// Takes over even if that forgets keys: those of a store without --durability
    #[arg(long, requires = "takeover", help_heading = "Handover")]
    #[serde(skip)]
    pub(crate) takeover_forget: bool,

    /// TLS; in the file the table `[tls]`.
    #[command(flatten, next_help_heading = "TLS")]
    pub(crate) tls: TlsOptions,

    /// Flags that are for something which may not be there.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) given: Given,

    /// The key `log` of the file.
    #[arg(skip)]
    #[serde(rename = "log")]
    log_key: LogKey,

    /// The admin listener; in the file the table `[admin]`.
    #[command(flatten, next_help_heading = "Admin listener")]
    pub(crate) admin: AdminOptions,

    /// The durable log; in the file the table `[log]`.
    #[command(flatten, next_help_heading = "Durable log")]
    #[serde(skip)]
    pub(crate) durable: LogOptions,

    /// The service ingest; in the file the table `[ingest]`.
    #[command(flatten, next_help_heading = "Ingest")]
    pub(crate) ingest: IngestOptions,

    /// The service ack; in the file the table `[ack]`.
    #[command(flatten, next_help_heading = "Ack")]
    pub(crate) ack: AckOptions,

    /// The service http; in the file the table `[http]`.
    #[command(flatten, next_help_heading = "HTTP")]
    pub(crate) http: HttpOptions,

    /// The key-value store; in the file the table `[kv]`.
    #[command(flatten, next_help_heading = "Key-value store")]
    pub(crate) kv: KvOptions,
}

/// How connections come to loops.
#[derive(Clone, Copy, Debug, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlacementName {
    /// Each loop accepts for itself.
    Shared,
    /// One more loop accepts.
    Acceptor,
    /// It gives to who has least.
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

impl Args {
    /// What the flags, the environment and the file say together.
    pub(crate) fn options(self) -> Result<(Options, TokenSource), Failure> {
        let mut flags = self.options;
        flags.given = Given::among(&flags);
        flags.take_secrets()?;
        let token_source = TokenSource {
            flags: flags.ingest.clone(),
            config: self.config.clone(),
        };
        let options = match &self.config {
            Some(path) => flags.over(Options::read(path)?),
            None => flags,
        };
        Ok((options, token_source))
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

    /// Reads a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Options, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Failure::usage(format!(
                "cannot read the configuration {}: {e}",
                path.display()
            ))
        })?;
        Options::parse(&text).map_err(|e| {
            let e = e.to_string();
            Failure::usage(format!(
                "configuration {}: {}",
                path.display(),
                e.trim_end()
            ))
        })
    }

    fn parse(text: &str) -> Result<Options, toml::de::Error> {
        let mut options: Options = toml::from_str(text)?;
        let key = std::mem::take(&mut options.log_key);
        (options.log, options.durable) = (key.filter, key.options);
        Ok(options)
    }

    /// Takes the secrets that the environment holds. A flag goes before it, and it before the file.
    pub(crate) fn take_secrets(&mut self) -> Result<(), Failure> {
        self.kv.take_secret()?;
        self.admin.take_secret()?;
        self.ingest.take_secret()
    }

    /// These, and where one is absent, that of `base`.
    pub(crate) fn over(self, base: Options) -> Options {
        Options {
            services: list(self.services, base.services),
            engine: self.engine.or(base.engine),
            workers: self.workers.or(base.workers),
            placement: self.placement.or(base.placement),
            bind: self.bind.or(base.bind),
            listen: list(self.listen, base.listen),
            open: list(self.open, base.open),
            proxy_from: self.proxy_from.or(base.proxy_from),
            handshake: self.handshake.or(base.handshake),
            admission: self.admission.over(base.admission),
            tls: self.tls.over(base.tls),
            cpus: list(self.cpus, base.cpus),
            busy_poll: self.busy_poll.or(base.busy_poll),
            direct_descriptors: self.direct_descriptors.or(base.direct_descriptors),
            idle: list(self.idle, base.idle),
            first_byte: list(self.first_byte, base.first_byte),
            whole_request: list(self.whole_request, base.whole_request),
            write_stall: list(self.write_stall, base.write_stall),
            lifetime: list(self.lifetime, base.lifetime),
            max_payload: self.max_payload.or(base.max_payload),
            memory: self.memory.or(base.memory),
            linger: self.linger.or(base.linger),
            congestion: self.congestion.or(base.congestion),
            tcp_keepalive: self.tcp_keepalive.or(base.tcp_keepalive),
            log_format: self.log_format.or(base.log_format),
            log: self.log.or(base.log),
            log_connections: self.log_connections || base.log_connections,
            stop_deadline: self.stop_deadline.or(base.stop_deadline),
            stall_threshold: self.stall_threshold.or(base.stall_threshold),
            stats_interval: self.stats_interval.or(base.stats_interval),
            control: self.control.or(base.control),
            takeover: self.takeover,
            takeover_forget: self.takeover_forget,
            admin: self.admin.over(base.admin),
            given: self.given,
            log_key: LogKey::default(),
            durable: self.durable.over(base.durable),
            ingest: self.ingest.over(base.ingest),
            ack: self.ack.over(base.ack),
            http: self.http.over(base.http),
            kv: self.kv.over(base.kv),
        }
    }
}

fn from_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<EngineChoice>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_flags_say() {
        let text = "services = ['echo', 'ack/sync']\nengine = 'epoll'\nworkers = 2\n\
                    listen = ['echo=127.0.0.1:0']\nidle = 2.5\nstats-interval = '500ms'\n\
                    placement = 'acceptor'\ncpus = [0, 1]\nlog-format = 'json'\n";
        let options: Options = toml::from_str(text).unwrap();
        assert_eq!(options.services.len(), 2);
        assert_eq!(options.engine, Some(EngineChoice::Epoll));
        assert_eq!(options.idle[0].value.0.as_millis(), 2500);
        assert_eq!(options.cpus, [0, 1]);
    }

    #[test]
    fn tables_know_the_names_of_the_flags() {
        let text = "[log]\ndata = '/data'\nsync = 'os'\nlog-payload = '1KiB'\nretain-bytes = '1GiB'\n\
                    retain-age = '7d'\nremember-producers = '1d'\non-log-failure = 'refuse'\n\
                    [ingest]\ningest-level = 'received'\ningest-token-file = 'tokens'\n\
                    [ack]\nack-level = 'durable'\nack-stream = 's'\n";
        let options = Options::parse(text).unwrap();
        assert_eq!(options.durable.dir.unwrap(), Path::new("/data"));
        assert_eq!(options.durable.policy.unwrap().to_string(), "os");
        assert_eq!(options.durable.payload_max.unwrap().0, 1 << 10);
        assert_eq!(options.durable.retention_bytes.unwrap().0, 1 << 30);
        assert!(options.durable.retention_age.is_some());
        assert!(options.durable.on_failure.is_some());
        assert!(options.ingest.level.is_some() && options.ingest.token_file.is_some());
        assert!(options.ack.level.is_some() && options.ack.stream.is_some());
    }

    #[test]
    fn the_log_and_its_services_have_tables() {
        let text = "[log]\ndir = '/data'\npolicy = 'interval:50ms'\nsegment = '16MiB'\n\
                    retention-bytes = 1000000\nretention-age = '7d'\nverify = 'tail'\n\
                    [ingest]\nquota-messages = 10\nwindow-bytes = '1MiB'\n\
                    tokens = [{ name = 'a', sha256 = 'ff', streams = ['s'] }]\n\
                    [ack]\nlevel = 'durable'\n";
        let options = Options::parse(text).unwrap();
        assert_eq!(options.durable.dir.unwrap(), Path::new("/data"));
        assert_eq!(options.durable.policy.unwrap().to_string(), "interval:50ms");
        assert_eq!(options.durable.segment.unwrap().0, 16 << 20);
        assert_eq!(options.ingest.quota_messages, Some(10));
        assert_eq!(options.ingest.tokens.len(), 1);
        assert_eq!(options.ack.level, Some(tidewire_ingest::Level::Durable));
        // As before there was a table.
        let options = Options::parse("log = 'debug'").unwrap();
        assert_eq!(options.log.unwrap(), "debug");
        let e = Options::parse("[log]\nsegmnt = 1").unwrap_err().to_string();
        assert!(e.contains("segmnt") && e.contains("segment"), "{e}");
    }

    #[test]
    fn flags_win_over_the_file() {
        let file: Options =
            toml::from_str("workers = 2\nbusy-poll = 30\ncpus = [0]\ndirect-descriptors = true")
                .unwrap();
        let flags = Options {
            workers: Some(3),
            ..Options::default()
        };
        let all = flags.over(file);
        assert_eq!((all.workers, all.busy_poll), (Some(3), Some(30)));
        assert_eq!(all.cpus, [0]);
        assert_eq!(all.direct_descriptors, Some(true));
    }

    #[test]
    fn a_key_nobody_knows_is_an_error_that_names_it() {
        let e = toml::from_str::<Options>("wokers = 2")
            .unwrap_err()
            .to_string();
        assert!(e.contains("wokers") && e.contains("workers"), "{e}");
        let e = toml::from_str::<Options>("engine = 'steam'")
            .unwrap_err()
            .to_string();
        assert!(e.contains("steam"), "{e}");
    }
}
