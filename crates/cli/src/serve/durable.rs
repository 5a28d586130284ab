//! The settings of the durable log and of the services that write to it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use tidewire_ingest::Level;
use tidewire_ingest::native::{self, Quota, Rights, Token};
use tidewire_kv::durable::KvLog;
use tidewire_log::{Kind, PRODUCER_IDLE, Policy, Selection, Settings, Verify};

use crate::exit::Failure;
use crate::secret::Secret;
use crate::size::Size;
use crate::span::Span;

/// Default directory of the log.
pub(crate) const DIRECTORY: &str = "tidewire-data";

/// The log.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LogOptions {
    /// Directory of the durable log, made if need be; used by ingest, and by ack with a level. That of kv
    /// with a durability is in it
    /// [default: tidewire-data]
    #[arg(long = "data", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// When messages count as durable: sync (each group is synced before it is acknowledged),
    /// interval:50ms (synced at least this often, acknowledged then), or os (no producer waits for a sync,
    /// and none is granted durable) [default: sync]
    #[arg(long = "sync", id = "log_policy", value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,

    /// With --sync sync or --durability sync: waits so long at most, after each sync, for the clients answered by it to come back, so
    /// that the next one serves more of them. Fewer and larger syncs, for
    /// a disk that is slow or shared; a single client never waits; at most 1s [default: 0s]
    #[arg(long = "group-wait", value_name = "TIME")]
    pub(crate) group_wait: Option<Span>,

    /// Size of the logs' segments.
    #[arg(long = "segment", value_name = "SIZE",
          help = format!("Size of the logs' segments. What one command or transaction of kv changes may be a \
                          sixth of it [default: {}; for kv {}, less on a disk of less than 3GiB]",
                         Size(Settings::default().segment_bytes),
                         Size(KvLog::settings(Policy::Sync).segment_length(0) >> 20 << 20)))]
    pub(crate) segment: Option<Size>,

    /// Largest payload that the log takes.
    #[arg(long = "log-payload", id = "log_payload_max", value_name = "SIZE",
          help = sized("Largest payload that the log takes", Settings::default().payload_max.into()))]
    pub(crate) payload_max: Option<Size>,

    /// The most that the log takes on the disk, reserved room included: the oldest segments are
    /// removed before. At least four times --segment, which is made smaller for it unless it is given
    /// [default: no limit]
    #[arg(long = "retain-bytes", value_name = "SIZE")]
    pub(crate) retention_bytes: Option<Size>,

    /// Removes segments whose newest record is older than this, such as 7d [default: no limit]
    #[arg(long = "retain-age", value_name = "TIME")]
    pub(crate) retention_age: Option<Span>,

    /// How long an idle producer is remembered.
    #[arg(long = "remember-producers", value_name = "TIME",
          help = counted("How long a producer may be idle, counting only time in which the log is open, \
                          before it is forgotten and what it sends again is stored again",
                         Span(PRODUCER_IDLE)))]
    pub(crate) remember: Option<Span>,

    /// What is checked when the log is opened: all, or tail (the newest segment, and older
    /// ones without a valid index) [default: all]
    #[arg(long, value_name = "WHAT")]
    pub(crate) verify: Option<VerifyName>,

    /// Carries what is committed in the log of messages on to a home of many machines: kafka://HOST[:PORT],.../TOPIC,
    /// with ?partition=N for another one than 0. Level replicated is acknowledged there. Needs a tidewire that was built
    /// with the feature kafka, and a log that syncs [default: none]
    #[arg(long = "replicate", value_name = "HOME")]
    pub(crate) replicate: Option<String>,

    /// A file of settings for the client of that home, name=value a line (librdkafka's: TLS, SASL and
    /// others) [default: none]
    #[arg(long = "replicate-config", value_name = "FILE")]
    pub(crate) replicate_config: Option<PathBuf>,

    /// Goes on with a home that cannot keep the promise: fewer than three copies, fewer than two in sync, unclean
    /// elections
    #[arg(long = "replicate-unsafe")]
    pub(crate) replicate_unsafe: bool,

    /// What a record of the topic holds: run (consecutive messages of one producer, framed) or message (the payload of
    /// one, for other readers of Kafka; costs more) [default: run]
    #[arg(long = "replicate-record", value_name = "WHAT")]
    pub(crate) replicate_record: Option<RecordForm>,

    /// Carries this stream home, or with a * at the end all whose names begin like that, and no others, which stay here and
    /// are acknowledged as durable at most; may be repeated [default: all streams]
    #[arg(long = "replicate-stream", value_name = "NAME")]
    pub(crate) replicate_stream: Vec<String>,

    /// The servers that share the topic, each with a partition of its own: HOST:PORT of all of them, where clients of
    /// ingest find them, separated by commas, in the order of their partitions from 0 on; the same everywhere. A
    /// producer that belongs to another one by its name is sent there [default: none]
    #[arg(long = "fleet", value_name = "PLACES")]
    pub(crate) fleet: Option<String>,

    /// Where clients of ingest find this server, HOST:PORT: it is a member of the fleet of the topic, whose partitions move between running members (kafka://.../TOPIC?partitions=12).
    /// A producer of another member's partition is sent there; in
    /// place of --fleet [default: none]
    #[arg(long = "fleet-address", value_name = "PLACE", conflicts_with = "fleet")]
    pub(crate) fleet_address: Option<String>,

    /// How long a partition of the fleet that is to be another server's may take to be handed over, from 1s to 2m; what is
    /// not at home then stays here, as `tidewire log unreplicated` lists it [default: 10s]
    #[arg(long = "fleet-hand-over", value_name = "TIME")]
    pub(crate) hand_over: Option<Span>,

    /// The most that the log keeps of what is not at home yet, which retention leaves alone; then producers
    /// wait [default: no limit but the disk]
    #[arg(long = "backlog-bytes", value_name = "SIZE")]
    pub(crate) backlog_bytes: Option<Size>,

    /// What the server does when the log has failed for good, say on a disk error: exit (stops, with
    /// status 2) or refuse (goes on without it: messages are refused, what is stored can be read,
    /// other services serve) [default: exit]
    #[arg(long = "on-log-failure", value_name = "WHAT")]
    pub(crate) on_failure: Option<OnLogFailure>,
}

