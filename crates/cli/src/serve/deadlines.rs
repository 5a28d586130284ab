//! Deadlines of connections, as the flags and the file say them: of every service, or of some.

use std::time::Duration;

use super::args::Options;
use super::kind::{Kind, Named};
use super::scoped::{Scope, Scoped, of, scopes};
use crate::exit::Failure;
use crate::span::Span;

/// What is said; where nothing is, the service decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    idle: Vec<Scoped<Span>>,
    first_byte: Vec<Scoped<Span>>,
    whole_request: Vec<Scoped<Span>>,
    write_stall: Vec<Scoped<Span>>,
    lifetime: Vec<Scoped<Span>>,
}

impl Deadlines {
    /// What flags and file say.
    pub(crate) fn of(options: &Options) -> Deadlines {
        Deadlines {
            idle: options.idle.clone(),
            first_byte: options.first_byte.clone(),
            whole_request: options.whole_request.clone(),
            write_stall: options.write_stall.clone(),
            lifetime: options.lifetime.clone(),
        }
    }

    fn each(&self) -> [(&'static str, &[Scoped<Span>]); 5] {
        [
            ("--idle", &self.idle),
            ("--first-byte", &self.first_byte),
            ("--whole-request", &self.whole_request),
            ("--write-stall", &self.write_stall),
            ("--lifetime", &self.lifetime),
        ]
    }

    /// Refuses what cannot be meant.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut each = self.each().into_iter();
        let together = |of: &Scoped<Span>| of.scope == Scope::All;
        if let Some((flag, _)) = each.find(|(_, all)| all.iter().any(together)) {
            return Err(Failure::usage(format!(
                "{flag} all=: a deadline is that of each connection; without all= it is for every service"
            )));
        }
        let of_ingest = |of: &&Scoped<Span>| match &of.scope {
            Scope::Of(named) => named.0 == [Kind::Ingest],
            Scope::Each | Scope::All => false,
        };
        let mut idle = self.idle.iter().filter(of_ingest);
        match idle.any(|of| of.value.limit().is_some()) {
            true => Err(Failure::usage(
                "--idle ingest= would have no effect: a producer may have nothing to say; --tcp-keepalive finds hosts \
                 that have vanished",
            )),
            false => Ok(()),
        }
    }

    /// Services that are named, with the names of the flags.
    pub(super) fn scopes(&self) -> Vec<(&'static str, Named)> {
        let mut to = Vec::new();
        for (flag, all) in self.each() {
            scopes(flag, all, &mut to);
        }
        to
    }

    /// How long a connection of this service may be silent, where the service itself says `own`.
    pub(super) fn idle(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.idle, kind, own)
    }

    pub(super) fn first_byte(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.first_byte, kind, own)
    }

    pub(super) fn whole_request(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.whole_request, kind, own)
    }

    pub(super) fn write_stall(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.write_stall, kind, own)
    }

    pub(super) fn lifetime(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.lifetime, kind, own)
    }

    /// What is said of heads and bodies of http, if anything.
    pub(super) fn of_http_requests(&self) -> Option<Span> {
        of(&self.whole_request, Kind::Http)
    }
}

fn or(set: &[Scoped<Span>], kind: Kind, own: Option<Duration>) -> Option<Duration> {
    of(set, kind).map_or(own, Span::limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::kind::KvMode;
    use crate::serve::sources::in_file;

    fn deadlines(text: &str) -> Deadlines {
        Deadlines::of(&in_file(text).unwrap())
    }

    #[test]
    fn what_says_most_of_a_service_counts_and_0_is_never() {
        let text = "idle = [2.5, 'kv=5s', 'kv/resp=0']\nlifetime = 'echo=1h'\nwhole-request = ['http=7', 9]\n";
        let said = deadlines(text);
        said.check().unwrap();
        let own = Some(Duration::from_secs(60));
        let (resp, binary) = (Kind::Kv(KvMode::Resp), Kind::Kv(KvMode::Binary));
        let idle = [Kind::Echo, binary, resp].map(|kind| said.idle(kind, own));
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(idle, [ms(2500), ms(5000), None]);
        assert_eq!(said.lifetime(Kind::Echo, None), ms(3_600_000));
        assert_eq!(said.lifetime(Kind::Http, None), None);
        assert_eq!(said.of_http_requests().unwrap().to_string(), "7s");
        assert_eq!(said.whole_request(resp, own), ms(9000));
        assert_eq!(said.write_stall(resp, own), own);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, word) in [
            ("lifetime = 'all=1h'", "--lifetime all="),
            ("idle = 'ingest=5'", "--idle ingest="),
        ] {
            let why = deadlines(text).check().unwrap_err().message;
            assert!(why.contains(word), "{why}");
        }
        deadlines("idle = 'ingest=0'").check().unwrap();
    }
}
