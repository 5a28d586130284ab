//! Golden bytes: what is written to wires and disks is what it was. Taken in by the tests of several crates.
//!
//! `TIDEWIRE_GOLDEN=write cargo test golden` writes the files anew. README.md here says when that may be done.

use std::fmt::Write;
use std::path::Path;

/// Holds `found` to the file of this name.
pub(crate) fn check(name: &str, found: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = here.join("../../golden").join(name);
    if std::env::var_os("TIDEWIRE_GOLDEN").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, golden,
        "{name} has changed: golden/README.md says what that means"
    );
}

/// Sixteen bytes a line, without lines of zeros alone.
#[allow(dead_code, reason = "for formats that are not text")]
pub(crate) fn hex(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("{name}, {} bytes\n", bytes.len());
    for (line, bytes) in bytes.chunks(16).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let shown: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        let readable = bytes.iter().map(|byte| match byte {
            b' '..=b'~' => *byte as char,
            _ => '.',
        });
        let readable: String = readable.collect();
        writeln!(text, "{:6} {shown:<48}  {readable}", line * 16).unwrap();
    }
    text
}
