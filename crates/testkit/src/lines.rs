//! How many lines of code there are.
//!
//! Counted: lines of `.rs` files that are neither blank nor a comment alone. Left out: folders `tests`, `benches` and
//! `examples`, files `tests.rs`, and modules behind `#[cfg(test)]` that stand at the end of a file.

use std::fs;
use std::io;
use std::path::Path;

use crate::imports::code_of;

/// Lines of code in one text. Lines of a block comment count as code; the project has none.
#[must_use]
pub fn in_text(text: &str) -> usize {
    let lines = code_of(text).lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

/// The number of lines of code of each file in `folder` and below it, with its path.
///
/// # Errors
/// If a folder or a file cannot be read.
pub fn in_folder(folder: &Path) -> io::Result<Vec<(String, usize)>> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let stem = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            if matches!(stem, "tests" | "benches" | "examples" | "target") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                all.push((
                    path.display().to_string(),
                    in_text(&fs::read_to_string(&path)?),
                ));
            }
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = "//! Doc.\n\nfn f() {\n    // why\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        assert_eq!(in_text(text), 3);
    }
}
