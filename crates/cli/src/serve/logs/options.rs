//! The settings of the durable log of messages, some of which are for the logs of products too.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use tidewire_log::{Kind, PRODUCER_IDLE, Policy, Selection, Settings, Verify};

use crate::exit::Failure;
use crate::serve::settings::defaults::with_default;
use crate::serve::settings::given::Need;
use crate::size::Size;
use crate::span::Span;

/// Default directory of the log.
pub(crate) const DIRECTORY: &str = "tidewire-data";

/// The log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LogOptions {
    /// Directory of the durable log, made if need be; used by ingest, and by ack with a level. That of kv
    /// with a durability is in it
    #[arg(long = "data", value_name = "DIR", default_value = DIRECTORY)]
    pub(crate) dir: PathBuf,

    /// When messages count as durable: sync (each group is synced before it is acknowledged),
    /// interval:50ms (synced at least this often, acknowledged then), or os (no producer waits for a sync,
    /// and none is granted durable)
    #[arg(long = "sync", id = "log_policy", value_name = "POLICY", default_value_t = PolicyName(Policy::Sync))]
    pub(crate) policy: PolicyName,

    /// With --sync sync or --durability sync: waits so long at most, after each sync, for the clients answered by it to come back, so
    /// that the next one serves more of them. Fewer and larger syncs, for
    /// a disk that is slow or shared; a single client never waits; at most 1s
    #[arg(long = "group-wait", value_name = "TIME", default_value_t = Span(Settings::default().group_wait))]
    pub(crate) group_wait: Span,

    /// Size of the logs' segments.
    #[arg(long = "segment", value_name = "SIZE",
          help = with_default("Size of the logs' segments. What one command or transaction of kv changes may be a \
                               sixth of it", Size(Settings::default().segment_bytes)))]
    pub(crate) segment: Option<Size>,

    /// Largest payload that the log takes
    #[arg(long = "log-payload", id = "log_payload_max", value_name = "SIZE",
          default_value_t = Size(Settings::default().payload_max.into()))]
    pub(crate) payload_max: Size,

    /// The most that the log takes on the disk, reserved room included: the oldest segments are
    /// removed before. At least four times --segment, which is made smaller for it unless it is given
    /// [default: no limit]
    #[arg(long = "retain-bytes", value_name = "SIZE")]
    pub(crate) retention_bytes: Option<Size>,

    /// Removes segments whose newest record is older than this, such as 7d [default: no limit]
    #[arg(long = "retain-age", value_name = "TIME")]
    pub(crate) retention_age: Option<Span>,

    /// How long a producer may be idle, counting only time in which the log is open, before it is forgotten and what it
    /// sends again is stored again
    #[arg(long = "remember-producers", value_name = "TIME", default_value_t = Span(PRODUCER_IDLE))]
    pub(crate) remember: Span,

    /// What is checked when the log is opened: all, or tail (the newest segment, and older ones
    /// without a valid index)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = VerifyName::All)]
    pub(crate) verify: VerifyName,

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
    /// one, for other readers of Kafka; costs more)
    #[arg(long = "replicate-record", value_name = "WHAT", value_enum, default_value_t = RecordForm::Run)]
    pub(crate) replicate_record: RecordForm,

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
    /// not at home then stays here, as `tidewire log unreplicated` lists it
    #[arg(long = "fleet-hand-over", value_name = "TIME", default_value_t = Span(tidewire_replicate::Settings::default().hand_over_within))]
    pub(crate) hand_over: Span,

    /// The most that the log keeps of what is not at home yet, which retention leaves alone; then producers
    /// wait [default: no limit but the disk]
    #[arg(long = "backlog-bytes", value_name = "SIZE")]
    pub(crate) backlog_bytes: Option<Size>,

    /// What the server does when the log has failed for good, say on a disk error: exit (stops, with
    /// status 2) or refuse (goes on without it: messages are refused, what is stored can be read,
    /// other services serve)
    #[arg(long = "on-log-failure", value_name = "WHAT", value_enum, default_value_t = OnLogFailure::Exit)]
    pub(crate) on_failure: OnLogFailure,
}

/// The form of a record of the home's topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RecordForm {
    /// Consecutive messages of one producer.
    Run,
    /// One message.
    Message,
}

/// How the server reacts to a failure of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLogFailure {
    /// The server stops in order, and says that it failed, so that its supervisor can act.
    Exit,
    /// The server goes on, and refuses what it cannot store.
    Refuse,
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

/// How much of the log is checked at the start.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum VerifyName {
    /// Everything.
    All,
    /// Only the newest segment is checked.
    Tail,
}

impl LogOptions {
    /// The condition under which a flag of this name has an effect.
    pub(crate) fn need(flag: &str) -> Option<Need> {
        match flag {
            // The flag says where there is to be one.
            "data" => None,
            "replicate" => Some(Need::Messages),
            "replicate-config" | "replicate-unsafe" | "backlog-bytes" => Some(Need::Home),
            "fleet" | "fleet-address" | "fleet-hand-over" | "replicate-record"
            | "replicate-stream" => Some(Need::Replicated),
            "group-wait" => Some(Need::SyncedLog),
            _ => Some(Need::Log),
        }
    }

    /// Limit of the records that the log keeps because they are not at the home yet, in bytes; without
    /// `--backlog-bytes`, `u64::MAX`.
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
                "--replicate-stream: a fleet replicates all streams, because producers and their \
                 marks move between its servers",
            ));
        }
        Ok(carries)
    }

    /// The log's own settings.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let own = Settings::default();
        let payload_max = u32::try_from(self.payload_max.0);
        let payload_max = payload_max.map_err(|_| Failure::usage("--log-payload: at most 4GiB"))?;
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
            policy: self.policy.0,
            group_wait: self.group_wait.0,
            // A group must hold the largest record.
            group_bytes: own.group_bytes.max(payload_max as usize + GROUP_EXTRA),
            payload_max,
            producer_idle: self.remember.0,
            retention_bytes: self.retention_bytes.map(|size| size.0),
            retention_age: self.retention_age.and_then(Span::limit),
            backlog: self.replicate.as_ref().map(|_| self.backlog()),
            carries: self.carries()?,
            verify: match self.verify {
                VerifyName::Tail => Verify::Tail,
                VerifyName::All => Verify::All,
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

/// Bytes that a group needs besides its largest record.
const GROUP_EXTRA: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::serve::settings::defaults;

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
    fn segments_are_as_long_as_is_said_or_refused() {
        let sized = |segment, retain| LogOptions {
            segment: Option::map(segment, Size),
            retention_bytes: Option::map(retain, Size),
            ..defaults::of()
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
        let idle = defaults::of::<LogOptions>()
            .settings()
            .unwrap()
            .producer_idle;
        assert_eq!(idle, PRODUCER_IDLE);
        assert_eq!(Span(idle).to_string(), "30d");
    }

    #[test]
    fn a_larger_record_makes_a_larger_group() {
        let options = LogOptions {
            payload_max: Size(32 << 20),
            segment: Some(Size(256 << 20)),
            ..defaults::of()
        };
        let settings = options.settings().unwrap();
        assert!(settings.group_bytes > 32 << 20);
    }
}