/// What a record of the home's topic holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RecordForm {
    /// Consecutive messages of one producer.
    #[default]
    Run,
    /// One message.
    Message,
}

/// What follows a failure of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLogFailure {
    /// The server stops in order, and says that it failed, so that its supervisor can act.
    #[default]
    Exit,
    /// The server goes on, and refuses what it cannot store.
    Refuse,
}

/// Help that ends with the default in force, which has one place in the code.
fn sized(what: &str, default: u64) -> String {
    counted(what, Size(default))
}

fn counted(what: &str, default: impl fmt::Display) -> String {
    format!("{what} [default: {default}]")
}

/// The ingest service.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct IngestOptions {
    /// Level of ingest producers that do not say: received or durable [default: durable]
    #[arg(long = "ingest-level", id = "ingest_level", value_name = "LEVEL")]
    pub(crate) level: Option<Level>,

    /// Messages a second that one ingest connection may send [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) quota_messages: Option<u64>,

    /// Bytes a second that one ingest connection may send [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(crate) quota_bytes: Option<Size>,

    /// Most messages that an ingest producer may have unacknowledged.
    #[arg(long, value_name = "N",
          help = counted("Most messages that an ingest producer may have unacknowledged",
                         native::Settings::default().window_messages))]
    pub(crate) window_messages: Option<u32>,

    /// Most bytes that an ingest producer may have unacknowledged.
    #[arg(long, value_name = "SIZE",
          help = sized("Most bytes that an ingest producer may have unacknowledged",
                       native::Settings::default().window_bytes))]
    pub(crate) window_bytes: Option<Size>,

    /// Readers at once; more are refused.
    #[arg(long, value_name = "N",
          help = counted("Readers at once; more are refused", native::Settings::default().readers))]
    pub(crate) readers: Option<usize>,

    /// Bytes that all ingest readers may hold of what was sent to them and is not taken; then they
    /// wait.
    #[arg(long, value_name = "SIZE",
          help = sized("Bytes that all ingest readers may hold of what was sent to them and is not \
                        taken; then they wait",
                       native::Settings::default().reader_memory as u64))]
    pub(crate) reader_memory: Option<Size>,

    /// Largest payload of an ingest message; a larger one is refused [default: --max-payload]
    #[arg(long = "ingest-max-payload", value_name = "SIZE")]
    pub(crate) payload_max: Option<Size>,

    /// A file whose one line clients must show as their token, for all streams; the environment's
    /// TIDEWIRE_INGEST_TOKEN does too. More of them, by hash and for some streams, in the configuration
    /// file [default: none, and only this host is served]
    #[arg(long = "ingest-token-file", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// A file whose one line administrators of streams must show as their token; it is good for reading
    /// and writing too [default: none, and tokens of the configuration file with the right admin]
    #[arg(
        long = "ingest-admin-token-file",
        id = "ingest_admin_token_file",
        value_name = "FILE"
    )]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// Which streams there are: auto (a producer's hello makes the one that it names) or declared (only
    /// streams that `tidewire stream create` has made) [default: auto]
    #[arg(long = "streams", id = "ingest_streams", value_name = "WHICH")]
    pub(crate) streams: Option<StreamsName>,

    /// The environment's.
    #[arg(skip)]
    pub(crate) token: Option<Secret>,

    /// Secrets that clients must show, if there are any; only in the file.
    #[arg(skip)]
    pub(crate) tokens: Vec<TokenEntry>,
}

