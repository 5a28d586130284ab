//! Finds the commit that is built, for `tidewire --version`. The sources are the environment (packages are built from
//! an archive), the file that cargo puts into a published archive, and git, if this is its work tree. Nothing else of
//! the machine goes into the program, so that equal sources give equal programs. Builds for tests have no commit: they
//! would be made again for each commit.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Digits of a commit that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=TIDEWIRE_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("TIDEWIRE_COMMIT").is_some() {
        return;
    }
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let commit = archived(Path::new(&here)).or_else(|| is_release.then(|| git(&here)).flatten());
    if let Some(commit) = commit {
        let short = commit.get(..DIGITS).unwrap_or(&commit);
        println!("cargo::rustc-env=TIDEWIRE_COMMIT={short}");
    }
}

/// The commit as `cargo package` has written it.
fn archived(here: &Path) -> Option<String> {
    let text = fs::read_to_string(here.join(".cargo_vcs_info.json")).ok()?;
    let (_, after) = text.split_once("\"sha1\": \"")?;
    is_commit(after.split('"').next()?)
}

/// The commit as git knows it, unless the work tree is another project's, which does not contain
/// these sources.
fn git(here: &str) -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(here).args(args).output();
        let output = output.ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned())
    };
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for place in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", place])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    is_commit(&git(&["rev-parse", "HEAD"])?)
}

fn is_commit(text: &str) -> Option<String> {
    let is = text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is.then(|| text.to_owned())
}
