//! Histories judged by Porcupine, which knows nothing of our checker: by the program in
//! `clients/kv/porcupine`, where it is built.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::history::{Ask, Op, UNKNOWN};

/// Whether each history, of the operations of some clients on a key, is linearizable; `None`, said why, if the
/// program is not built.
pub(crate) fn judged(histories: &[Vec<Vec<Op>>]) -> Option<Vec<bool>> {
    let program = program();
    if !program.exists() {
        let path = program.display();
        eprintln!(
            "skipped: Porcupine is not built: `go build -o {path} .` in clients/kv/porcupine"
        );
        return None;
    }
    let mut lines = String::new();
    for (name, clients) in histories.iter().enumerate() {
        for op in clients.iter().flatten() {
            line(name, op, &mut lines);
        }
    }
    let mut running = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The program prints nothing before it has read all.
    let mut stdin = running.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Where nothing was done there is nothing to say.
    let mut verdicts = vec![true; histories.len()];
    for said in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, verdict) = said.split_once(' ').unwrap();
        verdicts[name.parse::<usize>().unwrap()] = verdict == "yes";
    }
    Some(verdicts)
}

fn program() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    target
        .unwrap_or_else(|| root.join("target"))
        .join("clients/porcupine")
}

fn line(history: usize, op: &Op, to: &mut String) {
    let (ask, value) = match op.ask {
        Ask::Get => ("get", 0),
        Ask::Set(value) => ("set", value),
        Ask::Swap(value) => ("swap", value),
        Ask::SetIfAbsent(value) => ("setnx", value),
        Ask::Increment => ("incr", 0),
        Ask::Delete => ("del", 0),
        Ask::Take => ("getdel", 0),
    };
    let answer = op
        .answer
        .map_or("null".to_owned(), |answer| answer.to_string());
    let begin = op.begin;
    let _ = write!(
        to,
        r#"{{"history":"{history}","ask":"{ask}","value":{value},"answer":{answer},"begin":{begin}"#
    );
    if op.end != UNKNOWN {
        let _ = write!(to, r#","end":{}"#, op.end);
    }
    to.push_str("}\n");
}