/// Which streams there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StreamsName {
    /// Streams that producers name.
    #[default]
    Auto,
    /// Streams that were created.
    Declared,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RightName {
    Read,
    Write,
    Admin,
}

/// A secret, by its hash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TokenEntry {
    name: String,
    /// 64 hexadecimal digits.
    sha256: String,
    #[serde(default)]
    streams: Vec<String>,
    /// What the token may do; if absent, reading and writing.
    rights: Option<Vec<RightName>>,
}

/// The classic services.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct AckOptions {
    /// What an acknowledgement of the ack service means: none (the message was read and dropped),
    /// received (it is in the queue of the log) or durable (it is synced) [default: none]
    #[arg(long = "ack-level", value_name = "LEVEL", id = "ack_level")]
    pub(crate) level: Option<Level>,

    /// The stream that messages of the ack service go to [default: default]
    #[arg(long = "ack-stream", value_name = "NAME", id = "ack_stream")]
    pub(crate) stream: Option<String>,
}

/// When groups are committed, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyName(pub(crate) Policy);

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyName, String> {
        let policy = match text.split_once(':') {
            None if text == "sync" => Policy::Sync,
            None if text == "os" => Policy::Os,
            Some(("interval", time)) => match time.parse::<Span>()? {
                Span(time) if time.is_zero() => return Err("an interval of 0 is sync".into()),
                Span(time) => Policy::Interval(time),
            },
            _ => return Err(format!("{text:?} is no policy: sync, interval:50ms or os")),
        };
        Ok(PolicyName(policy))
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Policy::Sync => f.write_str("sync"),
            Policy::Os => f.write_str("os"),
            Policy::Interval(time) => write!(f, "interval:{time:?}"),
        }
    }
}

/// How much is checked.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum VerifyName {
    /// Everything.
    All,
    /// The newest segment.
    Tail,
}

