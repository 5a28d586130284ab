//! Tests of the server and its store. One program, because many would each be built and linked; `compare`, `concurrent`
//! and `durable` have theirs.

mod binary;
mod blocking;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod effects;
mod expiring;
mod fuzz_smoke;
mod golden;
#[path = "../../../../golden/check.rs"]
#[allow(clippy::disallowed_methods, reason = "it reads files")]
mod golden_check;
mod guard;
mod hostile;
mod memory;
mod same_as_redis;
mod scripts;
mod scripts_compared;
mod session;
#[path = "../common/wire.rs"]
#[allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]
mod wire;
#[path = "../../../tidewire/tests/shared/worked.rs"]
mod worked;
