//! Replicators over a simulated home, thousands of seeds: nodes are killed and copied, answers are lost, late and out of
//! order, the home's coordinator is away, partitions move between nodes; and nothing that was acknowledged as replicated may be missing at home, be there
//! twice, or out of order.

mod failover;
mod fleet;
#[allow(dead_code, reason = "a part of it is for the tests of stores")]
mod home;
mod marks;
mod memory;
mod mistakes;
mod node;
mod seeds;
#[path = "../../../log/tests/simulated/twice.rs"]
mod twice;
mod world;

use tidewire_replicate::Mistakes;

#[test]
fn one_node_loses_nothing_and_doubles_nothing() {
    seeds::all("one_node_loses_nothing_and_doubles_nothing", 3000, |seed| {
        world::run(seed, 1, Mistakes::default())
    });
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let tests = [
        "one_node_loses_nothing_and_doubles_nothing",
        "two_nodes_that_both_believe_lose_nothing_and_double_nothing",
    ];
    for test in tests {
        (0..6).for_each(|seed| twice::says_the_same(test, seed, "crash: "));
    }
}

#[test]
fn two_nodes_that_both_believe_lose_nothing_and_double_nothing() {
    let name = "two_nodes_that_both_believe_lose_nothing_and_double_nothing";
    seeds::all(name, 2000, |seed| world::run(seed, 2, Mistakes::default()));
}
