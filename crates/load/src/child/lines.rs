//! The output of a child, read by threads so that the child never waits for us.
//!
//! The idea: a child must not be able to fill our memory nor we its pipe, so every line is cut, and
//! only as many are kept as a person would read.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest line read from a child, in bytes; what is longer is cut.
const LINE_BYTES_MAX: usize = 4096;
/// Lines of a child's stderr that are kept.
pub(super) const TAIL_LINES_MAX: usize = 40;

/// The end of what a child writes to stderr.
#[derive(Debug)]
pub(super) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
    ended: Receiver<()>,
}

impl Tail {
    pub(super) fn of(stderr: impl io::Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&lines);
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            for_each_line(stderr, |line| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == TAIL_LINES_MAX {
                    kept.pop_front();
                }
                kept.push_back(line);
            });
            drop(end);
        });
        Self { lines, ended }
    }

    /// Waits until the whole output has been read.
    pub(super) fn await_end(&self, within: Duration) {
        // Nothing is ever sent on this channel; it ends when the other side is dropped.
        let _ = self.ended.recv_timeout(within);
    }

    pub(super) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("  {line}\n")).collect()
    }
}

/// Reads lines in a thread of its own. When the receiver is gone, lines are read and
/// dropped; while it isn't keeping up, the child has to wait.
pub(super) fn forward_lines(stdout: impl io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(64);
    thread::spawn(move || {
        for_each_line(stdout, |line| {
            // Fails once the server is ready and the receiver is gone.
            let _ = sender.send(line);
        });
    });
    receiver
}

/// Calls back with every line, cut at [`LINE_BYTES_MAX`], until the end or an error.
fn for_each_line(source: impl io::Read, mut each: impl FnMut(String)) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    let mut emit = |line: &mut Vec<u8>| {
        each(String::from_utf8_lossy(line).into_owned());
        line.clear();
    };
    loop {
        let bytes = match source.fill_buf() {
            Ok([]) => break,
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let piece = &bytes[..newline.unwrap_or(bytes.len())];
        let room = LINE_BYTES_MAX - line.len();
        line.extend_from_slice(&piece[..piece.len().min(room)]);
        let used = piece.len() + usize::from(newline.is_some());
        source.consume(used);
        if newline.is_some() {
            emit(&mut line);
        }
    }
    if !line.is_empty() {
        emit(&mut line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_lines_are_cut_and_the_next_is_whole() {
        let mut text = vec![b'x'; LINE_BYTES_MAX * 5];
        text.extend_from_slice(b"\n\nnext\nunfinished");
        let mut lines = Vec::new();
        for_each_line(text.as_slice(), |line| lines.push(line));
        assert_eq!(lines[0].len(), LINE_BYTES_MAX);
        assert_eq!(lines[1..], ["", "next", "unfinished"]);
    }
}
