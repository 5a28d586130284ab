//! Steps that all runs share: preparing the server, scheduling messages, and judging a failure.

use tidewire_command::exit::Failure;
use tidewire_load::workload::{self, Arrivals, Options, Plan};

use super::generator::GeneratorArgs;
use super::target::Ready;

/// Loads a server with what has to be there before anything is measured.
pub(super) fn first(
    args: &dyn Options,
    made_by: &GeneratorArgs,
    generator: &workload::Generator,
    server: &Ready,
) -> Result<(), Failure> {
    for first in args.first()? {
        let plan = Plan {
            workload: first.workload,
            // As many as one process may hold: only the measured load is made by several processes.
            connections: made_by.connections().div_ceil(made_by.processes()),
            arrivals: Arrivals::Closed,
            extent: first.extent,
        };
        let done = workload::run(&plan, generator, server.target(), &mut |_| true);
        done.map_err(|e| match (&e, first.refused) {
            (workload::Failure::WrongReply { what, .. }, Some(why)) => {
                Failure::failed(format!("{why}: {what} ({})", server.target().addr))
            }
            _ => failed(&e, server),
        })?;
    }
    Ok(())
}

/// When messages of the load are sent.
pub(super) fn arrivals(load: &dyn Options, generator: &GeneratorArgs) -> Result<Arrivals, Failure> {
    let arrivals = generator.arrivals(load.own_rate(generator.connections()))?;
    if arrivals.rate().is_some() && load.says_batch() {
        return Err(Failure::usage(
            "--batch with --rate: by the clock, a write has what is due",
        ));
    }
    Ok(arrivals)
}

/// The exit status and text for a failed run.
pub(super) fn failed(error: &workload::Failure, server: &Ready) -> Failure {
    let words = server.last_words();
    let words = if words.is_empty() {
        String::new()
    } else {
        format!("\nthe server's stderr ends with:\n{words}")
    };
    let message = format!("{error}{words}");
    if error.is_wrong_answer() {
        Failure::wrong(message)
    } else {
        Failure::failed(format!("{} ({})", message, server.target().addr))
    }
}
