//! `tidewire kv promote`.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::exit::Failure;
use crate::secret::Secret;
use crate::span::Span;

/// What is shown below the options.
const EXAMPLES: &str = "\
Examples:
  tidewire kv promote --to 127.0.0.1:6380
  redis-cli -p 6380 REPLICAOF NO ONE

It ends with status 0 when the server owns the store and takes changes, also if it did before. Otherwise nothing was taken \
over, or nobody knows: ask again, or look at INFO replication.";

/// Whom.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server, which follows
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6380")]
    to: String,
    /// A file whose one line is the password of the server
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// How long its answer is waited for
    #[arg(long, value_name = "TIME", default_value = "5m")]
    within: Span,
}

/// How long it may take to connect and to be let in.
const GREETING: Duration = Duration::from_secs(30);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let password = args.password_file.as_deref().map(Secret::from_file);
    let password = password.transpose()?;
    let to = &args.to;
    let connect = || {
        let socket = TcpStream::connect(to)?;
        socket.set_write_timeout(Some(GREETING))?;
        socket.set_read_timeout(Some(GREETING))?;
        io::Result::Ok(socket)
    };
    let socket = connect().map_err(|e| Failure::failed(format!("cannot connect to {to}: {e}")))?;
    let mut socket = BufReader::new(socket);
    if let Some(password) = password {
        ask(&mut socket, to, &["AUTH", &password.into_text()])?;
    }
    let within = args.within.limit();
    let set = socket.get_ref().set_read_timeout(within);
    set.map_err(|e| Failure::failed(format!("--within: {e}")))?;
    ask(&mut socket, to, &["REPLICAOF", "NO", "ONE"])?;
    say!("promoted    {to} owns its store");
    Ok(())
}

/// Asks for something that is answered with a line.
fn ask(socket: &mut BufReader<TcpStream>, to: &str, args: &[&str]) -> Result<(), Failure> {
    let mut request = format!("*{}\r\n", args.len());
    for arg in args {
        request += &format!("${}\r\n{arg}\r\n", arg.len());
    }
    let mut line = String::new();
    let sent = socket.get_mut().write_all(request.as_bytes());
    let read = sent.and_then(|()| socket.read_line(&mut line));
    match read {
        Ok(0) => Err(Failure::failed(format!(
            "{to} has closed the connection, and nobody knows whether it was promoted"
        ))),
        Ok(_) => match line.trim_end().strip_prefix('-') {
            Some(why) => Err(Failure::failed(format!("{to} refuses: {why}"))),
            None => Ok(()),
        },
        Err(e) => Err(Failure::failed(format!(
            "{to} does not answer, and nobody knows whether it was promoted: {e}"
        ))),
    }
}
