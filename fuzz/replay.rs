//! A target's corpus, which is kept beside it, given to the target once more.

use std::fs;
use std::path::Path;

/// Gives every input of `fuzz/corpus/NAME` to `target`, in the order of their names. The last name
/// printed is that of the input that failed.
///
/// # Panics
/// If there is none: a corpus that is not found replays nothing.
pub fn replay(name: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = fs::read_dir(corpus.join(name)).expect("a corpus for each target");
    let mut paths: Vec<_> = files.map(|file| file.expect("listed").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "the corpus of {name} is empty");
    for path in paths {
        println!("{}", path.display());
        target(&fs::read(&path).expect("a file that was listed"));
    }
}
