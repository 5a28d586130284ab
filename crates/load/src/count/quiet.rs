//! Whether a server has come to rest, and holding it still.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to come to rest before it counts as one that never does.
const REST_WITHIN: Duration = Duration::from_millis(500);
/// How long a process may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// A server's process and its descendants.
#[derive(Debug)]
pub struct Quiet {
    pid: u32,
    held: Vec<u32>,
    restless: bool,
}

impl Quiet {
    /// Watches a process and its children.
    pub fn of(pid: u32) -> Quiet {
        Quiet {
            pid,
            held: Vec::new(),
            restless: false,
        }
    }

    /// Whether the server was still running when it should have been at rest: a server that polls
    /// never rests.
    pub fn is_restless(&self) -> bool {
        self.restless
    }

    /// All processes.
    pub fn processes(&self) -> Vec<u32> {
        let mut all = BTreeSet::from([self.pid]);
        let mut next = vec![self.pid];
        while let Some(pid) = next.pop() {
            for child in children(pid) {
                if all.insert(child) {
                    next.push(child);
                }
            }
        }
        all.into_iter().collect()
    }

    /// Waits until every thread sleeps, as far as it comes to that.
    pub fn rest(&mut self) {
        // One failed wait shows that the server polls; waiting in each round would be useless.
        if self.restless {
            return;
        }
        let begin = Instant::now();
        let mut calm = 0;
        while calm < 2 {
            calm = match self.processes().iter().all(|pid| sleeps(*pid)) {
                true => calm + 1,
                false => 0,
            };
            if begin.elapsed() > REST_WITHIN && busy_for(begin) {
                self.restless = true;
                return;
            }
            // To sleep costs a turn of the scheduler, which is long on a busy machine.
            if calm == 0 {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Stops the server until [`Quiet::release`].
    pub fn hold(&mut self) {
        for pid in self.processes() {
            if signal(pid, Signal::STOP) {
                self.held.push(pid);
            }
        }
        let begin = Instant::now();
        while !self.held.iter().all(|pid| is_stopped(*pid)) && begin.elapsed() < STOP_WITHIN {
            thread::sleep(PAUSE);
        }
    }

    /// Lets the server go on.
    pub fn release(&mut self) {
        for pid in self.held.drain(..) {
            signal(pid, Signal::CONT);
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.release();
    }
}

/// Whether the wait since `begin` was long enough to be sure. A thread that waits for a processor looks as if it ran: on a
/// busy machine it is given much longer.
fn busy_for(begin: Instant) -> bool {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1.0);
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    begin.elapsed() > REST_WITHIN.mul_f64((load / cores).clamp(1.0, 40.0))
}

fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

fn children(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in tasks(pid) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{task}/children"));
        let text = text.unwrap_or_default();
        all.extend(
            text.split_ascii_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    all
}

fn tasks(pid: u32) -> Vec<u32> {
    let Ok(dir) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    dir.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The letters by which the kernel says what the threads of a process are at.
fn states(pid: u32) -> Vec<char> {
    let state = |task| {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{task}/stat")).ok()?;
        state_of(&stat)
    };
    tasks(pid).into_iter().filter_map(state).collect()
}

/// From a line of `stat`, in which the name of the thread may have blanks and brackets.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn sleeps(pid: u32) -> bool {
    states(pid)
        .iter()
        .all(|state| matches!(state, 'S' | 'I' | 'Z' | 'X'))
}

fn is_stopped(pid: u32) -> bool {
    states(pid)
        .iter()
        .all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_state_stands_behind_the_last_bracket() {
        assert_eq!(state_of("12 (a (b) c) R 1 2"), Some('R'));
        assert_eq!(state_of("12 (x) S 1"), Some('S'));
        assert_eq!(state_of("nothing"), None);
    }

    #[test]
    fn a_sleeper_rests_is_held_and_goes_on_and_one_that_polls_is_restless() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let mut quiet = Quiet::of(sleeper.id());
        quiet.rest();
        assert!(!quiet.is_restless());
        quiet.hold();
        assert!(is_stopped(sleeper.id()));
        quiet.release();
        let begin = Instant::now();
        while is_stopped(sleeper.id()) {
            assert!(begin.elapsed() < Duration::from_secs(30));
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let mut poller = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let mut quiet = Quiet::of(poller.id());
        quiet.rest();
        assert!(quiet.is_restless());
        poller.kill().unwrap();
        poller.wait().unwrap();
    }
}
