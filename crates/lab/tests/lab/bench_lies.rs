//! What measurements must not say: each by a server, or a result, that would make them say it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{PATIENCE, Running, program, run, schema, server, stderr, stdout};

fn written(path: &Path) -> Value {
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let schema = schema::bench();
    schema::check(&schema, &schema, &value, "").unwrap();
    value
}

/// Runs a command with `--json`: its status, what it said, and what it wrote.
pub(crate) fn told(dir: &Path, args: &[&str]) -> (i32, String, Option<Value>) {
    let path = dir.join("told.json");
    let _ = std::fs::remove_file(&path);
    let output = run(&[args, &["--json", path.to_str().unwrap()]].concat());
    let said = stdout(&output) + &stderr(&output);
    let json = path.exists().then(|| written(&path));
    (output.status.code().unwrap(), said, json)
}

/// Echoes 64 bytes at a time, for ever or so many in all.
fn echo(most: u64) -> SocketAddr {
    let all = Arc::new(AtomicU64::new(0));
    server(move |mut socket| {
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() {
            // From then on one byte is another.
            bytes[33] ^= u8::from(all.fetch_add(1, SeqCst) >= most);
            if socket.write_all(&bytes).is_err() {
                break;
            }
        }
    })
}

/// A store that forgets each write, or keeps it. Reads the arrays of one command after another.
fn store(keeps: bool) -> SocketAddr {
    server(move |socket| {
        let _ = serve_store(socket, keeps);
    })
}

pub(crate) fn serve_store(mut socket: TcpStream, keeps: bool) -> std::io::Result<()> {
    static KEPT: std::sync::Mutex<Option<HashMap<Vec<u8>, Vec<u8>>>> = std::sync::Mutex::new(None);
    let (mut bytes, mut more) = (Vec::new(), [0; 65_536]);
    loop {
        while let Some((words, n)) = command(&bytes) {
            bytes.drain(..n);
            let mut kept = KEPT.lock().unwrap();
            let kept = kept.get_or_insert_default();
            let reply = match &words[..] {
                [_, key, value] => {
                    if keeps {
                        kept.insert(key.clone(), value.clone());
                    }
                    b"+OK\r\n".to_vec()
                }
                [_, key] => match kept.get(key).filter(|_| keeps) {
                    Some(value) => {
                        [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
                    }
                    None => b"$-1\r\n".to_vec(),
                },
                _ => b"-ERR\r\n".to_vec(),
            };
            socket.write_all(&reply)?;
        }
        match socket.read(&mut more)? {
            0 => return Ok(()),
            n => bytes.extend_from_slice(&more[..n]),
        }
    }
}

/// The words of the command at the front, and its length, if all of it is there.
pub(crate) fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let line = |at: usize| {
        let end = bytes[at..].windows(2).position(|pair| pair == b"\r\n")? + at;
        let number = std::str::from_utf8(&bytes[at + 1..end])
            .ok()?
            .parse::<usize>()
            .ok()?;
        Some((number, end + 2))
    };
    bytes.first()?;
    let (count, mut at) = line(0)?;
    let mut words = Vec::new();
    for _ in 0..count {
        bytes.get(at)?;
        let (len, from) = line(at)?;
        words.push(bytes.get(from..from + len)?.to_vec());
        at = from + len + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

#[test]
fn a_store_that_forgets_is_not_trusted_and_not_better() {
    let dir = tempfile::tempdir().unwrap();
    let load = ["kv", "--keys", "50", "--no-pin"];
    let one = |addr: SocketAddr| {
        let to = addr.to_string();
        let more = ["--addr", &to, "--count", "500"];
        told(dir.path(), &[&["bench"], &load[..], &more].concat())
    };
    let (code, said, json) = one(store(false));
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("keeps nothing"), "{said}");
    let reads = &json.unwrap()["result"]["reads"];
    assert_eq!(reads["hits"], 0);
    assert!(reads["misses"].as_u64() > Some(0));
    let (_, said, json) = one(store(true));
    assert_eq!(json.unwrap()["result"]["reads"]["misses"], 0, "{said}");
    let (a, b) = (store(true), store(false));
    let (a, b) = (format!("addr={a},name=a"), format!("addr={b},name=b"));
    let ab = [
        "bench",
        "ab",
        "kv",
        "--keys",
        "50",
        "--no-pin",
        "--a",
        &a,
        "--b",
        &b,
        "--rounds",
        "6",
        "--round-time",
        "200ms",
        "--warmup",
        "5ms",
    ];
    let (code, said, json) = told(dir.path(), &ab);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("do not do the same work") && !said.contains("x the CPU"),
        "{said}"
    );
    assert!(json.unwrap()["result"]["doubts"][0].is_string());
}

