//! The topics: creates missing ones, and checks whether they can keep the promise.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::RDKafkaRespErr;

use super::common::{config, told};
use super::said;
use crate::{Settings, Target};

/// How long brokers may take for one thing.
const WITHIN: Duration = Duration::from_secs(15);
/// Three copies outlive the loss of one machine while another is being restarted.
const REPLICAS: usize = 3;
const IN_SYNC: usize = 2;
/// Bytes that a record and its batch take beside the messages.
const EXTRA: u64 = 64 << 10;
/// Size of one record of many messages, and the least that is asked for.
const LEAST: u64 = 1 << 20;

/// A whole transaction in one batch: the client has one on its way to a partition, and spends the time in which others wait for that
/// without sleeping. Asked for where the topic is made; one that takes less gets less.
const WHOLE: u64 = 5 << 20;

/// Between looks at a topic that was made and is not known everywhere yet.
const UNKNOWN_YET: Duration = Duration::from_millis(100);

type Admin = AdminClient<DefaultClientContext>;

fn admin(target: &Target, settings: &Settings) -> Result<Admin, String> {
    let admin = config(target, settings).create();
    admin.map_err(|error| told(&error))
}

/// The largest batch of records that must be taken; bytes.
pub(super) fn message_max(settings: &Settings) -> u64 {
    LEAST.max(u64::from(settings.payload_max)) + EXTRA
}

/// Makes both topics if they are missing, and checks that their settings keep the promises; returns the largest batch of
/// records that may be sent, in bytes.
pub(super) fn ensure(target: &Target, settings: &Settings) -> Result<u64, String> {
    let admin = admin(target, settings)?;
    let [most, _] = ensure_all(&admin, target, settings, kinds(target, settings))
        .map_err(|why| said::with_cause(why, target, settings))?;
    let least = message_max(settings);
    Ok(most.clamp(least, WHOLE.max(least)))
}

/// The topic of the records, and that of the marks.
fn kinds(target: &Target, settings: &Settings) -> [Kind; 2] {
    let data = Kind {
        name: target.topic.clone(),
        is_compacted: false,
        message_max: message_max(settings),
        keeps_all: settings.keeps_all,
    };
    let marks = Kind {
        name: target.marks(),
        is_compacted: true,
        message_max: 0,
        keeps_all: false,
    };
    [data, marks]
}

/// Checks again that both topics keep the promises: the settings of a topic may be changed at any time. A check that cannot be
/// made now finds no fault.
///
/// # Errors
/// The topics do not keep the promise any more.
pub(super) fn check(target: &Target, settings: &Settings) -> Result<(), String> {
    if settings.is_unsafe {
        return Ok(());
    }
    let admin = admin(target, settings)?;
    for kind in kinds(target, settings) {
        match look(&admin, target, &kind) {
            Ok(None) => return Err(format!("topic {} is not there any more", kind.name)),
            Ok(Some(found)) if !found.faults.is_empty() => {
                return Err(refusal(&kind.name, &found.faults));
            }
            Ok(Some(_)) | Err(_) => {}
        }
    }
    Ok(())
}

fn refusal(topic: &str, faults: &[String]) -> String {
    let faults = faults.join("; ");
    format!(
        "topic {topic} cannot keep the promise: {faults}. Change that, or add --replicate-unsafe to go on all the same"
    )
}

/// Makes sure that the topic of snapshots is there.
pub(super) fn ensure_snapshots(target: &Target, settings: &Settings) -> Result<(), String> {
    let admin = admin(target, settings)?;
    let pieces = Kind {
        name: target.topic.clone(),
        is_compacted: false,
        message_max: message_max(settings),
        keeps_all: true,
    };
    ensure_all(&admin, target, settings, [pieces]).map(drop)
}

fn ensure_all<const N: usize>(
    admin: &Admin,
    target: &Target,
    settings: &Settings,
    kinds: [Kind; N],
) -> Result<[u64; N], String> {
    let mut most = [0; N];
    for (kind, most) in kinds.into_iter().zip(&mut most) {
        let found = match look(admin, target, &kind)? {
            Some(found) => found,
            None => {
                create(admin, target, settings, &kind)?;
                made(admin, target, &kind)?
            }
        };
        let Found { faults, takes } = found;
        *most = takes;
        if faults.is_empty() {
            continue;
        }
        let topic = &kind.name;
        if !settings.is_unsafe {
            return Err(refusal(topic, &faults));
        }
        tracing::warn!(
            topic,
            faults = faults.join("; "),
            "the topic cannot keep the promise of level replicated"
        );
    }
    Ok(most)
}

/// Waits until a new topic is known: brokers learn of it one after the other.
fn made(admin: &Admin, target: &Target, kind: &Kind) -> Result<Found, String> {
    let since = Instant::now();
    loop {
        let why = match look(admin, target, kind) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => format!("topic {} was made, and is not known yet", kind.name),
            Err(why) => why,
        };
        if since.elapsed() >= WITHIN {
            return Err(why);
        }
        std::thread::sleep(UNKNOWN_YET);
    }
}

/// A kind of topic, and its required settings.
struct Kind {
    name: String,
    is_compacted: bool,
    message_max: u64,
    /// Neither age nor size removes records.
    keeps_all: bool,
}

/// The properties of a topic.
struct Found {
    faults: Vec<String>,
    /// The largest batch, in bytes.
    takes: u64,
}

