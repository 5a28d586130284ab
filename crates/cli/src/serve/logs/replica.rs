//! The replicator of the log of messages, where it has a home.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::replication as metrics;
use tidewire_kafka::{Form, PARTITIONS, Settings as Home, Target};
use tidewire_log::{EmbeddedLog, Log, Policy, Settings};
use tidewire_replicate::{
    Bell, Member, Node, Owners, Phase, Replicator, Running, Settings as Carrying, Shown,
};

use crate::exit::Failure;
use crate::serve::logs::options::{LogOptions, RecordForm};

/// A replicator that runs, for as long as this is kept.
pub(crate) struct Replica(Running);

impl Replica {
    /// The home that is asked for, if any, before anything is opened for it.
    pub(crate) fn target(options: &LogOptions, log: &Settings) -> Result<Option<Target>, Failure> {
        let Some(home) = &options.replicate else {
            return Ok(None);
        };
        let target: Target = home
            .parse()
            .map_err(|e| Failure::usage(format!("--replicate: {e}")))?;
        if log.policy == Policy::Os {
            return Err(Failure::usage(
                "--replicate needs a log that syncs: with --sync os a crash could leave fewer \
                 records on this server than in the home. Choose sync or interval",
            ));
        }
        // Whether there is one at all, and takes its settings.
        let settings = settings(options, log.payload_max)?;
        tidewire_kafka::home(&target, &settings, Bell::default())
            .map_err(|e| Failure::usage(format!("--replicate {home}: {e}")))?;
        Ok(Some(target))
    }

    /// `owners` is the table of the fleet that this server is a member of.
    pub(crate) fn start(
        log: &Arc<EmbeddedLog>,
        target: &Target,
        options: &LogOptions,
        payload_max: u32,
        owners: Option<&Owners>,
    ) -> Result<Replica, Failure> {
        let bell = Bell::default();
        let cannot = |why: String| Failure::usage(format!("--replicate {target}: {why}"));
        if let (Some(owners), Some(place)) = (owners, &options.fleet_address) {
            let settings = settings(options, payload_max)?;
            let target = Target {
                partitions: Some(target.partitions.unwrap_or(PARTITIONS)),
                ..target.clone()
            };
            let homes = tidewire_kafka::homes(&target, &settings, bell.clone());
            let membership = tidewire_kafka::membership(&target, &settings, place, bell.clone());
            let member = Member {
                partitions: target.partitions.unwrap_or(PARTITIONS),
                homes: homes.map_err(|e| cannot(e.to_string()))?,
                membership: membership.map_err(|e| cannot(e.to_string()))?,
                owners: owners.clone(),
                session: Box::new(|| fastrand::u64(..)),
            };
            let carrying = Carrying {
                hand_over_within: options.hand_over.0,
                ..carrying(options)
            };
            let node = Node::new(log.clone(), log.identity(), carrying, member);
            let running = Running::start_node(node, &**log, bell);
            let running = running.map_err(|e| cannot(format!("no thread can be had: {e}")))?;
            tracing::info!(home = %target, place, "this server is a member of a fleet");
            return Ok(Replica(running));
        }
        let home = tidewire_kafka::home(target, &settings(options, payload_max)?, bell.clone());
        let home = home.map_err(|e| cannot(e.to_string()))?;
        let shared: Arc<dyn Log> = log.clone();
        let replicator =
            Replicator::new(shared, log.identity(), fastrand::u64(..), carrying(options));
        let running = Running::start(replicator, home, &**log, bell);
        let running = running.map_err(|e| cannot(format!("no thread can be had: {e}")))?;
        tracing::info!(home = %target, "the log of messages is replicated");
        Ok(Replica(running))
    }

    /// The replicator's state, for the metrics.
    pub(crate) fn shown(&self) -> Shown {
        self.0.shown()
    }
}

fn form(options: &LogOptions) -> Form {
    match options.replicate_record {
        RecordForm::Run => Form::Run,
        RecordForm::Message => Form::Message,
    }
}

fn carrying(options: &LogOptions) -> Carrying {
    let default = Carrying::default();
    Carrying {
        record_bytes: form(options).record_bytes(default.record_bytes),
        ..default
    }
}

fn settings(options: &LogOptions, payload_max: u32) -> Result<Home, Failure> {
    let file = options.replicate_config.as_deref();
    Ok(Home {
        client: file.map_or(Ok(Vec::new()), client_settings)?,
        is_unsafe: options.replicate_unsafe,
        form: form(options),
        payload_max,
        // The node gives up first.
        hand_over: 2 * options.hand_over.0,
        ..Home::default()
    })
}

/// Settings of the client of a home: name=value a line, comments behind a #.
pub(crate) fn client_settings(file: &Path) -> Result<Vec<(String, String)>, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|e| {
        Failure::usage(format!("cannot read the client's settings in {shown}: {e}"))
    })?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let settings = lines.map(|line| match line.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        // The line may hold a secret.
        None => Err(Failure::usage(format!("{shown}: a line is not name=value"))),
    });
    settings.collect()
}

/// Adds how a replicator does.
pub(crate) fn collect(log: &EmbeddedLog, shown: &Shown, to: &mut Snapshot) {
    let status = shown.status();
    for phase in Phase::ALL {
        to.add(&metrics::STATE, &[phase.name()], status.phase == phase);
    }
    let lag = |name: &Arc<str>, next: u64| {
        next.saturating_sub(status.home.get(name).copied().unwrap_or(0))
    };
    let streams = log.streams("", usize::MAX).into_iter();
    let lag: u64 = streams
        .filter(|stream| log.comes_home(&stream.name))
        .map(|stream| {
            lag(&stream.name, stream.range.next).min(stream.range.next - stream.range.first)
        })
        .sum();
    to.add(&metrics::LAG, &[], lag);
    to.add(&metrics::BACKLOG, &[], log.backlog_bytes());
    to.add(&metrics::PROMISES, &[], log.progress().replicates);
    to.add(&metrics::TRANSACTIONS, &[], status.transactions);
    to.add(&metrics::MESSAGES, &[], status.messages);
    to.add(&metrics::BYTES, &[], status.bytes);
    to.add(&metrics::FAILURES, &[], status.failures);
    to.add(&metrics::LOST, &[], status.lost);
    to.add(&metrics::HELD, &[], status.held);
    if let Some(fleet) = &status.fleet {
        for phase in Phase::ALL {
            let partitions = fleet.partitions.values();
            let count = partitions.filter(|of| **of == phase).count();
            to.add(&metrics::PARTITIONS, &[phase.name()], count);
        }
        to.add(&metrics::GENERATION, &[], fleet.generation);
        to.add(&metrics::GROUP_LOST, &[], fleet.is_lost);
        to.add(&metrics::ENDED, &[], fleet.ended);
        to.add(&metrics::CUT_SHORT, &[], fleet.cut_short);
        to.add(&metrics::LEFT_TENURES, &[], fleet.left_tenures);
        to.add(&metrics::LEFT_RECORDS, &[], fleet.left_records);
    }
}
