//! Interleaved comparison of two servers, with a control that compares one with itself.
//!
//! The idea: a machine's speed drifts by more than the differences worth knowing, so runs
//! of the two sides take turns and only ratios inside one round are used. How large a
//! ratio the machine makes up by itself is measured in the same breath, by a third side,
//! the control, which is set up like A.
//!
//! # The schedule
//!
//! A round is one run of each side. Without a control, rounds alternate `AB BA`. With
//! one (written `C`), six rounds make a cycle:
//!
//! ```text
//! ABC CAB BCA ACB BAC CBA
//! ```
//!
//! As in ABBA, each round begins with the side that ended the round before. Over a cycle
//! - each side is in each place of a round equally often, and the sum of each side's
//!   times is the same, so a steady drift cancels;
//! - each side follows each side, itself included, equally often, so what a run leaves
//!   behind (warm caches, sockets in TIME_WAIT) burdens all alike;
//! - C is as far from A as B is from A, round for round in another order, so the ratio
//!   C/A has the distribution that B/A would have if B were no different.
//!
//! The control costs a third of the time. B is compared with A alone, not with A and C
//! pooled: pooling would make B/A less noisy than the control that is to judge it.
//!
//! Give the control a server process of its own, started like A's: two processes of one
//! binary differ by their memory layout too, and the control has to show that.
//!
//! # Verdicts
//!
//! A difference counts as shown when the interval of B/A excludes 1 *and* the median
//! ratio is further from 1 than the control's interval reaches. Everything else is said to
//! mean nothing.

mod comparison;
mod recording;
mod sample;
mod schedule;
mod table;
#[cfg(test)]
mod tests;

pub use comparison::{CompareError, Comparison, MetricComparison, Note, SideSummary, Verdict};
pub use recording::{Recording, RunFailed, run};
pub use sample::{Better, Sample};
pub use schedule::{Schedule, Side, Turn};
pub use table::Figures;
