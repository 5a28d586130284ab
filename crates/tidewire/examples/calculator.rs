//! A calculator: each line is a sum such as `2 + 3 * (4 - 1)`, and is answered with what it comes to, or with what is wrong
//! about it.
//!
//!     cargo run --example calculator &
//!     nc 127.0.0.1 PORT
//!
//! The arithmetic knows nothing of sockets. The protocol finds lines, asks whether there is room for an answer, and hangs up on lines
//! that are too long; a stranger's input can make neither of them panic or recurse without end.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::codec::Lines;
use tidewire::{Builder, Cx, Input, Next, Protocol, service_fn};

/// Longest line, in bytes: it bounds the work for an answer, too.
const LONGEST: usize = 1000;
/// Most parentheses within each other.
const DEEPEST: u32 = 50;

struct Calculator(Lines);

impl Protocol for Calculator {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        while !cx.link.full() {
            let line = match self.0.take(input) {
                Ok(Some(line)) => line,
                Ok(None) => return Next::More,
                Err(_) => {
                    cx.link.write(b"error: the line is too long\n");
                    cx.link.finish_because("a line too long");
                    return Next::More;
                }
            };
            let answer = match std::str::from_utf8(line)
                .map_err(|_| "not UTF-8")
                .and_then(calculated)
            {
                Ok(number) => format!("{number}\n"),
                Err(why) => format!("error: {why}\n"),
            };
            cx.link.write(answer.as_bytes());
        }
        // A client that asks and does not read is not read from.
        Next::AfterDrain
    }
}

fn calculated(text: &str) -> Result<f64, &'static str> {
    let mut left = text.trim();
    let number = sum(&mut left, DEEPEST)?;
    match left.is_empty() {
        true => Ok(number),
        false => Err("something follows that does not belong there"),
    }
}

fn sum(left: &mut &str, deep: u32) -> Result<f64, &'static str> {
    let mut number = product(left, deep)?;
    loop {
        number = match sign(left, "+-") {
            Some('+') => number + product(left, deep)?,
            Some(_) => number - product(left, deep)?,
            None => return Ok(number),
        };
    }
}

fn product(left: &mut &str, deep: u32) -> Result<f64, &'static str> {
    let mut number = factor(left, deep)?;
    loop {
        number = match sign(left, "*/") {
            Some('*') => number * factor(left, deep)?,
            Some(_) => match factor(left, deep)? {
                0.0 => return Err("a division by zero"),
                divisor => number / divisor,
            },
            None => return Ok(number),
        };
    }
}

fn factor(left: &mut &str, deep: u32) -> Result<f64, &'static str> {
    let deeper = deep.checked_sub(1).ok_or("too many parentheses")?;
    if sign(left, "-").is_some() {
        return Ok(-factor(left, deeper)?);
    }
    if sign(left, "(").is_some() {
        let number = sum(left, deeper)?;
        return sign(left, ")")
            .map(|_| number)
            .ok_or("a parenthesis is not closed");
    }
    let end = left.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, rest) = left.split_at(end.unwrap_or(left.len()));
    let number = digits.parse().map_err(|_| "a number is missing")?;
    *left = rest.trim_start();
    Ok(number)
}

/// Takes one of these signs, if it is next.
fn sign(left: &mut &str, signs: &str) -> Option<char> {
    let next = left.chars().next().filter(|c| signs.contains(*c))?;
    *left = left[next.len_utf8()..].trim_start();
    Some(next)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // threads, epoll, uring, or auto: the best that works here.
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let calculators = service_fn(|_peer| Calculator(Lines::new(LONGEST)));
    let running = builder.serve("127.0.0.1:0", calculators).start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    Signals::new([SIGINT, SIGTERM])?.forever().next();
    println!("{}", running.stop(Duration::from_secs(5)));
    Ok(())
}
