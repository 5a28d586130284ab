//! What all commands have in common: statuses, help, hosts by name, colours, the file of settings, and that a mistake
//! is said once, with what to do.

use std::fs;
use std::process::{Output, Stdio};

use rustix::process::Signal;

use crate::common::{Running, addr, run, stderr, stdout, tidewire};

fn with_env(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = tidewire(args);
    command.envs(variables.iter().copied());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::from(child.spawn().unwrap()).end()
}

fn refused(args: &[&str], status: i32) -> String {
    let output = run(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", stdout(&output));
    said
}

#[test]
fn mistakes_on_the_command_line_have_status_2_in_every_command() {
    for command in [
        "serve",
        "send",
        "ship",
        "read",
        "stream",
        "info",
        "top",
        "log",
        "kv",
        "config",
        "completions",
        "man",
    ] {
        let said = refused(&[command, "--no-such-flag"], 2);
        assert!(
            said.contains("--no-such-flag") || said.contains("Usage"),
            "{command}: {said}"
        );
    }
    refused(&["no-such-command"], 2);
    refused(&[], 2);
}

#[test]
fn settings_that_are_typing_mistakes_are_said_once_with_what_to_do() {
    let echo = ["serve", "echo", "--listen", "echo=0"];
    let with = |more: &[&'static str], status| refused(&[&echo[..], more].concat(), status);
    let said = with(&["--log", "verbose"], 2);
    assert!(said.contains("verbose") && said.contains("debug"), "{said}");
    let said = with(&["--cpus", "0,9999"], 2);
    assert!(said.contains("--cpus 9999"), "{said}");
    let said = with(&["--bind", "no such host"], 2);
    assert!(said.contains("no such host"), "{said}");

    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("passwd");
    fs::write(&file, "root\n").unwrap();
    let path = file.to_str().unwrap();
    let said = refused(
        &["serve", "ingest", "--listen", "ingest=0", "--data", path],
        1,
    );
    assert!(said.contains(path) && said.contains("directory"), "{said}");
    assert_eq!(said.matches("os error").count(), 1, "{said}");
    assert_eq!(fs::read(&file).unwrap(), b"root\n");
}

/// "another process has this log open: another process has it open" was said once.
#[test]
fn a_locked_log_is_said_once() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let data = data.to_str().unwrap();
    let serve = ["serve", "ingest", "--listen", "ingest=0", "--data", data];
    let mut server = Running::start(&serve);
    assert!(server.line().starts_with("listening "));
    let said = refused(&serve, 1);
    assert_eq!(said.matches("another process").count(), 1, "{said}");
    assert_eq!(said.matches(data).count(), 1, "{said}");
    assert!(said.contains("--data"), "{said}");
}

#[test]
fn hosts_have_names() {
    let args = [
        "serve",
        "echo",
        "--listen",
        "echo=localhost:0",
        "--engine",
        "epoll",
    ];
    let mut server = Running::start(&args);
    let line = server.line();
    let at = addr(&line);
    assert!(at.ip().is_loopback(), "{line}");
    server.signal(Signal::TERM);
    assert_eq!(server.end().status.code(), Some(0));

    let mut server = Running::start(&[
        "serve",
        "discard",
        "--bind",
        "localhost",
        "--listen",
        "discard=0",
    ]);
    assert!(addr(&server.line()).ip().is_loopback());
    drop(server);

    let args = [
        "serve",
        "echo",
        "--listen",
        "echo=0",
        "--admin",
        "localhost:0",
    ];
    let mut server = Running::start(&args);
    let lines = [server.line(), server.line()];
    assert!(lines[1].contains("service=admin"), "{lines:?}");
    assert!(addr(&lines[1]).ip().is_loopback(), "{lines:?}");
}

#[test]
fn an_unknown_host_is_named() {
    for args in [
        &["serve", "echo", "--listen", "echo=a..b:7"][..],
        &["serve", "echo", "--listen", "echo=127.0.0.300:7"],
        &["serve", "echo", "--admin", "1.2.3:7480"],
    ] {
        let said = refused(args, 2);
        let last = args.last().unwrap().trim_start_matches("echo=");
        assert!(said.contains(last), "{said}");
    }
}

#[test]
fn the_file_is_flags_and_they_go_before_the_environment_and_it_before_the_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tidewire.toml");
    let path = file.to_str().unwrap();
    let text = "services = ['echo']\nlisten = ['echo=0']\nengine = 'threads'\nlog = 'info'\nworkers = 2\n\
                data = 'unused'\nkv-maxmemory = '1GiB'\n[durable-log]\nsegment = '16MiB'\n[kv]\nmaxmemory-policy = 1\n";
    fs::write(&file, text).unwrap();
    let checked = run(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(1), "{}", stdout(&checked));
    let said = stdout(&checked);
    assert!(
        said.contains(&format!("{path}:11: unknown setting `kv.maxmemory-policy`")),
        "{said}"
    );
    let said = refused(&["serve", "--config", path], 2);
    assert!(said.contains("line 11"), "{said}");

    fs::write(
        &file,
        text.replace("maxmemory-policy = 1", "policy = 'allkeys-lru'"),
    )
    .unwrap();
    let checked = run(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    for (variables, more, engine) in [
        (&[][..], &[][..], "threads"),
        (&[("TIDEWIRE_ENGINE", "epoll")], &[], "epoll"),
        (
            &[("TIDEWIRE_ENGINE", "threads")],
            &["--engine", "epoll"],
            "epoll",
        ),
    ] {
        let mut command = tidewire(&[&["serve", "--config", path], more].concat());
        command.envs(variables.iter().copied());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = Running::from(child.spawn().unwrap());
        let line = server.line();
        assert!(line.ends_with(&format!("engine={engine}")), "{line}");
    }
    let output = with_env(&["serve", "echo"], &[("TIDEWIRE_WORKERS", "many")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("TIDEWIRE_WORKERS"),
        "{}",
        stderr(&output)
    );
    refused(&["config", "check", "/nowhere/at/all.toml"], 2);
    // `config check` finds settings that a server could not have, too.
    fs::write(&file, "tls-key = 'k.pem'\n").unwrap();
    let checked = run(&["config", "check", path]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        stderr(&checked).contains("--tls-cert"),
        "{}",
        stderr(&checked)
    );
}

#[test]
fn the_example_is_the_file_that_is_shipped_and_says_nothing() {
    let printed = run(&["config", "example"]);
    assert_eq!(printed.status.code(), Some(0));
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tidewire.toml");
    fs::write(&file, &printed.stdout).unwrap();
    let checked = run(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(
        fs::read(root.join("tidewire.toml")).unwrap(),
        printed.stdout
    );
}

/// What people came for is what they see.
#[test]
fn the_classic_ports_are_not_in_the_banner() {
    let help = stdout(&run(&["serve", "-h"]));
    assert!(help.contains("echo, ingest, kv (the default)"), "{help}");
    assert!(help.lines().count() <= 24, "{help}");
}

#[test]
fn shells_and_man_are_served() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(
            text.contains("kv-maxmemory") && text.contains("bench"),
            "{shell}"
        );
    }
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("man1");
    let output = run(&["man", to.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for page in ["tidewire.1", "tidewire-serve.1", "tidewire-config-check.1"] {
        let text = fs::read_to_string(to.join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    let serve = fs::read_to_string(to.join("tidewire-serve.1")).unwrap();
    assert!(serve.contains("maxmemory"), "{serve}");
    // Flags that `-h` does not show are described in man pages.
    assert!(serve.contains("Longest time to poll before"), "{serve}");
    // A place that cannot be.
    refused(&["man", "/proc/nowhere/man1"], 1);
}

#[test]
fn the_version_says_what_is_running() {
    let short = stdout(&run(&["-V"]));
    assert!(
        short.starts_with(&format!("tidewire {}", env!("CARGO_PKG_VERSION"))),
        "{short}"
    );
    let long = stdout(&run(&["--version"]));
    assert!(long.contains("engines: threads, epoll, uring"), "{long}");
}

/// Nothing is coloured where it is not wished, nor where the output is no terminal.
#[test]
fn colours_are_left_out_where_they_are_not_wished() {
    let escape = '\u{1b}';
    let forced = with_env(&["--help"], &[("CLICOLOR_FORCE", "1")]);
    assert!(stdout(&forced).contains(escape));
    let variables = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    assert!(!stdout(&with_env(&["--help"], &variables)).contains(escape));
    assert!(!stdout(&run(&["--help"])).contains(escape));
    let echo = [
        "serve",
        "echo",
        "--listen",
        "echo=0",
        "--log-format",
        "text",
    ];
    for (variables, coloured) in [
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("CLICOLOR", "1")], false),
    ] {
        let mut command = tidewire(&echo);
        command.envs(variables.iter().copied());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = Running::from(child.spawn().unwrap());
        assert!(server.line().starts_with("listening "));
        server.signal(Signal::TERM);
        assert_eq!(
            stderr(&server.end()).contains(escape),
            coloured,
            "{variables:?}"
        );
    }
}

/// What a server would fail on at its start is found by the check.
#[test]
fn a_check_reads_the_files_of_secrets_and_users() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tidewire.toml");
    for (text, said) in [
        ("kv-password-file = 'nofile'", "nofile"),
        ("kv-acl-file = 'nofile'", "nofile"),
        ("admin-token-file = 'nofile'", "nofile"),
        ("ingest-token-file = 'nofile'", "nofile"),
        ("kv-policy = 'newest'", "newest"),
    ] {
        fs::write(&file, text).unwrap();
        let said_by = refused(&["config", "check", file.to_str().unwrap()], 1);
        assert!(said_by.contains(said), "{text}: {said_by}");
    }
    // No secret is asked for of a service that does not run.
    fs::write(&file, "services = ['echo']\nkv-password-file = 'nofile'\n").unwrap();
    let checked = run(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
}

#[test]
fn what_cannot_be_a_server_is_usage() {
    for place in ["127.0.0.1", "127.0.0.1:x", ":7400", "unix:"] {
        for command in ["send", "read", "ship"] {
            let mut args = vec![command, "--to", place];
            if command == "ship" {
                args.push("nofile");
            }
            let said = refused(&args, 2);
            assert!(said.contains("unix:/PATH"), "{args:?}: {said}");
        }
    }
    let negative = refused(&["serve", "--workers", "-1"], 2);
    assert!(negative.contains("no whole number"), "{negative}");
}

#[test]
fn shipping_what_is_not_there_once_has_failed() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let absent = place.path().join("absent.log");
    let args = ["ship", "--once", "--to", "127.0.0.1:1", "--state"];
    let said = refused(
        &[
            &args[..],
            &[state.to_str().unwrap(), absent.to_str().unwrap()],
        ]
        .concat(),
        1,
    );
    assert!(said.contains("there is no file"), "{said}");
}
