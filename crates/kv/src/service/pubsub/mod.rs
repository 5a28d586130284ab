//! Publish and subscribe, across loops.
//!
//! The [`Hub`] knows which loops have subscribers of a channel, and how many. A publisher puts one
//! message into the inbox of each such loop and signals the loop; the loop hands the message to its
//! subscribers. Inboxes are bounded by making publishers wait, not by losing messages. A subscriber
//! that does not take its messages cannot be waited for: beyond its output limit it is cut and
//! counted.

mod frame;
mod hub;
mod inbox;
mod leaving;
mod listening;
mod names;
mod patterns;
mod subscribers;

pub(crate) use frame::{Frame, notice};
pub(crate) use hub::{Audience, Hub, InboxFull};
pub(crate) use leaving::Leaving;
pub(crate) use listening::{Listening, pattern_cost, subscription_memory};
pub(crate) use names::Kind;
pub(crate) use subscribers::Subscribers;
