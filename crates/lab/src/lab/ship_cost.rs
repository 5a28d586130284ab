//! The counted cost of a line in `tidewire ship`: the difference of two runs, one of which ships more
//! lines.
//!
//! The shipper ends by itself, so the counter is read only at its end. The cost of the start and of the first connection is in
//! both runs, and cancels out.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tidewire_command::exit::Failure;
use tidewire_load::child::Launch;
use tidewire_load::count::Profile;
use tidewire_load::count::verdict::Mean;

use super::cost::Cost;

/// Lines of the shorter run of a pair, and of the longer.
const LINES: [u32; 2] = [2_000, 20_000];
/// Pairs of runs.
const PAIRS: u32 = 4;
/// How long a run may take: it is fifty times as slow as without valgrind.
const WITHIN: Duration = Duration::from_secs(180);
/// How long the server may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Ships lines of so many bytes to a server that stores them. `dir` is an empty directory.
pub(super) fn of(program: &Path, dir: &Path, length: usize) -> Result<Cost, Failure> {
    let data = dir.join("data");
    let server = Launch::new(program)
        .args(["serve", "ingest", "--listen", "ingest=127.0.0.1:0"])
        .args([
            "--admin",
            "off",
            "--control",
            "off",
            "--log",
            "warn",
            "--data",
        ])
        .args([&data]);
    let server = server
        .start()
        .map_err(|e| Failure::failed(format!("cannot start the server: {e}")))?;
    let to = server.listeners()[0].addr.to_string();
    let run = |pair: u32, lines: u32| {
        let place = dir.join(format!("{pair}-{lines}"));
        ship(program, &place, &to, length, lines)
    };
    // A pair at a time: runs of one length do not differ, and a server that is busy with others makes batches longer.
    let pairs = (0..PAIRS).map(|pair| {
        let [short, long] = LINES.map(|lines| run(pair, lines));
        let more = f64::from(LINES[1] - LINES[0]);
        Ok(long?.without(&short?, 1.0).divided(more))
    });
    let pairs = pairs.collect::<Result<Vec<Profile>, Failure>>();
    server
        .stop(STOP_WITHIN)
        .map_err(|e| Failure::failed(format!("cannot stop the server: {e}")))?;
    let pairs = pairs?;
    let costs: Vec<f64> = pairs.iter().map(Profile::total).collect();
    let mean = Mean::of(&[&costs]);
    let mut profile = Profile::default();
    pairs.iter().for_each(|pair| profile.merge(pair));
    Ok(Cost {
        instructions: mean.value,
        within: mean.within,
        system_calls: None,
        profile: profile.divided(f64::from(PAIRS)),
    })
}

/// Ships a file of so many lines; what that took in all.
fn ship(
    program: &Path,
    place: &Path,
    to: &str,
    length: usize,
    lines: u32,
) -> Result<Profile, Failure> {
    let cannot = |what: &str, e: std::io::Error| Failure::failed(format!("cannot {what}: {e}"));
    fs::create_dir_all(place).map_err(|e| cannot("make a directory", e))?;
    let file = place.join("lines.log");
    let line = |number| format!("{number:0>width$}\n", width = length - 1);
    let text: String = (0..lines).map(line).collect();
    fs::write(&file, text).map_err(|e| cannot("write lines to ship", e))?;
    let out = place.join("counted");
    let mut counted = std::ffi::OsString::from("--callgrind-out-file=");
    counted.push(&out);
    let mut child = Command::new("valgrind")
        .args(["-q", "--tool=callgrind", "--cache-sim=no"])
        .arg(counted)
        .arg(program)
        .args(["ship", "--once", "--to", to, "--producer"])
        .arg(place.file_name().unwrap_or_default())
        .arg("--state")
        .arg(place.join("state"))
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| cannot("run valgrind", e))?;
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| cannot("wait for ship", e))? {
            Some(status) => break status,
            None if begin.elapsed() > WITHIN => {
                // The process may have ended by now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::failed("ship under valgrind does not end"));
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            // The output of the command is shown as far as it can be read.
            let _ = stderr.read_to_string(&mut said);
        }
        return Err(Failure::failed(format!(
            "ship failed ({status}): {}",
            said.trim()
        )));
    }
    let text = fs::read_to_string(&out).map_err(|e| cannot("read what was counted", e))?;
    Profile::parse(&text).map_err(|e| Failure::failed(format!("{}: {e}", out.display())))
}
