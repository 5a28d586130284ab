//! Decides which callbacks a connection's record calls for, and makes them. The code serves
//! connections of a loop and [protocols inside protocols](crate::Inner) alike, so that the same
//! contracts hold for both.

use crate::protocol::input::Input;
use crate::reactor::activity::Callback;
use crate::reactor::env::Env;
use crate::reactor::facts::{Appetite, Awaits, Flag, Hint, Owed, Phase, Told, Writing};
use crate::reactor::state::State;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::next::Next;

/// A callback without input of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Opened,
    Writable,
    PeerFinished(usize),
    HungUp,
    Expired,
    /// The timer of this key.
    TimerExpired(u64),
    /// Something has moved on that it knows by this key.
    Notified(u64),
    Idle,
    Overdue,
    Draining,
}

impl Event {
    #[inline]
    pub(crate) fn callback(self) -> Callback {
        match self {
            Event::Opened => Callback::Opened,
            Event::Writable => Callback::Writable,
            Event::PeerFinished(_) => Callback::PeerFinished,
            Event::HungUp => Callback::HungUp,
            Event::Expired => Callback::Expired,
            Event::TimerExpired(_) => Callback::TimerExpired,
            Event::Notified(_) => Callback::Notified,
            Event::Idle => Callback::Idle,
            Event::Draining => Callback::Draining,
            Event::Overdue => Callback::Overdue,
        }
    }
}

/// The callbacks of a protocol whose type other code knows.
pub(crate) trait Callbacks {
    fn call(&mut self, event: Event, state: &mut State, env: &mut Env);
    fn received(&mut self, input: &mut Input<'_>, state: &mut State, env: &mut Env) -> Next;
}

/// Offers the carried bytes; keeps the unconsumed ones.
pub(crate) fn offer_carried<C: Callbacks + ?Sized>(
    protocol: &mut C,
    state: &mut State,
    env: &mut Env,
    carried_max: usize,
) {
    let mut carry = std::mem::take(&mut state.carry);
    let mut input = Input::new(&carry).for_account(state.kept.as_ref());
    let next = protocol.received(&mut input, state, env);
    let consumed = input.consumed();
    if let Some(kept) = input.into_account() {
        state.kept = Some(kept);
    }
    if consumed < carry.len() && state.is_open() {
        carry.drain(..consumed);
        if carry.len() * 4 < carry.capacity() {
            carry.shrink_to_fit();
        }
        state.carry = carry;
    }
    after_received(state, env, next, consumed > 0, carried_max);
}

/// Records what `received` asked for.
#[inline(always)]
pub(crate) fn after_received(
    state: &mut State,
    env: &mut Env,
    next: Next,
    progress: bool,
    carried_max: usize,
) {
    state.apply(next, carried_max, progress);
    if state.appetite == Appetite::Drain {
        env.counters.output_pauses.add(1);
    }
    state.note_request(env.now, progress);
    // Even if nothing was written: reading or the deadline may have to change.
    env.touch(state);
}

/// Makes the callbacks that the record calls for by itself. More may be due afterwards.
pub(crate) fn call_back<C: Callbacks + ?Sized>(
    protocol: &mut C,
    state: &mut State,
    env: &mut Env,
    carried_max: usize,
) {
    if state.end_inside_due() {
        state.owed.remove(Owed::EndInside);
        protocol.call(Event::Writable, state, env);
    }
    let more_due = state.more_due();
    if more_due && env.making.admits(state) {
        call_for_more(protocol, state, env, carried_max);
        if state.end_of_input_due() && state.out.may_send() {
            // The replies leave before the protocol is told of the peer's end: a protocol may abort
            // then.
            return;
        }
    } else if !more_due {
        call_for_more(protocol, state, env, carried_max);
    }
    if env.has_told(state) {
        // Messages that the connection sent are delivered before it is told of the end; afterwards
        // nothing is delivered to it.
        return;
    }
    if state.end_of_input_due() {
        state.told = Told::Finished;
        let unread = state.carry.len();
        protocol.call(Event::PeerFinished(unread), state, env);
        if state.writing != Writing::Open {
            state.finish(Closed::Finished);
        }
    }
    if state.hang_up_due() {
        state.told = Told::HungUp;
        protocol.call(Event::HungUp, state, env);
    }
    if state.drain_due() {
        state.owed.remove(Owed::Draining);
        state.hint = match state.flags.has(Flag::Outlived) {
            true => Hint::Lifetime,
            false => Hint::Stopped,
        };
        let is_idle = env.closes_idle && state.carry.is_empty();
        protocol.call(Event::Draining, state, env);
        if is_idle && matches!(state.phase, Phase::Finishing(_)) && state.awaits == Awaits::PeerEnd
        {
            state.awaits = Awaits::Delivery;
        }
        state.hint = Hint::Finished;
    }
}

/// The callbacks in which a connection is to make more output.
#[inline]
fn call_for_more<C: Callbacks + ?Sized>(
    protocol: &mut C,
    state: &mut State,
    env: &mut Env,
    carried_max: usize,
) {
    if state.drained() {
        state.owed.remove(Owed::Writable);
        state.end_drain_wait();
        protocol.call(Event::Writable, state, env);
    } else if state.drain_over() {
        state.end_drain_wait();
    }
    if state.owed.has(Owed::Replay) && state.is_open() && !state.is_paused() {
        let due = state.replay_due();
        state.owed.remove(Owed::Replay);
        state.owed.remove(Owed::GoOn);
        if due {
            offer_carried(protocol, state, env, carried_max);
        }
    }
}

/// Offers `bytes` behind carried ones, or keeps them if they may not be offered now, or if the
/// connection must wait for its turn to make output.
pub(crate) fn receive<C: Callbacks + ?Sized>(
    protocol: &mut C,
    state: &mut State,
    env: &mut Env,
    carried_max: usize,
    bytes: &[u8],
) {
    if !state.hungry_for(bytes.len()) {
        return state.keep(bytes);
    }
    if state.flags.has(Flag::AwaitsMaking) {
        state.owed.add(Owed::Replay);
        return state.keep(bytes);
    }
    if !state.carry.is_empty() {
        state.keep(bytes);
        return offer_carried(protocol, state, env, carried_max);
    }
    let mut input = Input::new(bytes).for_account(state.kept.as_ref());
    let next = protocol.received(&mut input, state, env);
    let consumed = input.consumed();
    if let Some(kept) = input.into_account() {
        state.kept = Some(kept);
    }
    if consumed < bytes.len() && state.is_open() {
        state.carry = bytes[consumed..].to_vec();
    }
    after_received(state, env, next, consumed > 0, carried_max);
}
