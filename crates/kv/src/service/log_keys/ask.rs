//! Turns a command that names streams of the log into an immediate reply, or into a read.

use std::sync::Arc;
use std::time::Duration;

use super::question::{Ask, Waits, Wanted};
use super::{Shown, place};
use crate::commands::streams::{Asked, ONLY_OF_GROUPS, Span, id, no_such_group, shown};
use crate::commands::{Error, subcommands};
use crate::reply::Reply;

/// Streams that one XREAD may name: each is looked at whenever the log has moved.
const STREAMS_MAX: usize = 1024;

impl Shown {
    /// Answers a command, or returns the part of the log that has to be read for it.
    pub(super) fn ask(
        &self,
        name: &str,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<Option<(Ask, Waits)>, Error> {
        self.open()?;
        match name {
            "xread" => return self.behind(args).map(Some),
            "xrange" | "xrevrange" => return self.span(name, args, reply),
            "xinfo" => return self.about(args, reply),
            "xlen" => {
                let stream = self.stream(args[1]);
                let records = stream.and_then(|stream| self.log.records(stream));
                reply.integer(records.unwrap_or(0) as i64);
            }
            "exists" => {
                self.only_ours(&args[1..])?;
                let there = args[1..].iter().filter(|key| self.exists(key));
                reply.integer(there.count() as i64);
            }
            "type" => reply.simple(match self.exists(args[1]) {
                true => "stream",
                false => "none",
            }),
            // The stream never goes by time as a whole.
            "ttl" | "pttl" | "expiretime" | "pexpiretime" => {
                reply.integer(if self.exists(args[1]) { -1 } else { -2 });
            }
            _ => return Err(self.read_only()),
        }
        Ok(None)
    }

    /// Whether clients may read.
    pub(super) fn open(&self) -> Result<(), Error> {
        match self.is_shut() {
            false => Ok(()),
            true => Err(Error::new(
                "ERR ingest asks for tokens now, and no client shows one here; --kv-log-past-tokens of the server would let the log be read without",
            )),
        }
    }

    fn exists(&self, key: &[u8]) -> bool {
        let stream = self.stream(key);
        stream.is_some_and(|stream| self.log.range(stream).is_some())
    }

    /// One reply cannot contain both log and store: the two are not read at one moment.
    fn only_ours(&self, keys: &[&[u8]]) -> Result<(), Error> {
        match keys.iter().all(|key| self.is_ours(key)) {
            true => Ok(()),
            false => Err(Error::new(
                "ERR streams of the log and other keys cannot be asked for by one command",
            )),
        }
    }

    #[cold]
    fn read_only(&self) -> Error {
        Error::quoting(
            "ERR keys that begin with '",
            self.prefix(),
            "' are streams of the log: XREAD, XRANGE, XREVRANGE, XLEN, XINFO, EXISTS, TYPE and TTL read them, and \
             nothing changes them here",
        )
    }

    fn behind(&self, args: &[&[u8]]) -> Result<(Ask, Waits), Error> {
        let asked = Asked::parse("xread", args)?;
        self.only_ours(asked.keys)?;
        if asked.keys.len() > STREAMS_MAX {
            return Err(Error::text(format!(
                "ERR at most {STREAMS_MAX} streams of the log can be read by one command"
            )));
        }
        let mut streams = Vec::with_capacity(asked.keys.len());
        for (&key, &arg) in asked.keys.iter().zip(asked.ids) {
            let stream = self.stream(key);
            let from = match arg {
                b"$" => {
                    let range = stream.and_then(|stream| self.log.range(stream));
                    Some(range.map_or(0, |range| range.next))
                }
                b">" => return Err(ONLY_OF_GROUPS),
                arg => place::behind(id(arg, 0)?),
            };
            streams.push(Wanted {
                key: key.into(),
                stream: stream.map(Arc::from),
                from,
            });
        }
        let waits = match asked.block {
            None => Waits::No,
            Some((_, 0)) => Waits::ForEver,
            Some((_, ms)) => Waits::For(Duration::from_millis(ms.unsigned_abs())),
        };
        let count = asked.count;
        Ok((Ask::Behind { streams, count }, waits))
    }

    fn span(
        &self,
        name: &str,
        args: &[&[u8]],
        reply: &mut Reply,
    ) -> Result<Option<(Ask, Waits)>, Error> {
        let span = Span::parse(name, args)?;
        let stream = self.stream(args[1]).filter(|_| self.exists(args[1]));
        let Some(stream) = stream else {
            reply.array(0);
            return Ok(None);
        };
        if span.count == Some(0) {
            reply.null_array();
            return Ok(None);
        }
        let Some(from) = place::from(span.from) else {
            reply.array(0);
            return Ok(None);
        };
        let ask = Ask::Span {
            stream: stream.into(),
            positions: from..place::end(span.to),
            count: span.count,
            back: span.back,
        };
        Ok(Some((ask, Waits::No)))
    }

    fn about(&self, args: &[&[u8]], reply: &mut Reply) -> Result<Option<(Ask, Waits)>, Error> {
        use crate::commands::streams::XINFO;
        let sub = subcommands::check("xinfo", XINFO, args)?;
        let stream = self.stream(args[2]).filter(|_| self.exists(args[2]));
        let stream = stream.ok_or(Error::NO_KEY)?;
        match sub {
            "groups" => reply.array(0),
            "consumers" => return Err(no_such_group(args[2], args[3])),
            _ => {
                let (stream, full) = (stream.into(), shown(args)?);
                return Ok(Some((Ask::About { stream, full }, Waits::No)));
            }
        }
        Ok(None)
    }
}
