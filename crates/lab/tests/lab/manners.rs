//! What all commands have in common: statuses, help, hosts by name, completions and pages of `man`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::common::{Running, addr, program, run, stderr, stdout};

#[test]
fn mistakes_on_the_command_line_have_status_2() {
    for command in ["bench", "lab"] {
        let output = run(&[command, "--no-such-flag"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(output.stdout.is_empty(), "{command}");
        assert!(
            said.contains("--no-such-flag") || said.contains("Usage"),
            "{command}: {said}"
        );
    }
}

#[test]
fn hosts_have_names() {
    let mut server = Running::start(&["serve", "echo", "--listen", "echo=localhost:0"]);
    let at = addr(&server.line());
    let to = format!("localhost:{}", at.port());
    if at.is_ipv4() {
        let output = run(&["bench", "echo", "--addr", &to, "--count", "10", "--no-pin"]);
        assert!(
            matches!(output.status.code(), Some(0 | 4)),
            "{}",
            stderr(&output)
        );
    }
    server.signal(Signal::TERM);
    assert_eq!(server.end().status.code(), Some(0));
    let output = run(&["bench", "echo", "--addr", "127.0.0.300:7"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("127.0.0.300:7"));
}

/// What `tidewire` is told of these commands reaches its help, completions and pages.
#[test]
fn the_help_completions_and_pages_of_tidewire_have_these_commands() {
    for asked in [
        &["bench", "echo", "--help"][..],
        &["help", "bench", "echo"],
        &["bench", "help", "echo"],
    ] {
        let output = run(asked);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let help = stdout(&output);
        assert!(
            help.contains("Usage: tidewire bench echo [OPTIONS]") && help.contains("--pipeline"),
            "{help}"
        );
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = stdout(&run(&["completions", shell]));
        // A flag of `bench kv`, one of `lab`, and one of `serve`.
        for flag in ["fill-command", "run-time", "kv-maxmemory"] {
            assert!(text.contains(flag), "{shell}: {flag}");
        }
    }
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("man1");
    let output = run(&["man", to.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let pages = fs::read_dir(&to).unwrap().count();
    assert!(
        stdout(&output).starts_with(&format!("{pages} pages in ")),
        "{pages}: {}",
        stdout(&output)
    );
    for page in ["tidewire-bench-ab-echo.1", "tidewire-lab-counts.1"] {
        let text = fs::read_to_string(to.join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(!to.join("tidewire-commands.1").exists());
}

/// The server that is measured is the `tidewire` that runs the lab, also where another one stands beside the lab.
#[test]
fn the_program_that_runs_the_lab_is_the_one_that_is_measured() {
    let place = tempfile::tempdir().unwrap();
    let (other, mark) = (place.path().join("tidewire"), place.path().join("started"));
    fs::write(
        &other,
        format!("#!/bin/sh\necho \"$@\" > {}\n", mark.display()),
    )
    .unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(program().with_file_name("tidewire-lab"))
        .args(["bench", "echo", "--count", "10", "--no-pin"])
        .env("TIDEWIRE_PROGRAM", &other)
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot start the server"), "{said}");
    assert!(fs::read_to_string(&mark).unwrap().starts_with("serve echo"));
}

/// A run is repeated by the command that was given, and not the program that `tidewire` became.
#[test]
fn a_report_has_the_command_as_it_was_given() {
    let place = tempfile::tempdir().unwrap();
    let json = place.path().join("r.json");
    let to = ["--no-pin", "--json", json.to_str().unwrap()];
    let output = run(&[&["bench", "echo", "--count", "10"], &to[..]].concat());
    let said = stderr(&output);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["command"][0], program().to_str().unwrap());
}
