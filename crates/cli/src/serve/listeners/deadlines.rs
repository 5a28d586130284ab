//! Deadlines of connections, as the flags and the file say them: of every service, or of some.

use std::time::Duration;

use tidewire::Limits;

use crate::exit::Failure;
use crate::serve::listeners::kind::{Kind, Named, Service};
use crate::serve::listeners::scoped::{Scope, Scoped, of, scopes};
use crate::serve::settings::defaults::{secs, with_default};
use crate::span::Span;

/// The given deadlines; the service decides about deadlines that are not given.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Deadlines {
    /// Closes connections on which nothing moves for this long.
    #[arg(long, value_name = "[SERVICE=]SECS",
          help = with_default("Closes connections on which nothing moves for this long; 0 is never. Here and in the four \
                               below, SERVICE= in front is for that service; may be repeated. An ingest connection may be \
                               quiet for ever, one of kv/resp between commands, too (--kv-timeout)",
                              of_own(Limits::default().idle)))]
    pub(crate) idle: Vec<Scoped<Span>>,

    /// Closes connections whose client has said nothing at all for this long from the beginning.
    #[arg(long, value_name = "[SERVICE=]SECS",
          help = with_default("Closes connections whose client has said nothing at all for this long from the beginning; \
                               0 is never",
                              of_own(Limits::default().first_byte)))]
    pub(crate) first_byte: Vec<Scoped<Span>>,

    /// How long a request may take from its first byte to its last.
    #[arg(long, value_name = "[SERVICE=]SECS",
          help = with_default("How long a request may take from its first byte to its last; each KiB of it that has come \
                               gives a second more. A client that takes longer is cut (http: answered 408). 0 is no limit",
                              of_own(Limits::default().request)))]
    pub(crate) whole_request: Vec<Scoped<Span>>,

    /// Cuts connections whose client takes none of the output that waits for it for this long.
    #[arg(long, value_name = "[SERVICE=]SECS",
          help = with_default("Cuts connections whose client takes none of the output that waits for it for this long, \
                               whatever it sends meanwhile; 0 is never", of_own(Limits::default().write)))]
    pub(crate) write_stall: Vec<Scoped<Span>>,

    /// Ends connections in order that have been open for this long.
    #[arg(long, value_name = "[SERVICE=]SECS",
          help = with_default("Ends connections in order that have been open for this long; 0 is never",
                              of_own(Limits::default().lifetime)))]
    pub(crate) lifetime: Vec<Scoped<Span>>,
}

fn of_own(limit: Option<Duration>) -> String {
    secs(limit.unwrap_or_default())
}

impl Deadlines {
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
        Ok(())
    }

    /// Whether the silence of this service alone is limited.
    pub(crate) fn limits_silence_of(&self, service: &'static Service) -> bool {
        let is_its = |of: &&Scoped<Span>| match &of.scope {
            Scope::Of(named) => named.0.iter().all(|kind| kind.service == service),
            Scope::Each | Scope::All => false,
        };
        let mut idle = self.idle.iter().filter(is_its);
        idle.any(|of| of.value.limit().is_some())
    }

    /// Services that are named, with the names of the flags.
    pub(crate) fn scopes(&self) -> Vec<(&'static str, Named)> {
        let mut to = Vec::new();
        for (flag, all) in self.each() {
            scopes(flag, all, &mut to);
        }
        to
    }

    /// How long a connection of this service may be silent, where the service itself says `own`.
    pub(crate) fn idle(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.idle, kind, own)
    }

    pub(crate) fn first_byte(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.first_byte, kind, own)
    }

    pub(crate) fn whole_request(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.whole_request, kind, own)
    }

    pub(crate) fn write_stall(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.write_stall, kind, own)
    }

    pub(crate) fn lifetime(&self, kind: Kind, own: Option<Duration>) -> Option<Duration> {
        or(&self.lifetime, kind, own)
    }

    /// The given time limit for requests of this service, if there is one.
    pub(crate) fn said_of_requests(&self, kind: Kind) -> Option<Span> {
        of(&self.whole_request, kind)
    }
}

fn or(set: &[Scoped<Span>], kind: Kind, own: Option<Duration>) -> Option<Duration> {
    of(set, kind).map_or(own, Span::limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::sources::in_file;

    fn deadlines(text: &str) -> Deadlines {
        in_file(text).unwrap().deadlines
    }

    fn kind(name: &str) -> Kind {
        name.parse::<Named>().unwrap().0[0]
    }

    #[test]
    fn what_says_most_of_a_service_counts_and_0_is_never() {
        let text = "idle = [2.5, 'kv=5s', 'kv/resp=0']\nlifetime = 'echo=1h'\nwhole-request = ['http=7', 9]\n";
        let said = deadlines(text);
        said.check().unwrap();
        let own = Some(Duration::from_secs(60));
        let (resp, echo, http) = (kind("kv/resp"), kind("echo"), kind("http"));
        let idle = [echo, kind("kv/binary"), resp].map(|kind| said.idle(kind, own));
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(idle, [ms(2500), ms(5000), None]);
        assert_eq!(said.lifetime(echo, None), ms(3_600_000));
        assert_eq!(said.lifetime(http, None), None);
        assert_eq!(said.said_of_requests(http).unwrap().to_string(), "7s");
        assert_eq!(said.whole_request(resp, own), ms(9000));
        assert_eq!(said.write_stall(resp, own), own);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let why = deadlines("lifetime = 'all=1h'")
            .check()
            .unwrap_err()
            .message;
        assert!(why.contains("--lifetime all="), "{why}");
        let ingest = kind("ingest").service;
        assert!(deadlines("idle = 'ingest=5'").limits_silence_of(ingest));
        assert!(!deadlines("idle = 'ingest=0'").limits_silence_of(ingest));
        assert!(!deadlines("idle = 5").limits_silence_of(ingest));
    }
}