#[test]
fn too_few_rounds_mean_nothing_and_say_so_by_their_status() {
    let dir = tempfile::tempdir().unwrap();
    let ab = [
        "bench",
        "ab",
        "echo",
        "--no-pin",
        "--a",
        "engine=epoll",
        "--b",
        "engine=epoll",
        "--rounds",
        "5",
        "--round-time",
        "200ms",
        "--warmup",
        "1ms",
    ];
    let (code, said, json) = told(dir.path(), &ab);
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("5 rounds, and fewer than 6 mean nothing"),
        "{said}"
    );
    assert_eq!(json.unwrap()["result"]["engine_a"], "epoll");
}

#[test]
fn an_interrupted_comparison_keeps_its_whole_rounds() {
    let dir = tempfile::tempdir().unwrap();
    // Each run has a connection: four rounds of three runs, and the one that is dropped.
    let (tell, runs) = std::sync::mpsc::channel();
    let addr = server(move |mut socket| {
        let _ = tell.send(());
        let mut bytes = [0; 64];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
    });
    let path: PathBuf = dir.path().join("ab.json");
    let side = format!("addr={addr},name=there");
    let bench = Running::start(&[
        "bench",
        "ab",
        "echo",
        "--size",
        "64",
        "--no-pin",
        "--a",
        &side,
        "--b",
        &side,
        "--rounds",
        "100000",
        "--round-time",
        "200ms",
        "--warmup",
        "1ms",
        "--json",
        path.to_str().unwrap(),
    ]);
    for _ in 0..16 {
        runs.recv_timeout(PATIENCE).unwrap();
    }
    bench.signal(Signal::INT);
    let output = bench.end();
    let said = stdout(&output) + &stderr(&output);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    let json = written(&path);
    let runs = |side: &str| {
        json["result"]["recording"]["samples"][side]
            .as_array()
            .unwrap()
            .len()
    };
    assert!(runs("a") >= 3, "{said}");
    assert_eq!((runs("a"), runs("a")), (runs("b"), runs("control")));
}

#[test]
fn a_fault_in_a_comparison_keeps_the_rounds_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let liar = format!("addr={},name=liar", echo(4_000));
    let ab = [
        "bench",
        "ab",
        "echo",
        "--size",
        "64",
        "--no-pin",
        "--a",
        &liar,
        "--b",
        "engine=epoll",
        "--rate",
        "1k",
        "--rounds",
        "10000",
        "--round-time",
        "200ms",
        "--warmup",
        "1ms",
    ];
    let (code, said, json) = told(dir.path(), &ab);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("flipped byte"), "{said}");
    let json = json.unwrap();
    assert!(
        json["result"]["failure"]
            .as_str()
            .unwrap()
            .contains("flipped byte")
    );
    let runs = json["result"]["recording"]["samples"]["b"]
        .as_array()
        .unwrap();
    assert!(runs.len() > 3, "{}", runs.len());
}

