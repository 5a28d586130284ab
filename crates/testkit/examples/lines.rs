//! Prints how many lines of code each crate has, and their sum. With `--files N`: the N longest files as well.

use std::path::Path;
use std::{env, fs, io};

use tidewire_testkit::lines;

fn main() -> io::Result<()> {
    let longest = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 0,
        [flag, count] if flag == "--files" => count.parse().map_err(io::Error::other)?,
        _ => return Err(io::Error::other("usage: lines [--files N]")),
    };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names = fs::read_dir(&crates)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    let (mut files, mut sum) = (Vec::new(), 0);
    for path in names.iter().filter(|path| path.join("src").is_dir()) {
        let these = lines::in_folder(&path.join("src"))?;
        let code: usize = these.iter().map(|(_, code)| code).sum();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!("{code:>8}  {:>4} files  {name}", these.len());
        sum += code;
        files.extend(these);
    }
    println!("{sum:>8}  {:>4} files  in all", files.len());
    files.sort_by_key(|(_, code)| std::cmp::Reverse(*code));
    for (path, code) in files.iter().take(longest) {
        println!("{code:>8}  {}", path.rsplit("/../").next().unwrap_or(path));
    }
    Ok(())
}
