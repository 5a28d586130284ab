//! A member of the group that shares the partitions: Kafka's own, of consumers of the marks that
//! read nothing.
//!
//! The thread of the client waits inside the client's callback while partitions are handed over, as Kafka's protocol
//! requires: the group goes on when the callback is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaResult;
use rdkafka::{ClientConfig, TopicPartitionList};
use tidewire_replicate::{Bell, Event, Membership};

use super::common::{config, told};
use super::topics;
use crate::assignment::{by_place, client_id, partitions, place};
use crate::{Settings, Target, Unavailable};

/// How often the group is asked for its assignments.
const DESCRIBE: Duration = Duration::from_secs(5);
/// How long a broker may take for one answer. A decision of the group arrives only behind that
/// answer.
const ANSWER: Duration = Duration::from_secs(3);
/// When to try again what did not work.
const RETRY: Duration = Duration::from_secs(2);
/// How long a member may be silent before the group goes on without it.
const SESSION_MS: &str = "15000";

/// The state that the node and the client's thread share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bell: Bell,
    hand_over: Duration,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// Revoked, and not released yet.
    awaited: BTreeSet<u32>,
    generation: u64,
    /// The group went on without this member, and has given it nothing since.
    is_lost: bool,
    ends: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        self.state().events.push_back(event);
        self.bell.ring();
    }

    fn assigned(&self, partitions: BTreeSet<u32>) {
        let mut state = self.state();
        state.generation += 1;
        state.is_lost = false;
        let generation = state.generation;
        drop(state);
        self.tell(Event::Assigned {
            generation,
            partitions,
        });
    }

    /// Waits until these partitions are handed over, or until the time for that is over.
    fn revoked(&self, partitions: BTreeSet<u32>) {
        let mut state = self.state();
        if state.ends || partitions.is_empty() {
            return;
        }
        state.awaited.clone_from(&partitions);
        drop(state);
        self.tell(Event::Revoked(partitions));
        let waits = |state: &mut State| !state.awaited.is_empty() && !state.ends;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), self.hand_over, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let late = std::mem::take(&mut state.awaited);
        if !late.is_empty() && !state.ends {
            let waited_s = self.hand_over.as_secs();
            tracing::warn!(
                partitions = ?late,
                waited_s,
                "partitions were not handed over in time: the fleet's group goes on without waiting"
            );
        }
    }

    fn lost(&self) {
        self.state().is_lost = true;
        self.tell(Event::Lost);
    }

    fn ends(&self) -> bool {
        self.state().ends
    }
}

/// The place of a member, and its partitions.
type Held = (String, BTreeSet<u32>);

struct Callbacks(Arc<Shared>);

impl ClientContext for Callbacks {}

impl ConsumerContext for Callbacks {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Callbacks>, what: &Rebalance<'_>) {
        match what {
            Rebalance::Revoke(_) if consumer.assignment_lost() => self.0.lost(),
            Rebalance::Revoke(list) => self.0.revoked(numbers(list)),
            Rebalance::Assign(_) => {}
            Rebalance::Error(error) => tracing::warn!(%error, "the group of the fleet"),
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Callbacks>, what: &Rebalance<'_>) {
        if let Rebalance::Assign(_) = what {
            match consumer.assignment() {
                Ok(all) => {
                    // No partition is read there.
                    if let Err(error) = consumer.pause(&all) {
                        tracing::warn!(why = told(&error), "partitions are not paused");
                    }
                    self.0.assigned(numbers(&all));
                }
                Err(error) => tracing::warn!(why = told(&error), "what is assigned is not known"),
            }
        }
    }
}

fn numbers(list: &TopicPartitionList) -> BTreeSet<u32> {
    let elements = list.elements().into_iter();
    elements
        .filter_map(|element| u32::try_from(element.partition()).ok())
        .collect()
}

/// See [`membership`](super::membership).
pub(super) fn join(
    target: &Target,
    settings: &Settings,
    place: &str,
    bell: Bell,
) -> Result<Box<dyn Membership>, Unavailable> {
    let client = |why: String| Unavailable::Client(why);
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        bell,
        hand_over: settings.hand_over,
    });
    let mut config = config(target, settings);
    config
        .set("client.id", client_id(place))
        .set("group.id", target.group())
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", SESSION_MS)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "latest");
    let (of_thread, target, settings) = (shared.clone(), target.clone(), settings.clone());
    // Checks that the client takes its settings.
    consumer(&config, &shared).map_err(|error| client(told(&error)))?;
    let thread = Builder::new().name("tidewire-group".into()).spawn(move || {
        // The thread is not joined: it may be waiting for a broker.
        while !of_thread.ends() {
            if let Err(why) = be_member(&target, &settings, &config, &of_thread) {
                tracing::warn!(
                    why,
                    "this node is no member of its fleet's group at present"
                );
                let goes_on = |state: &mut State| !state.ends;
                let waits = of_thread
                    .changed
                    .wait_timeout_while(of_thread.state(), RETRY, goes_on);
                drop(waits);
            }
        }
    });
    thread.map_err(|error| client(format!("no thread for the group: {error}")))?;
    Ok(Box::new(Member(shared)))
}

