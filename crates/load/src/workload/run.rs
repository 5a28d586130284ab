//! One run: connect, warm up, measure, wait for outstanding replies, close.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::execution::{Execution, Led, Made};
use super::extent::Extent;
use super::failure::Failure;
use super::findings::Work;
use super::generator::{Generator, Target, Watch};
use super::outcome::Outcome;
use super::part::{Gate, Part, Share};
use super::plan::Plan;
use super::play::Script;

/// Runs a plan.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong ends the run.
pub fn run(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    watch: Watch<'_>,
) -> Result<Outcome, Failure> {
    let made = make(plan, generator, target, Part::WHOLE, Led::Freely, watch)?;
    let mut outcome = made.share.outcome(made.course);
    outcome.serving = made.serving;
    outcome.memory = made.memory;
    outcome.kernel = made.kernel;
    outcome.metered = made.metered;
    outcome.server_cores = target.cores;
    outcome.generator_cores = generator.cores();
    outcome.generator_loops = generator.loops;
    Ok(outcome)
}

/// Makes one process's part of a plan, for a [`Crew`](super::Crew) in another process that measures the server.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong here ends the run.
pub(super) fn run_part(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    part: Part,
    gate: &mut dyn Gate,
    watch: Watch<'_>,
) -> Result<Share, Failure> {
    let made = make(plan, generator, target, part, Led::Gate(gate), watch)?;
    Ok(made.share)
}

/// Plays a load in rounds: in each, every connection sends as many messages as it may have in flight, or one batch. The script
/// says when a round begins; arrivals and extent of the plan are not looked at. Returns what the replies say of the work.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong, in the load or in the script.
pub fn in_rounds(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    script: Script<'_>,
) -> Result<Work, Failure> {
    let plan = Plan {
        arrivals: Arrivals::Closed,
        extent: Extent::Time {
            warm_up: Duration::ZERO,
            measured: Duration::ZERO,
        },
        ..plan.clone()
    };
    let led = Led::Script(script);
    let made = make(&plan, generator, target, Part::WHOLE, led, &mut |_| true)?;
    Ok(Work {
        reads: made.share.taken.findings.reads,
        body_bytes: made.share.body_bytes,
    })
}

fn make(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    part: Part,
    led: Led<'_>,
    watch: Watch<'_>,
) -> Result<Made, Failure> {
    let Plan {
        workload,
        connections,
        arrivals,
        extent,
    } = plan;
    let execution = Execution::new(
        (*connections, *arrivals, *extent),
        generator,
        target,
        part,
        led,
        workload.renews(),
    );
    workload.go(&execution, watch)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;
    use crate::workload::{EchoLoad, Fault, Workload};

    const CONNECTIONS: usize = 3;
    const SIZE: usize = 32;
    const PIPELINE: usize = 4;

    /// An echo server that answers what has arrived on each connection when it is told to, and waits for nothing more. In
    /// round `flips`, from 1, it flips a bit.
    fn server(go: Receiver<()>, flips: u32) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut sockets: Vec<_> = (0..CONNECTIONS)
                .map(|_| listener.accept().unwrap().0)
                .collect();
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
            }
            for (round, ()) in (1..).zip(go) {
                for socket in &mut sockets {
                    let mut bytes = [0; SIZE * PIPELINE + 1];
                    let came = socket.read(&mut bytes).unwrap();
                    if round == flips {
                        bytes[5] ^= 1;
                    }
                    socket.write_all(&bytes[..came]).unwrap();
                }
            }
        });
        addr
    }

    fn play(addr: SocketAddr, script: Script<'_>) -> Result<Work, Failure> {
        let plan = Plan {
            workload: Workload::of(EchoLoad {
                size: SIZE,
                pipeline: PIPELINE as u32,
                batch: 0,
            }),
            connections: CONNECTIONS,
            arrivals: Arrivals::Closed,
            extent: Extent::Rounds,
        };
        let target = Target {
            addr,
            process: None,
            cores: 1,
        };
        in_rounds(&plan, &Generator::default(), &target, script)
    }

    #[test]
    fn all_of_a_round_is_with_the_kernel_when_that_is_said_and_the_next_waits_for_every_reply() {
        let (tell, go) = channel();
        let mut rounds = 0;
        let played = play(server(go, 0), &mut |play| {
            for round in 1..=20 {
                let answered = play.round(Some(&mut || tell.send(()).unwrap()))?;
                assert_eq!(answered, round * (CONNECTIONS * PIPELINE) as u64);
                rounds = round;
            }
            Ok(())
        });
        // Had anything been missing, the server would have found a connection empty, or a reply would be owed.
        assert!(played.is_ok(), "{played:?}");
        assert_eq!(rounds, 20);
    }

    #[test]
    fn a_wrong_reply_in_a_round_has_its_name() {
        let (tell, go) = channel();
        let failed = play(server(go, 3), &mut |play| {
            for _ in 0..5 {
                play.round(Some(&mut || tell.send(()).unwrap()))?;
            }
            Ok(())
        });
        let failed = failed.unwrap_err();
        let flipped = |failure: &Failure| {
            matches!(
                failure,
                Failure::WrongReply {
                    fault: Fault::FlippedByte,
                    ..
                }
            )
        };
        assert!(flipped(&failed) && failed.is_wrong_answer(), "{failed}");
    }
}
