//! Programs whose instructions say something about them, and programs that another program
//! executes.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Programs that generate or interpret code: the counts would be theirs, and depend on the clock.
const FOREIGN: [&str; 17] = [
    "java", "node", "nodejs", "python", "pypy", "ruby", "php", "perl", "dotnet", "mono", "erl",
    "beam", "bun", "deno", "luajit", "lua", "julia",
];

/// A program that is executed by another one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{program} is run by {by}, which makes or reads its code while it runs: its instructions repeat from no run to the next, \
     so of it time alone is had"
)]
pub struct Foreign {
    /// The program.
    pub program: String,
    /// The name of the virtual machine or interpreter.
    pub by: String,
}

/// Checks that a program's instructions are its own, and not an interpreter's.
///
/// # Errors
/// [`Foreign`] if a virtual machine or an interpreter executes it.
pub fn of_program(program: &Path) -> Result<(), Foreign> {
    let path = found(program);
    let foreign = |by: &str| Foreign {
        program: program.display().to_string(),
        by: by.to_owned(),
    };
    if let Some(by) = foreign_name(program).or_else(|| foreign_name(&path)) {
        return Err(foreign(&by));
    }
    let Some(first) = first_line(&path) else {
        return Ok(());
    };
    // `#!/usr/bin/env -S python3 -u` names the interpreter behind flags.
    let words = first.split_ascii_whitespace();
    match words.map(Path::new).find_map(foreign_name) {
        Some(by) => Err(foreign(&by)),
        None => Ok(()),
    }
}

/// The file behind a name, links followed.
fn found(program: &Path) -> PathBuf {
    let path = match program.components().count() {
        1 => {
            let path = env::var_os("PATH").unwrap_or_default();
            let all = env::split_paths(&path).map(|dir| dir.join(program));
            all.into_iter().find(|path| path.is_file())
        }
        _ => None,
    };
    let path = path.unwrap_or_else(|| program.to_owned());
    fs::canonicalize(&path).unwrap_or(path)
}

/// The name of a program in [`FOREIGN`], with or without a version behind it.
fn foreign_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let stem = stem.strip_suffix(".smp").unwrap_or(stem);
    FOREIGN.contains(&stem).then(|| name.to_owned())
}

/// The first line of a script, without `#!`.
fn first_line(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut head = [0; 256];
    let mut file = fs::File::open(path).ok()?;
    let n = file.read(&mut head).ok()?;
    let line = head[..n].strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_machines_and_scripts_are_known_by_name_and_by_first_line() {
        let by = |program: &str| {
            of_program(Path::new(program))
                .err()
                .map(|foreign| foreign.by)
        };
        assert_eq!(by("/opt/jdk/bin/java").as_deref(), Some("java"));
        assert_eq!(by("python3.12").as_deref(), Some("python3.12"));
        assert_eq!(by("/usr/lib/erlang/beam.smp").as_deref(), Some("beam.smp"));
        assert_eq!(by("/bin/sh"), None);
        assert_eq!(by("/usr/bin/javac-like-server"), None);
        let dir = env::temp_dir().join(format!("tidewire-native-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let script = dir.join("server");
        let told = |text: &str| {
            fs::write(&script, text).unwrap();
            by(script.to_str().unwrap())
        };
        assert_eq!(
            told("#!/usr/bin/env -S python3 -u\nx").as_deref(),
            Some("python3")
        );
        assert_eq!(told("#!/bin/sh\nexec server\n"), None);
        assert_eq!(told("\x7fELF python3"), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