fn consumer(config: &ClientConfig, shared: &Arc<Shared>) -> KafkaResult<BaseConsumer<Callbacks>> {
    config.create_with_context(Callbacks(shared.clone()))
}

/// Is a member until that ends.
fn be_member(
    target: &Target,
    settings: &Settings,
    config: &ClientConfig,
    shared: &Arc<Shared>,
) -> Result<(), String> {
    topics::ensure(target, settings)?;
    let consumer = consumer(config, shared).map_err(|error| told(&error))?;
    let marks = target.marks();
    consumer
        .subscribe(&[&marks])
        .map_err(|error| told(&error))?;
    let mut described = None;
    let mut places = BTreeMap::new();
    let mut shared_places = BTreeSet::new();
    let mut generation = 0;
    while !shared.ends() {
        if let Some(Err(error)) = consumer.poll(Duration::from_millis(500)) {
            tracing::warn!(why = told(&error), "the group of the fleet");
        }
        let now = shared.state().generation;
        let is_due = described.is_none_or(|at: Instant| at.elapsed() >= DESCRIBE);
        if is_due || now != generation {
            generation = now;
            described = Some(Instant::now());
            match describe(&consumer, target) {
                Ok(Some(members)) => {
                    let (all, twice) = by_place(members);
                    for place in twice.difference(&shared_places) {
                        tracing::warn!(
                            place,
                            "several members of the fleet have this address: each needs a \
                             --fleet-address of its own"
                        );
                    }
                    shared_places = twice;
                    settle(&consumer, config, &all, shared);
                    // A producer is never sent to the member that it is connected to.
                    let own = config.get("client.id").and_then(place);
                    let others = all.into_iter().filter(|(place, _)| Some(&**place) != own);
                    let of_all = others.flat_map(|(place, partitions)| {
                        let place: Arc<str> = place.into();
                        partitions
                            .into_iter()
                            .map(move |number| (number, place.clone()))
                    });
                    let of_all: BTreeMap<u32, Arc<str>> = of_all.collect();
                    if of_all != places {
                        places.clone_from(&of_all);
                        shared.tell(Event::Places(of_all));
                    }
                }
                // The group is about to change.
                Ok(None) => described = None,
                Err(why) => tracing::debug!(why, "the group is not described"),
            }
        }
    }
    Ok(())
}

/// The members of the group, each by its place, if the group is stable.
fn describe(
    consumer: &BaseConsumer<Callbacks>,
    target: &Target,
) -> Result<Option<Vec<Held>>, String> {
    let groups = consumer.fetch_group_list(Some(&target.group()), ANSWER);
    let groups = groups.map_err(|error| told(&error))?;
    let Some(group) = groups.groups().first() else {
        return Ok(None);
    };
    if group.state() != "Stable" {
        return Ok(None);
    }
    let marks = target.marks();
    let members = group.members().iter().filter_map(|member| {
        let place = place(member.client_id())?.to_owned();
        Some((
            place,
            partitions(member.assignment().unwrap_or_default(), &marks),
        ))
    });
    Ok(Some(members.collect()))
}

/// A member that the group went on without is one again, perhaps with nothing, of which the client does not speak.
fn settle(
    consumer: &BaseConsumer<Callbacks>,
    config: &ClientConfig,
    all: &BTreeMap<String, BTreeSet<u32>>,
    shared: &Shared,
) {
    let own = config.get("client.id").and_then(place);
    let is_member = own.is_some_and(|own| all.contains_key(own));
    if shared.state().is_lost
        && is_member
        && let Ok(assigned) = consumer.assignment()
    {
        shared.assigned(numbers(&assigned));
    }
}

struct Member(Arc<Shared>);

impl Membership for Member {
    fn event(&mut self) -> Option<Event> {
        self.0.state().events.pop_front()
    }

    fn released(&mut self, partition: u32) {
        self.0.state().awaited.remove(&partition);
        self.0.changed.notify_all();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.state().ends = true;
        self.0.changed.notify_all();
    }
}
