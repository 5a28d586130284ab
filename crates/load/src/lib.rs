//! The lab: what it takes to load a server and to compare two of them honestly.
//!
//! The idea to keep in mind: on a busy machine a figure alone means nothing, so a
//! result is a ratio from interleaved runs, shown with its interval and with a control
//! that compares one side with itself.

#![forbid(unsafe_code)]

pub mod abba;
pub mod child;
pub mod count;
pub mod duet;
pub mod environment;
pub mod histogram;
pub mod meter;
pub mod numbers;
pub mod owner;
pub mod page;
pub mod preflight;
pub mod procfs;
mod random;
pub mod report;
pub mod search;
pub mod serving;
pub mod stats;
pub mod trust;
pub mod workload;
