//! Members of a fleet: a group moves partitions between them, cuts them off and brings them back, two believe that
//! they have the same one; and what one has claimed is carried once and in order, and what is left is known.

mod checker;
mod group;
mod homes;
mod member;
mod mistakes;
mod world;

use tidewire_replicate::Mistakes;

use crate::seeds;

#[test]
fn a_fleet_loses_nothing_and_doubles_nothing_while_partitions_move() {
    let name = "fleet::a_fleet_loses_nothing_and_doubles_nothing_while_partitions_move";
    seeds::all(name, 2000, |seed| world::run(seed, Mistakes::default()));
}