impl LogOptions {
    /// Where the data is.
    pub(crate) fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| DIRECTORY.into())
    }

    /// How long groups wait for clients that were just answered.
    pub(crate) fn group_wait(&self) -> Duration {
        self.group_wait
            .map_or(Settings::default().group_wait, |Span(time)| time)
    }

    /// How long a partition may take to be handed over.
    pub(crate) fn hand_over(&self) -> Duration {
        self.hand_over.map_or(
            tidewire_replicate::Settings::default().hand_over_within,
            |Span(time)| time,
        )
    }

    /// The most that is kept of what is not at home; bytes.
    pub(crate) fn backlog(&self) -> u64 {
        self.backlog_bytes.map_or(u64::MAX, |size| size.0)
    }

    /// The streams that go home.
    fn carries(&self) -> Result<Selection, Failure> {
        let names = self.replicate_stream.iter().map(String::as_str);
        let carries =
            Selection::of(names).map_err(|e| Failure::usage(format!("--replicate-stream: {e}")))?;
        if !carries.is_all() && self.fleet_address.is_some() {
            return Err(Failure::usage(
                "--replicate-stream: a fleet carries all streams, because producers and what is known of them move between \
                 its servers",
            ));
        }
        Ok(carries)
    }

    /// The log's own settings.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let own = Settings::default();
        let payload_max = match self.payload_max {
            None => own.payload_max,
            Some(Size(bytes)) => {
                u32::try_from(bytes).map_err(|_| Failure::usage("--log-payload: at most 4GiB"))?
            }
        };
        let retained = self.retention_bytes.map(|size| size.0);
        let segment_bytes = match (self.segment, retained) {
            (Some(Size(segment)), Some(limit)) if segment > limit / SEGMENTS_LEAST => {
                return Err(Failure::usage(format!(
                    "--retain-bytes {} cannot hold with segments of {}: it must be at least \
                     {SEGMENTS_LEAST} times --segment",
                    Size(limit),
                    Size(segment)
                )));
            }
            (Some(Size(segment)), _) => segment,
            (None, Some(limit)) => own.segment_bytes.min(limit / SEGMENTS_LEAST),
            (None, None) => own.segment_bytes,
        };
        let settings = Settings {
            kind: Some(Kind::Messages),
            holds_reserve: true,
            policy: self.policy.map_or(own.policy, |name| name.0),
            group_wait: self.group_wait(),
            // A group must hold the largest record.
            group_bytes: own.group_bytes.max(payload_max as usize + GROUP_EXTRA),
            payload_max,
            producer_idle: self.remember.map_or(own.producer_idle, |Span(time)| time),
            retention_bytes: self.retention_bytes.map(|size| size.0),
            retention_age: self.retention_age.and_then(Span::limit),
            backlog: self.replicate.as_ref().map(|_| self.backlog()),
            carries: self.carries()?,
            verify: match self.verify {
                Some(VerifyName::Tail) => Verify::Tail,
                Some(VerifyName::All) | None => Verify::All,
            },
            ..own
        };
        settings.with_segments(segment_bytes).map_err(|least| {
            let (payload, least, limit) =
                (Size(payload_max.into()), Size(least), Size(least * SEGMENTS_LEAST));
            Failure::usage(format!(
                "segments of {} bytes hold no records of {payload}: --segment must be at least {least}, \
                 --retain-bytes at least {limit}, or --log-payload smaller",
                segment_bytes
            ))
        })
    }
}

/// How many segments a limit of the log's size must hold: two that are finished, the one in use and
/// the next one.
const SEGMENTS_LEAST: u64 = 4;

/// What a group needs besides its largest record.
const GROUP_EXTRA: usize = 4096;

impl IngestOptions {
    /// Takes the token that the environment holds, if no flag says where it is.
    pub(crate) fn take_secret(&mut self) -> Result<(), Failure> {
        if self.token_file.is_none() {
            self.token = Secret::from_environment("TIDEWIRE_INGEST_TOKEN")?;
        }
        Ok(())
    }

    /// The service's own settings; `payload_max` is what the flag for all services says.
    pub(crate) fn settings(&self, payload_max: Option<u32>) -> Result<native::Settings, Failure> {
        let own = native::Settings::default();
        let tokens = self.accepted()?;
        let in_file = self
            .payload_max
            .map(|size| u32::try_from(size.0).unwrap_or(u32::MAX));
        let level = match self.level {
            None => own.level,
            Some(Level::Received) => native::codec::Level::Received,
            Some(Level::Durable) => native::codec::Level::Durable,
            Some(Level::None) => {
                return Err(Failure::usage(
                    "the level of ingest is received or durable, not none",
                ));
            }
        };
        Ok(native::Settings {
            level,
            payload_max: payload_max.or(in_file).unwrap_or(own.payload_max),
            window_messages: self.window_messages.unwrap_or(own.window_messages),
            window_bytes: self.window_bytes.map_or(own.window_bytes, |size| size.0),
            quota: Quota {
                messages: self.quota_messages,
                bytes: self.quota_bytes.map(|size| size.0),
            },
            readers: self.readers.unwrap_or(own.readers),
            reader_memory: self
                .reader_memory
                .map_or(own.reader_memory, |size| size.0 as usize),
            tokens,
            declared: self.streams == Some(StreamsName::Declared),
            ..own
        })
    }

