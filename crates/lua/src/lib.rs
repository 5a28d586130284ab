//! Lua 5.1 in a sandbox, with what scripts of Redis find there: `redis`, `cjson`, `cmsgpack`, `struct` and `bit`.
//!
//! A [`Vm`] runs a script against a [`Host`], which does what `redis.call` asks for and says whether to
//! go on; it knows nothing of a store. Scripts can leave nothing behind for others: what they see as
//! globals cannot be written to, and the tables behind are out of reach. Memory is bounded, and the host
//! is asked every some thousand instructions whether to stop, which no `pcall` can swallow. Functions come in
//! [libraries](Vm::load), each with globals of its own; what its functions keep between them stays in this interpreter.
//!
//! The interpreter is Lua's own, in C; the libraries beside its standard ones are safe Rust.
//!
//! ```
//! use tidewire_lua::{Answer, Call, Ended, Host, Run, Stop, Value, Verdict, Vm};
//!
//! /// Echoes the last argument of each command.
//! #[derive(Default)]
//! struct Echo(Vec<u8>);
//!
//! impl Host for Echo {
//!     fn call(&mut self, call: Call<'_>) -> Result<Value<'_>, Stop> {
//!         self.0 = call.args.last().unwrap().to_vec();
//!         Ok(Value::Bulk(&self.0))
//!     }
//!     fn log(&mut self, _: u8, _: &[u8]) {}
//! }
//!
//! let vm = Vm::new(64 << 20, || Verdict::Go).unwrap();
//! let script = b"return {redis.call('echo', ARGV[1]), #KEYS}";
//! let run = Run { name: "f1", text: script, keys: &[b"k"], args: &[b"x"], leash: None };
//! let ended = vm.run(run, &mut Echo::default());
//! assert_eq!(ended, Ended::Done(Answer::Array(vec![Answer::Bulk(b"x".to_vec()), Answer::Integer(1)])));
//! ```

#![forbid(unsafe_code)]

mod answer;
mod args;
mod bit;
mod calls;
mod effort;
mod functions;
mod growth;
mod host;
mod json;
mod leash;
mod library;
mod msgpack;
mod number;
mod pack;
mod pattern;
mod raised;
mod random;
mod room;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_leash;
mod text;
mod value;
mod vm;

pub use answer::Answer;
pub use functions::FLAGS;
pub use host::{Call, Host, Stop, Verdict};
pub use leash::Leash;
pub use value::Value;
pub use vm::{Ended, Fcall, NotLoaded, Registered, Run, Vm};
