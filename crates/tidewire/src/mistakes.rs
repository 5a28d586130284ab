//! Mistakes that drivers and loops could make, planted to see whether the exploration finds them.
//!
//! A test of this crate turns one on for its own thread. In every other build [`mistaken`] is the
//! constant `false`, and nothing is left of the places that ask.

/// Lists the mistakes, by the part that can make them.
macro_rules! mistakes {
    ($($place:ident { $(#[doc = $said:literal] $name:ident,)+ })+) => {
        /// A mistake, and where it is planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mistake {
            $($(#[doc = $said] $name,)+)+
        }

        /// The part of the toolkit that makes a mistake.
        #[cfg(test)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Place {
            $($place,)+
        }

        #[cfg(test)]
        impl Mistake {
            pub(crate) const ALL: &[Mistake] = &[$($(Mistake::$name,)+)+];

            /// The part of the toolkit that can make the mistake.
            pub(crate) fn place(self) -> Place {
                match self {
                    $($(Mistake::$name => Place::$place,)+)+
                }
            }

            /// The mistake in words.
            pub(crate) fn said(self) -> &'static str {
                match self {
                    $($(Mistake::$name => $said,)+)+
                }
            }
        }
    };
}

mistakes! {
    Completions {
        /// A receive buffer is given to the kernel twice.
        BufferGivenTwice,
        /// The buffer of a late completion is forgotten when its connection is being closed.
        BufferForgotten,
        /// A completion of an earlier connection is taken for one of the new.
        GenerationIgnored,
        /// Output is sent although a send is in flight.
        SendBesideSend,
        /// The slices of a send are used for another before it has completed.
        SlicesReused,
        /// A short send is taken for all that was asked for.
        ShortSendIgnored,
        /// A receive that has ended by itself is not armed again.
        ReceiveNotRearmed,
        /// An accept that has ended by itself is not armed again.
        AcceptNotRearmed,
        /// A wait for wake-ups that has ended by itself is not armed again.
        WakeNotRearmed,
        /// A connection that is being closed is forgotten with operations in flight.
        FreedInFlight,
        /// Connections that come while accepting is being taken back are dropped.
        LateAcceptDropped,
        /// A connection that found no buffer is not tried again.
        StarvedCompletionForgotten,
        /// A lack of buffers is taken for an error of the connection.
        NoBufferFails,
        /// Data that waits for the rest of a cut piece is dropped.
        PartsForgotten,
        /// An operation that goes on is counted as done.
        MoreIgnored,
        /// An attempt to connect that is given up is not taken back.
        ConnectNotTakenBack,
        /// A receive that was taken back is not armed again.
        CancelledReceiveForgotten,
        /// A half-close for which there is no descriptor is dropped.
        HalfCloseDropped,
        /// A socket in the ring's table that should be reset is closed in order.
        PlacedNotReset,
        /// An operation that cannot be handed over, because entering the ring fails, is dropped.
        OperationDropped,
        /// A piece that was announced is taken from its completion once more.
        EarlyTakenTwice,
        /// Received data that was not yet offered is missing when a stop counts what is left to read.
        InHandNotCounted,
        /// A descriptor that was made too late for its connection is forgotten.
        InstallForgotten,
        /// The watch of an alarm that has ended is taken to go on.
        AlarmNotWatchedAgain,
        /// Operations that completed while the alarm was set wait for the alarm.
        WorkForgottenBeforeWait,
        /// The end of a connection that is not read is not waited for.
        WatchNotArmed,
        /// An attempt to connect is closed before the kernel has heard that it is taken back.
        CancelNotSubmitted,
    }
    Readiness {
        /// An edge that comes while the connection is not read is forgotten.
        EdgeLost,
        /// A short receive means that there is no more, although the end was announced.
        EndBehindShortReceive,
        /// New room is not noticed.
        RoomIgnored,
        /// A connection that has used up its turn does not queue for the next.
        TurnNotQueued,
        /// An error of a connection that is not read is not told.
        ErrorNotReported,
        /// An interruption is taken for an error.
        InterruptFails,
        /// Events that come together with an established connection are ignored.
        NewsOfConnectedIgnored,
        /// A receive that fails is taken for one that finds nothing.
        FailedReceiveIgnored,
        /// The wait forgets the events that polling has found.
        PolledNewsForgotten,
        /// Data that was received early is not offered.
        EarlyForgotten,
        /// A connection that has got its share of a turn's input does not queue for the next.
        ReceiveShareForgotten,
        /// The descriptor by which a loop is woken stays readable.
        WakeNotCleared,
    }
    Edges {
        /// A send that fails is taken for one that has to wait.
        FailedSendAwaited,
    }
    Levels {
        /// A level-triggered poller is not told to wait for room.
        RoomNotAwaited,
        /// An event that a level-triggered poller has reported for good is reported for ever.
        EndReportedForEver,
        /// A level-triggered poller goes on to wait for the stop that it was told of.
        StopReportedForEver,
    }
    Loop {
        /// A wake-up between the last look and the sleep is lost.
        WakeUpLost,
        /// A timer fires before its time.
        TimerEarly,
        /// A timer survives its connection.
        TimerSurvives,
        /// Consumed bytes of a chunk are offered again.
        ChunkOfferedTwice,
        /// Output is cut off by the half-close in front of it.
        HalfCloseTooEarly,
        /// A connection is closed as soon as its output is flushed, with input unread.
        ClosedWithoutLingering,
        /// A protocol that waits for its output to drain is not called again.
        DrainForgotten,
        /// Carried input is not offered again after a pause.
        ResumeForgotten,
        /// A connection that failed is not told that it is closed.
        ClosedNotTold,
        /// A connection for which no loop has room is dropped.
        HandOverDropped,
        /// Accepting is not resumed after a pause.
        AcceptPausedForEver,
        /// Accepting that could not be resumed is not tried again.
        ResumingNotRetried,
        /// A connection that had too much to do in one turn is forgotten.
        BacklogForgotten,
        /// A connection with output left when its share of a turn is sent is forgotten.
        SendTurnForgotten,
        /// A connection whose turn to make more output has not come is forgotten.
        MakeTurnForgotten,
        /// A connection that a stop finds too late is not cut.
        NotCutAtDeadline,
        /// An alarm that could not be set is relied on.
        AlarmTakenForSet,
        /// A stop does not wait for handshakes under way.
        LastCallLeftOut,
        /// A stop does not look into the queues of listeners once more.
        LastLookLeftOut,
        /// A stop does not read the bytes that arrived before it.
        SweepLeftOut,
        /// An attempt to connect has no deadline.
        DialWithoutDeadline,
        /// A timer that was moved while its wheel ran is not armed again.
        TimerNotRearmed,
    }
}

#[cfg(test)]
pub(crate) use planted::{is_any_made, mistaken, planted};

/// Whether this mistake is to be made.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn mistaken(_: Mistake) -> bool {
    false
}

#[cfg(test)]
mod planted {
    use std::cell::Cell;

    use super::Mistake;

    thread_local! {
        static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    pub(crate) fn mistaken(which: Mistake) -> bool {
        MADE.get() == Some(which)
    }

    /// Whether this thread is making one.
    pub(crate) fn is_any_made() -> bool {
        MADE.get().is_some()
    }

    /// Has this thread make a mistake while `f` runs.
    pub(crate) fn planted<R>(which: Mistake, f: impl FnOnce() -> R) -> R {
        struct Back;
        impl Drop for Back {
            fn drop(&mut self) {
                MADE.set(None);
            }
        }
        let _back = Back;
        MADE.set(Some(which));
        f()
    }
}