#[test]
fn a_faulty_server_ends_no_matrix() {
    let dir = tempfile::tempdir().unwrap();
    let liar = echo(0);
    let text = format!(
        "title='t'\nrounds=2\nrun_time='200ms'\nwarm_up='1ms'\n\
         [[server]]\nname='good'\nserve='--engine epoll'\n\
         [[server]]\nname='liar'\ncommand=['sleep','60']\naddr='{liar}'\n\
         [[server]]\nname='other'\nserve='--engine epoll'\n\
         [[workload]]\nname='w'\nload='echo --size 64 --no-pin'\n\
         [[workload]]\nname='v'\nload='echo --size 32 --no-pin'\nservers=['good']\n"
    );
    let suite = dir.path().join("s.toml");
    std::fs::write(&suite, text).unwrap();
    let (runs, page) = (dir.path().join("runs"), dir.path().join("p.html"));
    let [suite, runs, html] = [&suite, &runs, &page].map(|path| path.to_str().unwrap());
    let (code, said, json) = told(dir.path(), &["lab", suite, "--runs", runs, "--html", html]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("w, liar: wrong reply") && said.contains("flipped byte"),
        "{said}"
    );
    let json = json.unwrap();
    let works = json["result"]["workloads"].as_array().unwrap();
    assert_eq!(
        (works.len(), &works[0]["rounds"], &works[1]["rounds"]),
        (2, &json!(2), &json!(2))
    );
    for server in works[0]["servers"].as_array().unwrap() {
        let is_liar = server["name"] == "liar";
        assert_eq!(server["fault"].is_string(), is_liar, "{server}");
        let runs = server["runs"].as_array().unwrap().len();
        assert_eq!(runs, if is_liar { 0 } else { 2 });
    }
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .contains("flipped byte")
    );
}

/// A process that does nothing.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        let mut sleep = Command::new("sleep");
        Sleeper(sleep.arg("300").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_sleeps_is_no_server_of_no_nanoseconds() {
    let dir = tempfile::tempdir().unwrap();
    let (addr, sleeper) = (echo(u64::MAX).to_string(), Sleeper::start());
    let pid = sleeper.0.id().to_string();
    let load = [
        "bench", "echo", "--size", "64", "--count", "500", "--no-pin", "--addr", &addr,
    ];
    let (code, said, json) = told(dir.path(), &[&load[..], &["--pid", &pid]].concat());
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("held by processes that are not measured"),
        "{said}"
    );
    let reasons = &json.unwrap()["result"]["trust"]["reasons"];
    assert!(
        reasons.to_string().contains("server_elsewhere"),
        "{reasons}"
    );
    // Without it, the process that holds the connections is measured.
    let (_, said, json) = told(dir.path(), &load);
    let metered = &json.unwrap()["result"]["metered"]["server"]["total_ns"];
    assert!(
        metered.as_u64() > Some(0) && !said.contains("not measured"),
        "{said}"
    );
}

#[test]
fn a_rate_below_one_is_not_called_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let addr = echo(u64::MAX).to_string();
    let load = [
        "bench",
        "echo",
        "--size",
        "64",
        "--rate",
        "0.5",
        "--duration",
        "100ms",
        "--warmup",
        "0",
        "--no-pin",
        "--addr",
        &addr,
    ];
    let (_, said, _) = told(dir.path(), &load);
    assert!(
        said.contains("0.5 a second") && said.contains("of the 0.5 requests/s"),
        "{said}"
    );
}

#[test]
fn a_url_says_where_and_what() {
    let dir = tempfile::tempdir().unwrap();
    let addr = server(|mut socket| {
        let mut bytes = Vec::new();
        let mut more = [0; 4096];
        loop {
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = bytes.drain(..end + 4).collect();
                let head = String::from_utf8(head).unwrap();
                let good = head.starts_with("GET /a?b HTTP/1.1\r\nHost: localhost:");
                let status = if good { "200 OK" } else { "404 No" };
                let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
                if socket.write_all(reply.as_bytes()).is_err() {
                    return;
                }
            }
            match socket.read(&mut more) {
                Ok(n @ 1..) => bytes.extend_from_slice(&more[..n]),
                _ => return,
            }
        }
    });
    let url = format!("http://localhost:{}/a?b#c", addr.port());
    let load = ["bench", "http", &url, "--count", "50", "--no-pin"];
    let (code, said, json) = told(dir.path(), &load);
    assert!(matches!(code, 0 | 4), "{said}");
    assert_eq!(json.unwrap()["result"]["requests"], 50);
    for wrong in [&["--addr", "127.0.0.1:1"][..], &["--path", "/x"]] {
        assert_eq!(
            told(dir.path(), &[&load[..], wrong].concat()).0,
            2,
            "{wrong:?}"
        );
    }
    let ab = [
        "bench",
        "ab",
        "http",
        &url,
        "--a",
        "engine=epoll",
        "--b",
        "engine=epoll",
    ];
    assert_eq!(told(dir.path(), &ab).0, 2);
}