/// The properties of a topic; `None` if it does not exist.
fn look(admin: &Admin, target: &Target, kind: &Kind) -> Result<Option<Found>, String> {
    let metadata = admin
        .inner()
        .fetch_metadata(Some(&kind.name), WITHIN)
        .map_err(|error| told(&error))?;
    let Some(topic) = metadata
        .topics()
        .iter()
        .find(|topic| topic.name() == kind.name)
    else {
        return Ok(None);
    };
    if let Some(error) = topic.error() {
        return match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => Ok(None),
            error => Err(format!(
                "topic {}: {}",
                kind.name,
                RDKafkaErrorCode::from(error)
            )),
        };
    }
    let partition = topic
        .partitions()
        .iter()
        .find(|partition| partition.id() == target.partition);
    let Some(partition) = partition else {
        return Err(format!(
            "topic {} has {} partitions, and no number {}",
            kind.name,
            topic.partitions().len(),
            target.partition
        ));
    };
    let count = topic.partitions().len();
    if let Some(told) = target.partitions
        && told as usize != count
    {
        return Err(format!(
            "topic {} has {count} partitions, and this node's settings say {told}: write \
             ?partitions={count} on all nodes",
            kind.name
        ));
    }
    let mut faults = Vec::new();
    let replicas = partition.replicas().len();
    if replicas < REPLICAS {
        faults.push(format!(
            "its replication factor is {replicas}, at least {REPLICAS} is needed (a topic that a broker made with its own defaults, as \
             with auto.create.topics.enable, and that holds nothing yet is best deleted: it is made anew as it must be)"
        ));
    }
    let resource = [ResourceSpecifier::Topic(&kind.name)];
    let options = AdminOptions::new().request_timeout(Some(WITHIN));
    let described =
        wait(admin.describe_configs(&resource, &options)).map_err(|error| told(&error))?;
    let described = described
        .into_iter()
        .next()
        .ok_or("the broker tells nothing of its topics")?;
    let described = described.map_err(|error| format!("topic {}: {error}", kind.name))?;
    faults.extend(kind.faults(&described));
    let takes = number(&described, LARGEST);
    Ok(Some(Found { faults, takes }))
}

const LARGEST: &str = "max.message.bytes";

fn value(described: &ConfigResource, name: &str) -> String {
    let entry = described.get(name);
    entry
        .and_then(|entry| entry.value.clone())
        .unwrap_or_default()
}

fn number(described: &ConfigResource, name: &str) -> u64 {
    value(described, name).parse().unwrap_or(0)
}

impl Kind {
    fn faults(&self, described: &ConfigResource) -> Vec<String> {
        let value = |name: &str| value(described, name);
        let number = |name: &str| number(described, name);
        let mut faults = Vec::new();
        let in_sync = number("min.insync.replicas");
        if in_sync < IN_SYNC as u64 {
            faults.push(format!(
                "its min.insync.replicas is {in_sync}, at least {IN_SYNC} is needed"
            ));
        }
        if value("unclean.leader.election.enable") == "true" {
            faults.push("its unclean.leader.election.enable is true".into());
        }
        let most = number(LARGEST);
        if most < self.message_max {
            let least = self.message_max;
            faults.push(format!(
                "its max.message.bytes is {most}, {least} is needed for the payloads that are taken"
            ));
        }
        for name in ["retention.ms", "retention.bytes"] {
            let kept = value(name);
            if self.keeps_all && kept != "-1" {
                faults.push(format!(
                    "its {name} is {kept}, -1 is needed: a store is made of all of its records"
                ));
            }
        }
        let (found, needed) = match self.is_compacted {
            // With `delete` beside it marks go by their age, and all would be carried again.
            true => (value("cleanup.policy"), "compact"),
            false => (value("cleanup.policy"), "delete"),
        };
        if found != needed {
            faults.push(format!("its cleanup.policy is {found}, {needed} is needed"));
        }
        faults
    }
}

fn create(admin: &Admin, target: &Target, settings: &Settings, kind: &Kind) -> Result<(), String> {
    let metadata = admin
        .inner()
        .fetch_metadata(None, WITHIN)
        .map_err(|error| told(&error))?;
    let brokers = metadata.brokers().len();
    let (replicas, in_sync) = match settings.is_unsafe {
        true => (brokers.min(REPLICAS), brokers.min(IN_SYNC)),
        false => (REPLICAS, IN_SYNC),
    };
    let in_sync = in_sync.to_string();
    let most = kind.message_max.max(WHOLE).to_string();
    let partitions = match target.partitions {
        Some(partitions) => i32::try_from(partitions).unwrap_or(i32::MAX),
        None => target.partition + 1,
    };
    let mut topic = NewTopic::new(
        &kind.name,
        partitions,
        TopicReplication::Fixed(i32::try_from(replicas).unwrap_or(i32::MAX)),
    )
    .set("min.insync.replicas", &in_sync)
    .set("unclean.leader.election.enable", "false");
    if kind.message_max > 0 {
        topic = topic.set(LARGEST, &most);
    }
    if kind.keeps_all {
        topic = topic.set("retention.ms", "-1").set("retention.bytes", "-1");
    }
    if kind.is_compacted {
        topic = topic.set("cleanup.policy", "compact");
    }
    let options = AdminOptions::new()
        .request_timeout(Some(WITHIN))
        .operation_timeout(Some(WITHIN));
    let created = wait(admin.create_topics([&topic], &options)).map_err(|error| told(&error))?;
    match created.into_iter().next() {
        Some(Ok(_)) => {
            tracing::info!(topic = kind.name, replicas, "the topic was made");
            Ok(())
        }
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
            let topic = &kind.name;
            tracing::info!(
                topic,
                "the topic is there: another program has just made it"
            );
            Ok(())
        }
        Some(Err((name, error))) => Err(format!(
            "topic {name} cannot be made with {replicas} replicas: {error} ({brokers} brokers are known)"
        )),
        None => Err("the broker says nothing of the topic that was to be made".into()),
    }
}

/// Waits for a result of the client's own thread.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::park();
    }
}
