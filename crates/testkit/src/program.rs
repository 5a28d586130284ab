//! Running the command, and servers that are not what they should be.
//!
//! The programs are where cargo puts them, beside the directory of the running test. Cargo builds the program of the
//! tests' own package before the tests. A program of another package may be old or missing: so `cargo build` is run
//! once.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest time that anything here may take; far more than it does.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command, not yet run.
pub fn tidewire(args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program());
    command.args(args);
    let is = |arg: &&OsStr, what: &str| *arg == OsStr::new(what);
    let words = || args.iter().map(AsRef::as_ref);
    if words().next().is_some_and(|first| is(&first, "serve")) {
        // Tests run side by side, and there is one default address, and one default path.
        for flag in ["--admin", "--control"] {
            if !words().any(|arg| is(&arg, flag)) {
                command.args([flag, "off"]);
            }
        }
    }
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Where the program `tidewire` is.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("tidewire"))
}

/// A program that is as new as its sources.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().and_then(Path::parent).unwrap();
    let program = profile.join(name);
    if !is_fresh(&program) {
        let target = profile.parent().unwrap();
        let profile = match profile.file_name().and_then(OsStr::to_str).unwrap() {
            "debug" => "dev",
            name => name,
        };
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build.args(["build", "--bin", name, "--profile", profile]);
        build.arg("--target-dir").arg(target);
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        assert!(build.status().unwrap().success(), "{build:?}");
    }
    program
}

/// Whether the program is there, and no source that cargo made it from has changed since.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|it| it.modified());
    let (Ok(made), Ok(listed)) = (
        changed(program),
        std::fs::read_to_string(program.with_extension("d")),
    ) else {
        return false;
    };
    let sources = listed.split_once(": ").map_or("", |(_, sources)| sources);
    let mut sources = sources.split_whitespace().map(Path::new);
    sources.all(|source| changed(source).is_ok_and(|when| when <= made))
}

/// Runs the command to its end.
pub fn run(args: &[&str]) -> Output {
    let child = tidewire(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Running::from(child).end()
}

/// The program's output on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The program's output on stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A process that is killed if the test ends before it.
pub struct Running {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
    stderr: Option<thread::JoinHandle<()>>,
    said: Arc<Mutex<Vec<u8>>>,
}

impl From<Child> for Running {
    fn from(mut child: Child) -> Running {
        let lines = child.stdout.take().map(BufReader::new);
        let mut pipe = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::default());
        let all: Arc<Mutex<Vec<u8>>> = said.clone();
        let stderr = thread::spawn(move || {
            let mut piece = [0; 4096];
            loop {
                match pipe.read(&mut piece).unwrap() {
                    0 => return,
                    n => all.lock().unwrap().extend_from_slice(&piece[..n]),
                }
            }
        });
        Running {
            child,
            lines,
            stderr: Some(stderr),
            said,
        }
    }
}

impl Running {
    /// Starts the command.
    pub fn start(args: &[&str]) -> Running {
        let child = tidewire(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running::from(child)
    }

    /// The next line of its stdout; empty if it has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Id of the program's process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end and what it said.
    pub fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        let mut lines = self.lines.take().unwrap();
        let reader = thread::spawn(move || {
            lines.read_to_end(&mut stdout).unwrap();
            stdout
        });
        let status = self.wait();
        self.stderr.take().unwrap().join().unwrap();
        Output {
            status,
            stdout: reader.join().unwrap(),
            stderr: std::mem::take(&mut *self.said.lock().unwrap()),
        }
    }

    /// Waits until it has said these words to stderr.
    pub fn hear(&self, words: &str) {
        let begin = Instant::now();
        let heard = || String::from_utf8_lossy(&self.said.lock().unwrap()).contains(words);
        while !heard() {
            assert!(begin.elapsed() < PATIENCE, "never said: {words}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The program's output on stderr so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in a `listening` line.
pub fn addr(line: &str) -> SocketAddr {
    let at = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("addr="));
    at.unwrap_or_else(|| panic!("no address in {line:?}"))
        .parse()
        .unwrap()
}

/// Memory of a process that is resident; bytes.
pub fn resident(pid: Pid) -> usize {
    let path = format!("/proc/{}/statm", pid.as_raw_nonzero());
    let statm = std::fs::read_to_string(path).unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// The engines that work on this machine; prints which do not. Each engine is tried once.
pub fn engines() -> Vec<&'static str> {
    static WORKING: OnceLock<Vec<&str>> = OnceLock::new();
    let works = |engine: &&str| {
        let mut server =
            Running::start(&["serve", "echo", "--listen", "echo=0", "--engine", engine]);
        let announced = server.line().starts_with("listening ");
        if !announced {
            eprintln!("left out: {engine}: {}", stderr(&server.end()));
        }
        announced
    };
    let working = || {
        ["threads", "epoll", "uring"]
            .into_iter()
            .filter(works)
            .collect()
    };
    WORKING.get_or_init(working).clone()
}

/// Does this with every engine that works here, all at once: for what waits most of its time.
pub fn with_engines_at_once(what: impl Fn(&'static str) + Sync) {
    thread::scope(|scope| {
        for engine in engines() {
            let what = &what;
            scope.spawn(move || what(engine));
        }
    });
}

/// A server that calls `each` with each connection, on a thread each.
pub fn server(each: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, each) = (socket.unwrap(), each.clone());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || each(socket));
        }
    });
    addr
}