#[test]
fn of_several_objectives_all_have_to_hold() {
    let dir = tempfile::tempdir().unwrap();
    let addr = echo(u64::MAX).to_string();
    let load = [
        "bench",
        "echo",
        "--size",
        "64",
        "--rate",
        "200",
        "--duration",
        "300ms",
        "--no-pin",
        "--addr",
        &addr,
        "--slo",
        "p50<100s",
    ];
    let (code, said, _) = told(dir.path(), &load);
    assert!(matches!(code, 0 | 4), "{said}");
    let (code, said, _) = told(dir.path(), &[&load[..], &["--slo", "p99<1ns"]].concat());
    assert!(matches!(code, 3 | 4), "{said}");
    assert!(code == 4 || said.contains("p99<1ns is missed"), "{said}");
}

#[test]
fn a_name_that_has_two_addresses_is_where_the_program_listens() {
    let dir = tempfile::tempdir().unwrap();
    let program = program().display();
    let text = format!(
        "title='t'\nrounds=1\nrun_time='200ms'\nwarm_up='1ms'\n[[server]]\nname='s'\n\
         command=['{program}','serve','echo','--listen','echo=127.0.0.1:{{port}}','--admin','off','--control','off']\n\
         addr='localhost:{{port}}'\n[[workload]]\nname='w'\nload='echo --size 64 --no-pin'\n"
    );
    let suite = dir.path().join("s.toml");
    std::fs::write(&suite, text).unwrap();
    let runs = dir.path().join("runs");
    let [suite, runs] = [&suite, &runs].map(|path| path.to_str().unwrap());
    let (code, said, json) = told(dir.path(), &["lab", suite, "--runs", runs]);
    assert_eq!(code, 4, "one block is too few: {said}");
    assert_eq!(
        json.unwrap()["result"]["workloads"][0]["rounds"],
        1,
        "{said}"
    );
}

#[test]
fn a_server_that_forks_itself_away_is_measured_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let program = program().display();
    let at = dir.path().join("port");
    let forks = format!(
        "echo {{port}} > {}; (setsid {program} serve echo --listen echo=127.0.0.1:{{port}} --admin off --control off \
         > /dev/null 2>&1 < /dev/null &); exec sleep 300",
        at.display()
    );
    let text = format!(
        "title='t'\nrounds=1\nrun_time='200ms'\nwarm_up='1ms'\n[[server]]\nname='s'\n\
         command=['sh','-c','{forks}']\naddr='127.0.0.1:{{port}}'\n\
         [[workload]]\nname='w'\nload='echo --size 64 --no-pin'\n"
    );
    let suite = dir.path().join("s.toml");
    std::fs::write(&suite, text).unwrap();
    let runs = dir.path().join("runs");
    let [suite, runs] = [&suite, &runs].map(|path| path.to_str().unwrap());
    let (code, said, json) = told(dir.path(), &["lab", suite, "--runs", runs]);
    assert_eq!(code, 4, "one block is too few: {said}");
    let json = json.unwrap();
    for server in json["result"]["workloads"][0]["servers"]
        .as_array()
        .unwrap()
    {
        let run = &server["runs"][0];
        let spent = run["metrics"]["server_cpu_ns_per_request"].as_f64();
        assert!(spent > Some(0.0), "{run}");
        assert!(
            !run["reasons"]
                .to_string()
                .contains("another process serves"),
            "{run}"
        );
    }
    // The server has no parent here that could be asked; its port says when it
    // has gone.
    let port: u16 = std::fs::read_to_string(at).unwrap().trim().parse().unwrap();
    let begin = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A result of `bench ab` with this workload and machine, as it is on disk.
