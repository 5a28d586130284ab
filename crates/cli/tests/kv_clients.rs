//! Stock Redis clients against `tidewire serve kv`, as far as they are installed. What was skipped
//! and why is in each trial's name and output; `clients/kv/README.md` says how to install the rest.
//!
//! With `TIDEWIRE_KV_CLIENTS=all` a client that is not found is a failure.

#[path = "command/common/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::durable::{Place, lines, send};
use common::pki::Files;
use common::{Running, addr};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::Signal;

fn main() {
    let mut trials: Vec<Trial> = programs().into_iter().map(trial).collect();
    let speak_tls = |program: &Program| ["redis-py-8", "go-redis"].contains(&program.name.as_str());
    for mut program in programs().into_iter().filter(speak_tls) {
        program.name += "-tls";
        program.tls = true;
        trials.push(trial(program));
    }
    for mut program in programs()
        .into_iter()
        .filter(|p| p.name.starts_with("redis-py"))
    {
        program.name += "-log";
        trials.push(Program::log_trial(program));
    }
    trials.push(tool("redis-cli-log", redis_cli_log));
    trials.push(tool("redis-cli-tls", redis_cli_tls));
    trials.push(tool("redis-cli", redis_cli));
    trials.push(tool("redis-benchmark", redis_benchmark));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A client's program, or why it cannot be run.
struct Program {
    name: String,
    command: Result<Vec<String>, String>,
    directory: PathBuf,
    /// The client takes a file of authorities as well.
    tls: bool,
}

fn programs() -> Vec<Program> {
    let sources = root().join("clients/kv");
    let installed = root().join("target/clients");
    let mut all = Vec::new();
    let mut add = |name: &str, directory: &str, command: Result<Vec<String>, String>| {
        all.push(Program {
            name: name.into(),
            command,
            directory: sources.join(directory),
            tls: false,
        });
    };
    let own = |path: PathBuf| path.exists().then(|| path.display().to_string());
    for major in ["5", "8"] {
        let python = own(installed.join(format!("redis-py-{major}/bin/python")))
            .or_else(|| (major == "8" && has_redis("python3")).then(|| "python3".into()));
        let command = python.map(|python| vec![python, "check.py".into()]);
        let missing = format!("no python with redis-py {major}");
        add(
            &format!("redis-py-{major}"),
            "python",
            command.ok_or(missing),
        );
    }
    let built = own(installed.join("go-redis")).map(|path| vec![path]);
    add("go-redis", "go", built.ok_or("not built".into()));
    for script in ["node-redis", "ioredis"] {
        let there = sources.join("node/node_modules").exists();
        let command = there.then(|| vec!["node".to_owned(), format!("{script}.mjs")]);
        add(
            script,
            "node",
            command.ok_or("its packages are not installed".into()),
        );
    }
    let compiled = sources.join("java/target/classes").exists();
    let maven = ["mvn", "-q", "-B", "-o", "-Dstyle.color=never", "exec:java"];
    let command = compiled.then(|| maven.map(str::to_owned).to_vec());
    add("jedis", "java", command.ok_or("not compiled".into()));
    let built = own(installed.join("rust/debug/kv-check")).map(|path| vec![path]);
    add("redis-rs", "rust", built.ok_or("not built".into()));
    all
}

fn trial(program: Program) -> Trial {
    match program.command {
        Ok(command) => Trial::test(program.name, move || {
            let files = program.tls.then(Files::new);
            check(&command, &program.directory, files.as_ref())
        }),
        Err(why) => skipped(&program.name, why),
    }
}

impl Program {
    /// The trial reads the log of ingest.
    fn log_trial(self) -> Trial {
        match self.command {
            Ok(command) => Trial::test(self.name, move || reads_log(&command[0], &self.directory)),
            Err(why) => skipped(&self.name, why),
        }
    }
}

/// A server that shows its log, which has 1,000 lines: where ingest is, and the port for clients of Redis.
fn showing_log(place: &Place) -> Result<(Running, String, String), Failed> {
    let data = place.path("data");
    let mut server = Running::start(&[
        "serve",
        "ingest",
        "kv/resp",
        "--listen",
        "ingest=0",
        "--listen",
        "kv/resp=0",
        "--data",
        &data,
        "--segment",
        "8MiB",
        "--kv-log-keys",
        "log:",
    ]);
    let (mut ingest, mut port) = (String::new(), String::new());
    for _ in 0..2 {
        let line = server.line();
        let at = addr(&line);
        match line.contains("service=ingest") {
            true => ingest = at.to_string(),
            false => port = at.port().to_string(),
        }
    }
    send_lines(&ingest, &lines(1000))?;
    Ok((server, ingest, port))
}

fn send_lines(ingest: &str, lines: &str) -> Result<(), Failed> {
    let sent = send(ingest, &["--producer", "numbers"], lines);
    match sent.status.success() {
        true => Ok(()),
        false => Err(common::stderr(&sent).into()),
    }
}

fn reads_log(python: &str, directory: &Path) -> Result<(), Failed> {
    let place = Place::new();
    let (_server, ingest, port) = showing_log(&place)?;
    let mut client = Command::new(python);
    client.args(["log.py", "127.0.0.1", &port]);
    let mut child = client
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut done = false;
    while let Some(Ok(line)) = lines.next() {
        if line == "reads" {
            send_lines(&ingest, &self::lines(1500)[self::lines(1000).len()..])?;
        }
        done |= line.starts_with("ok ");
    }
    let output = child.wait_with_output()?;
    if !output.status.success() || !done {
        return Err(common::stderr(&output).into());
    }
    Ok(())
}

fn redis_cli_log() -> Result<(), Failed> {
    let place = Place::new();
    let (_server, _, port) = showing_log(&place)?;
    for version in [&[][..], &["-3"]] {
        for (args, want) in [
            (&["xlen", "log:default"][..], "1000"),
            (
                &["xread", "count", "1", "streams", "log:default", "41"],
                "line 42",
            ),
            (&["xrange", "log:default", "-", "+", "count", "1"], "0-1"),
            (
                &["xrevrange", "log:default", "+", "-", "count", "1"],
                "999-1",
            ),
            (&["xinfo", "stream", "log:default"], "entries-added"),
            (&["set", "log:default", "1"], "streams of the log"),
        ] {
            let mut cli = Command::new("redis-cli");
            let output = cli.args(version).args(["-p", &port]).args(args).output()?;
            let said = common::stdout(&output);
            if !said.contains(want) {
                return Err(format!("{args:?}: {said:?}, without {want:?}").into());
            }
        }
    }
    Ok(())
}

fn tool(name: &'static str, run: fn() -> Result<(), Failed>) -> Trial {
    let program = name.trim_end_matches("-tls").trim_end_matches("-log");
    let found = Command::new(program).arg("--version").output();
    match found {
        Ok(_) => Trial::test(name, run),
        Err(e) => skipped(name, e.to_string()),
    }
}

fn skipped(name: &str, why: String) -> Trial {
    if std::env::var("TIDEWIRE_KV_CLIENTS").is_ok_and(|v| v == "all") {
        return Trial::test(name, move || Err(format!("cannot be run: {why}").into()));
    }
    Trial::test(format!("{name} (skipped: {why})"), || Ok(())).with_ignored_flag(true)
}

/// Runs a client's program, restarting the server where it asks for that.
fn check(command: &[String], directory: &Path, tls: Option<&Files>) -> Result<(), Failed> {
    let mut server = start("0", tls);
    let at = addr(&server.line());
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let mut client = Command::new(&command[0]);
    client.args(&command[1..]).current_dir(directory);
    if command[0] == "mvn" {
        client.arg(format!("-Dexec.args={host} {port}"));
    } else {
        client.args([&host, &port]);
        client.args(tls.map(|files| &files.authority));
    }
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut done = false;
    while let Some(Ok(line)) = lines.next() {
        if line.ends_with("restart") {
            server.signal(Signal::TERM);
            let ended = server.end();
            if !ended.status.success() {
                return Err(common::stderr(&ended).into());
            }
            server = start(&port, tls);
            server.line();
            stdin.write_all(b"go\n")?;
        }
        done |= line.starts_with("ok ");
    }
    let output = child.wait_with_output()?;
    if !output.status.success() || !done {
        return Err(common::stderr(&output).into());
    }
    Ok(())
}

fn redis_cli() -> Result<(), Failed> {
    redis_cli_over(None)
}

fn redis_cli_tls() -> Result<(), Failed> {
    redis_cli_over(Some(&Files::new()))
}

fn redis_cli_over(tls: Option<&Files>) -> Result<(), Failed> {
    let mut server = start("0", tls);
    let port = addr(&server.line()).port().to_string();
    let say = |args: &[&str]| -> Result<String, Failed> {
        let mut cli = Command::new("redis-cli");
        if let Some(files) = tls {
            cli.args(["--tls", "--cacert"]).arg(&files.authority);
        }
        let output = cli.args(["-p", &port]).args(args).output()?;
        Ok(common::stdout(&output).trim_end().to_owned())
    };
    for (args, want) in [
        (&["set", "k", "v"][..], "OK"),
        (&["get", "k"], "v"),
        (&["-3", "hset", "h", "f", "1"], "1"),
        (&["lpush", "l", "a", "b"], "2"),
        (&["lrange", "l", "0", "-1"], "b\na"),
        (&["zadd", "z", "1.5", "m"], "1"),
        (&["zscore", "z", "m"], "1.5"),
        (&["sadd", "s", "x"], "1"),
        (
            &["nonsense"],
            "ERR unknown command 'nonsense', with args beginning with:",
        ),
    ] {
        let got = say(args)?;
        if got.trim_end() != want {
            return Err(format!("{args:?}: {got:?}, not {want:?}").into());
        }
    }
    Ok(())
}

fn redis_benchmark() -> Result<(), Failed> {
    let mut server = start("0", None);
    let port = addr(&server.line()).port().to_string();
    for pipeline in ["1", "16"] {
        let output = Command::new("redis-benchmark")
            .args(["-p", &port, "-n", "2000", "-c", "20", "-P", pipeline, "-q"])
            .output()?;
        let said = common::stdout(&output) + &common::stderr(&output);
        if !output.status.success() || said.contains("rror") || !said.contains("MSET (10 keys)") {
            return Err(said.into());
        }
    }
    Ok(())
}

fn start(port: &str, tls: Option<&Files>) -> Running {
    let at = format!("kv/resp={port}");
    let mut args = vec!["serve", "kv", "--listen", &at];
    if let Some(files) = tls {
        args.extend(files.serve());
    }
    Running::start(&args)
}

fn has_redis(python: &str) -> bool {
    Command::new(python)
        .args(["-c", "import redis"])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
