//! The checkpoint of `tidewire ship`, held still: what an older version has written is read, and written again as it was.

use tidewire_ship::Checkpoint;

#[path = "../../../golden/check.rs"]
mod golden_check;

const WRITTEN: &str = include_str!("../../../golden/ship-checkpoint.json");

#[test]
fn golden_checkpoint() {
    let read = Checkpoint::decode(WRITTEN.trim_end().as_bytes()).unwrap();
    assert_eq!(read.files.len(), 2);
    assert_eq!(read.files[0].servers["log-1:7400"], 40);
    assert!(read.files[0].done && !read.files[1].done);
    let again = String::from_utf8(read.encode()).unwrap();
    golden_check::check("ship-checkpoint.json", &(again + "\n"));
}
