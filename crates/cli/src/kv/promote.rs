//! `tidewire kv promote`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::login::Login;
use crate::exit::Failure;
use crate::span::Span;

/// The text below the options.
const EXAMPLES: &str = "\
Examples:
  tidewire kv promote --to 127.0.0.1:6380
  tidewire kv promote --to b:6380 --user operator --password-file /etc/tidewire/operator
  redis-cli -p 6380 REPLICAOF NO ONE

Status 0: the server owns the store, accepts changes and reaches its home, perhaps since before. \
Any other status: nothing was taken over, or the result is unknown: run the command again, or \
look at INFO replication.";

/// The server to promote.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server, which follows
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380")]
    to: String,
    #[command(flatten)]
    login: Login,
    /// How long its answer is waited for. Then a takeover that has not claimed the home yet is called off, if no other client waits
    /// for it; one that has goes on
    #[arg(long, value_name = "TIME", default_value = "5m")]
    within: Span,
}

/// The longest time for connecting and logging in.
const GREETING: Duration = Duration::from_secs(30);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let login = args.login.command()?;
    let to = &args.to;
    let connect = || {
        let socket = TcpStream::connect(to)?;
        socket.set_write_timeout(Some(GREETING))?;
        socket.set_read_timeout(Some(GREETING))?;
        io::Result::Ok(socket)
    };
    let socket = connect().map_err(|e| Failure::failed(format!("cannot connect to {to}: {e}; is `tidewire serve kv` running there? --to must name its kv listener")))?;
    let mut socket = BufReader::new(socket);
    if let Some(login) = login {
        let login: Vec<&str> = login.iter().map(String::as_str).collect();
        ask(&mut socket, to, &login)?;
    }
    let within = args.within.limit();
    let set = socket.get_ref().set_read_timeout(within);
    set.map_err(|e| Failure::failed(format!("--within: {e}")))?;
    ask(&mut socket, to, &["REPLICAOF", "NO", "ONE"])?;
    // A server that has no owner to take over from also answers OK.
    let set = socket.get_ref().set_read_timeout(Some(GREETING));
    set.map_err(|e| Failure::failed(e.to_string()))?;
    let info = info(&mut socket, to)?;
    owns(&info).map_err(|why| Failure::failed(format!("{to} {why}")))?;
    say!("promoted    {to} owns its store");
    Ok(())
}

/// Checks with INFO that the server owns a store and takes changes; if not, the error says what the
/// server does.
fn owns(info: &str) -> Result<(), String> {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    match (field("home_role"), field("home_link"), field("loading")) {
        (None, ..) => Err("has no home: there is nothing to take over".into()),
        (_, _, Some("1")) => Err(
            "is still loading its store, and owns it only if no other server does: try again"
                .into(),
        ),
        (Some("owner"), Some("up"), _) => Ok(()),
        (Some("owner"), ..) => {
            Err("took its store over before, and cannot reach its home now: try again".into())
        }
        (Some(role), ..) => Err(format!("does not own its store (home_role:{role})")),
    }
}

/// Asks a server for INFO about replication and about loading.
fn info(socket: &mut BufReader<TcpStream>, to: &str) -> Result<String, Failure> {
    /// Most bytes of these sections of INFO.
    const MOST: usize = 1 << 20;
    let line = ask(socket, to, &["INFO", "replication", "persistence"])?;
    let size = line.strip_prefix('$').and_then(|size| size.parse().ok());
    let size: usize = size.filter(|size| *size <= MOST).ok_or_else(|| {
        Failure::failed(format!(
            "{to} sent an unexpected answer: {line}; is it the Redis port of `tidewire serve kv`?"
        ))
    })?;
    let mut text = vec![0; size];
    let read = socket.read_exact(&mut text);
    read.map_err(|e| Failure::failed(format!("{to} does not answer: {e}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Sends a command, and returns the first line of the answer.
fn ask(socket: &mut BufReader<TcpStream>, to: &str, args: &[&str]) -> Result<String, Failure> {
    let mut request = format!("*{}\r\n", args.len());
    for arg in args {
        request += &format!("${}\r\n{arg}\r\n", arg.len());
    }
    let mut line = String::new();
    let sent = socket.get_mut().write_all(request.as_bytes());
    let read = sent.and_then(|()| socket.read_line(&mut line));
    match read {
        Ok(0) => Err(Failure::failed(format!(
            "{to} closed the connection without an answer: it may or may not have been promoted; INFO replication there says so"
        ))),
        Ok(_) => match line.trim_end().strip_prefix('-') {
            Some(why) => Err(Failure::failed(format!("{to} refuses: {why}"))),
            None => Ok(line.trim_end().to_owned()),
        },
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Failure::failed(format!(
            "{to} did not answer in time: it may or may not have been promoted; INFO replication there says so, --within sets the time"
        ))),
        Err(e) => Err(Failure::failed(format!(
            "{to} does not answer: {e}; it may or may not have been promoted, INFO replication there says so"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::owns;

    #[test]
    fn only_an_owner_that_reaches_its_home_is_promoted() {
        let owner = "# Replication\r\nrole:master\r\nhome_role:owner\r\nhome_link:up\r\n# Persistence\r\nloading:0\r\n";
        assert_eq!(owns(owner), Ok(()));
        for (text, instead) in [
            ("home_link:up", "home_link:down"),
            ("home_role:owner", "home_role:former"),
            ("home_role:owner\r\n", ""),
            ("loading:0", "loading:1"),
        ] {
            let other = owner.replace(text, instead);
            assert!(owns(&other).is_err(), "{other}");
        }
    }
}
