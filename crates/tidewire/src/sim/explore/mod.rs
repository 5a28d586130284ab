//! Exploration: production loops of every shape on a simulated kernel, a mixed workload on them, and
//! what must hold whatever the seed brings.

mod peers;
mod planted;
mod record;
mod role;
mod roles;
mod run;
mod seeds;
