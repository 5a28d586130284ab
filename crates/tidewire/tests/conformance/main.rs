//! The conformance suite: what a protocol may rely on, checked on every engine and placement.
//!
//! Every case is one function that is given a [`Variant`](variant::Variant) and runs real sockets
//! on the loopback interface, or, unchanged, a simulated [`world`] in virtual time; its name in the
//! list is `variant/case`. Cases that need this machine's kernel ([`real`]) are listed as ignored
//! on simulated ones, and why. Engines may differ in speed, in nothing else. A variant that does
//! not work on this machine is listed as ignored, and the reason is printed.

mod case;
mod child;
mod client;
mod fixture;
mod hosting;
mod hosts;
mod listener;
mod plain;
mod probe;
mod process;
mod real;
mod record;
mod relays;
mod roles;
mod simulated;
mod stream;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
mod variant;
mod world;

mod accepting;
mod admission;
mod ahead;
mod both_ways;
mod channels;
mod chaos;
mod crowd;
mod deadlines;
mod dial_from;
mod dialling;
mod drops;
mod ending;
mod flight;
mod flow;
mod going_on;
mod half_close;
mod held;
mod idle;
mod keyed_timers;
mod layers;
mod leftovers;
mod lifecycle;
mod memory;
mod names;
mod options;
mod panics;
mod partners;
mod pieces;
mod quiet;
mod reach;
mod redial;
mod scarce;
mod service_panics;
mod shares;
mod stopping;
mod strict;
mod timers;
mod transfer;
mod unix;
mod unserved;
mod watching;

use std::process::ExitCode;

fn main() -> ExitCode {
    child::raise_descriptor_limit();
    record::hush_expected_panics();
    let cases: Vec<case::Case> = [
        layers::cases(),
        lifecycle::cases(),
        flow::cases(),
        going_on::cases(),
        flight::cases(),
        held::cases(),
        deadlines::cases(),
        ending::cases(),
        half_close::cases(),
        channels::cases(),
        keyed_timers::cases(),
        names::cases(),
        timers::cases(),
        reach::cases(),
        panics::cases(),
        service_panics::cases(),
        drops::cases(),
        stopping::cases(),
        unserved::cases(),
        dialling::cases(),
        hosts::cases(),
        relays::cases(),
        dial_from::cases(),
        redial::cases(),
        accepting::cases(),
        admission::cases(),
        ahead::cases(),
        transfer::cases(),
        unix::cases(),
        quiet::cases(),
        chaos::cases(),
        crowd::cases(),
        scarce::cases(),
        shares::cases(),
        both_ways::cases(),
        options::cases(),
        memory::cases(),
        partners::cases(),
        pieces::cases(),
        strict::cases(),
        idle::cases(),
        leftovers::cases(),
        watching::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(variant) = child::served() {
        idle::serve(variant);
        return ExitCode::SUCCESS;
    }
    if let Some(wanted) = child::wanted() {
        return child::run_here(&cases, &wanted);
    }
    let mut args = libtest_mimic::Arguments::from_args();
    // Most cases wait most of the time: more of them at once than there are processors.
    args.test_threads.get_or_insert(8);
    let variants = variant::working();
    let trials = case::trials(&cases, &variants);
    libtest_mimic::run(&args, trials).exit_code()
}