fn result(path: &Path, size: u32, kernel: &str, control: bool, cost: f64) -> String {
    let runs = |factor: f64| -> Vec<Value> {
        let run = |round: u32| {
            let cost = factor * cost * (1.0 + 0.001 * f64::from(round % 5));
            json!({"server_cpu_ns_per_request": cost})
        };
        (0..12).map(run).collect()
    };
    let mut samples = json!({"a": runs(1.0), "b": runs(1.1)});
    if control {
        samples["control"] = runs(1.002).into();
    }
    let report = json!({
        "format": 1, "kind": "bench ab", "environment": {"kernel": kernel, "cores": 2},
        "result": {"a": "x", "b": "y", "workload_a": {"echo": {"size": size}},
            "workload_b": {"echo": {"size": 64}}, "recording": {"samples": samples}},
    });
    std::fs::write(path, report.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn results_of_different_things_are_not_compared_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let before = result(&at("before"), 64, "6.1", true, 1000.0);
    let compare = |after: &str, more: &[&str]| {
        told(
            dir.path(),
            &[&["bench", "compare", &before, after], more].concat(),
        )
    };
    let size = result(&at("size"), 16_384, "6.1", true, 3000.0);
    let (code, said, json) = compare(&size, &[]);
    assert_eq!((code, json), (1, None), "{said}");
    assert!(
        said.contains("x: workload") && said.contains("16384"),
        "{said}"
    );
    let (code, said, json) = compare(&size, &["--anyway"]);
    assert_eq!(code, 3, "{said}");
    assert!(
        json.unwrap()["result"]["remarks"][0]
            .as_str()
            .unwrap()
            .contains("16384")
    );
    let kernel = result(&at("kernel"), 64, "6.2", true, 1000.0);
    let (code, said, _) = compare(&kernel, &[]);
    assert!(
        code == 1 && said.contains("kernel 6.1 before, 6.2 after"),
        "{said}"
    );
    let same = result(&at("same"), 64, "6.1", true, 1000.0);
    assert_eq!(compare(&same, &[]).0, 0);
}

#[test]
fn a_difference_without_a_control_is_no_regression() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let before = result(&at("before"), 64, "6.1", false, 1000.0);
    let after = result(&at("after"), 64, "6.1", false, 1300.0);
    let (code, said, json) = told(dir.path(), &["bench", "compare", &before, &after]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("without a control"), "{said}");
    assert_eq!(json.unwrap()["result"]["rows"][0]["change"], "no_control");
}

#[test]
fn pages_have_figures_for_people_in_cells_that_know_their_column() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("p.html");
    let to = ["--html", page.to_str().unwrap()];
    let read = || std::fs::read_to_string(&page).unwrap();
    let table = |html: &str| {
        html.split("<div class=\"wide\"><table")
            .nth(1)
            .unwrap()
            .split("</table>")
            .next()
            .unwrap()
            .to_owned()
    };
    let ab = [
        "bench",
        "ab",
        "echo",
        "--no-pin",
        "--a",
        "engine=epoll",
        "--b",
        "engine=epoll",
        "--rounds",
        "2",
        "--round-time",
        "200ms",
        "--warmup",
        "1ms",
    ];
    let output = run(&[&ab[..], &to].concat());
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let cells = table(&read());
    assert!(
        cells.contains("server CPU per request, us") && !cells.contains("_ns"),
        "{cells}"
    );
    assert_eq!(
        cells.matches("<td").count(),
        cells.matches("data-head=").count()
    );
    let shown = read();
    let shown = shown.split("How it was made").next().unwrap();
    assert!(
        shown.contains("<th class=\"name\" scope=\"row\">server CPU per request</th>"),
        "{shown}"
    );
    assert!(
        !shown.contains("_ns") && !shown.contains("p99 9"),
        "{shown}"
    );
    // The chart says as much as the table beside it.
    let single = ["bench", "echo", "--count", "3k", "--no-pin"];
    let output = run(&[&single[..], &to].concat());
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{}",
        stderr(&output)
    );
    let html = read();
    let number = |behind: &str| -> f64 {
        let text = html.split(behind).nth(1).unwrap();
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap();
        text[..digits].parse().unwrap()
    };
    let in_table = number("server CPU</th><td class=\"words\" data-head=\"value\">");
    let in_chart = number(">server: ");
    assert!(
        (in_table / in_chart - 1.0).abs() < 0.01,
        "{in_table} {in_chart}"
    );
}