    /// The tokens that are accepted; files are read.
    pub(crate) fn accepted(&self) -> Result<Vec<Token>, Failure> {
        let tokens: Result<Vec<Token>, Failure> =
            self.tokens.iter().map(TokenEntry::token).collect();
        let mut tokens = tokens?;
        let secret = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(Secret::from_file(path)?),
            (None, None) => None,
        };
        if let Some(secret) = secret {
            let secret = sendable("--token-file", secret)?;
            tokens.push(Token::new("default", &secret, &[]));
        }
        if let Some(path) = &self.admin_token_file {
            let secret = sendable("--ingest-admin-token-file", Secret::from_file(path)?)?;
            tokens.push(Token {
                rights: Rights {
                    admin: true,
                    ..Rights::default()
                },
                ..Token::new("admin", &secret, &[])
            });
        }
        Ok(tokens)
    }
}

/// Most bytes of a token that a client can send.
const TOKEN_MAX: usize = 255;

/// A secret that clients can send.
fn sendable(from: &str, secret: Secret) -> Result<String, Failure> {
    let secret = secret.into_text();
    match secret.len() {
        0..=TOKEN_MAX => Ok(secret),
        len => Err(Failure::usage(format!(
            "{from}: the token has {len} bytes, and clients can send {TOKEN_MAX} at most"
        ))),
    }
}

impl TokenEntry {
    fn token(&self) -> Result<Token, Failure> {
        let hash = parse_hash(&self.sha256).ok_or_else(|| {
            Failure::usage(format!(
                "the token {:?}: sha256 is not 64 hexadecimal digits; `printf %s SECRET | sha256sum` \
                 shows what it should be",
                self.name
            ))
        })?;
        Ok(Token {
            name: self.name.clone(),
            sha256: hash,
            streams: self.streams.clone(),
            rights: match &self.rights {
                None => Rights::default(),
                Some(rights) => Rights {
                    read: rights.contains(&RightName::Read),
                    write: rights.contains(&RightName::Write),
                    admin: rights.contains(&RightName::Admin),
                },
            },
        })
    }
}

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn policies_go_both_ways() {
        for text in ["sync", "os", "interval:50ms"] {
            assert_eq!(text.parse::<PolicyName>().unwrap().to_string(), text);
        }
        let Policy::Interval(time) = "interval:2".parse::<PolicyName>().unwrap().0 else {
            panic!("no interval");
        };
        assert_eq!(time, Duration::from_secs(2));
        for text in ["", "fsync", "interval", "interval:0", "interval:soon"] {
            assert!(text.parse::<PolicyName>().is_err(), "{text}");
        }
    }

    #[test]
    fn hashes_are_hexadecimal() {
        assert_eq!(parse_hash(&"0a".repeat(32)), Some([10; 32]));
        assert_eq!(parse_hash("0a"), None);
        assert_eq!(parse_hash(&"+1".repeat(32)), None);
        assert_eq!(parse_hash(&"zz".repeat(32)), None);
    }

    #[test]
    fn segments_are_as_long_as_is_said_or_refused() {
        let sized = |segment, retain| LogOptions {
            segment: Option::map(segment, Size),
            retention_bytes: Option::map(retain, Size),
            ..LogOptions::default()
        };
        let settings = sized(Some(16 << 20), None).settings().unwrap();
        assert_eq!(settings.segment_bytes, 16 << 20);
        assert!(settings.group_bytes < 4 << 20);
        let settings = sized(None, Some(64 << 20)).settings().unwrap();
        assert_eq!(settings.segment_bytes, 16 << 20);
        for (segment, retain, says) in [
            (Some(256 << 10), None, "--log-payload"),
            (Some(16 << 20), Some(32 << 20), "4 times"),
            (None, Some(1 << 20), "--retain-bytes at least"),
        ] {
            let refused = sized(segment, retain).settings().unwrap_err();
            let refused = format!("{refused:?}");
            assert!(refused.contains(says), "{refused}");
        }
        let idle = LogOptions::default().settings().unwrap().producer_idle;
        assert_eq!(idle, PRODUCER_IDLE);
        assert_eq!(Span(idle).to_string(), "30d");
    }

    #[test]
    fn a_larger_record_makes_a_larger_group() {
        let options = LogOptions {
            payload_max: Some(Size(32 << 20)),
            segment: Some(Size(256 << 20)),
            ..LogOptions::default()
        };
        let settings = options.settings().unwrap();
        assert!(settings.group_bytes > 32 << 20);
    }
}
