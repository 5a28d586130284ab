//! `bench` and `lab` are another program: it is found beside this one or in PATH, gets the arguments as they are, and its end
//! is the end of the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{program, stderr, stdout};

/// This program in a directory of its own, so that nothing stands beside it.
fn alone(place: &Path) -> Command {
    let own = program();
    let copy = place.join("tidewire");
    if fs::hard_link(own, &copy).is_err() && !copy.exists() {
        fs::copy(own, &copy).unwrap();
    }
    let mut command = Command::new(copy);
    command.env("PATH", place.join("path"));
    command
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn ended(command: &mut Command) -> Output {
    command.output().unwrap()
}

#[test]
fn where_it_is_not_the_command_says_how_to_get_it() {
    let place = tempfile::tempdir().unwrap();
    for words in [&["bench", "echo"][..], &["lab", "--help"], &["help", "lab"]] {
        let output = ended(alone(place.path()).args(words));
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = stderr(&output);
        for part in ["tidewire-lab", "PATH", "cargo build ", "--bin tidewire-lab"] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
    }
    // Commands that do not need the lab work without it.
    let help = stdout(&ended(alone(place.path()).arg("--help")));
    assert!(
        help.contains("  bench ") && help.contains("  lab "),
        "{help}"
    );
    let completions = ended(alone(place.path()).args(["completions", "bash"]));
    assert!(stdout(&completions).contains("kv-maxmemory"));
}

#[test]
fn it_is_taken_from_beside_before_path_and_is_the_command_from_then_on() {
    let place = tempfile::tempdir().unwrap();
    let tell = |name: &str| {
        format!(
            "#!/bin/sh\necho {name} $$ \"$TIDEWIRE_PROGRAM\" \"$@\"\nexec 1>&-\nkill -s KILL $$\n"
        )
    };
    let in_path = place.path().join("path/tidewire-lab");
    script(&in_path, &tell("path"));
    let words = ["bench", "echo", "--size", "7", "--", "-x"];
    let run = || {
        let mut command = alone(place.path());
        let child = command
            .args(words)
            .stdout(std::process::Stdio::piped())
            .spawn();
        let child = child.unwrap();
        let pid = child.id();
        (pid, child.wait_with_output().unwrap())
    };
    let own = place.path().join("tidewire");
    for name in ["path", "beside"] {
        let (pid, output) = run();
        let said = stdout(&output);
        let expected = format!("{name} {pid} {} bench echo --size 7 -- -x\n", own.display());
        assert_eq!(said, expected, "the same process, and the same words");
        // Ended by a signal: nothing stands between it and the process that waits.
        assert_eq!(output.status.code(), None);
        script(&place.path().join("tidewire-lab"), &tell("beside"));
    }
}
