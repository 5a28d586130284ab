//! `serve --takeover`: the successor's side.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidewire_handover::{Claim, ClaimError, Following, Handed, Hello, Offer, Released};

use crate::exit::Failure;
use crate::serve::handover::control;
use crate::serve::product::Plan;

/// How much longer than announced the running server may take.
const SLACK: Duration = Duration::from_secs(10);

/// A running server that is asked to make way.
pub(crate) struct Takeover {
    claim: Claim,
    offer: Offer,
    /// `--takeover-forget`: data that only the running server's memory holds may be left behind.
    forget: bool,
}

impl Takeover {
    /// Asks for everything that listens.
    pub(crate) fn ask(
        at: Option<&control::ControlAt>,
        forget: bool,
    ) -> Result<(Takeover, Vec<Handed>), Failure> {
        let path = control::path(at)?;
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            forget,
            takes_connections: true,
        };
        let (claim, offer, handed) = Claim::ask(&path, hello).map_err(|e| {
            let advice = match &e {
                ClaimError::Nobody { .. } => {
                    "; start without --takeover where nothing runs, or name its socket with --control"
                }
                _ => "",
            };
            failed(&format!("{e}{advice}"))
        })?;
        tracing::info!(
            pid = offer.pid,
            version = offer.version,
            listeners = handed.len(),
            "taking over from the running server"
        );
        let takeover = Takeover {
            claim,
            offer,
            forget,
        };
        Ok((takeover, handed))
    }

    /// Refuses to take over from a server whose logs or key-value store these settings do not name: its clients would find
    /// them empty.
    pub(crate) fn check_logs(&self, settings: &Plan) -> Result<(), Failure> {
        let ours = settings.log_directories();
        let theirs = self.offer.logs.iter();
        let left: Vec<PathBuf> = theirs.filter(|log| !ours.contains(log)).cloned().collect();
        if left.is_empty() {
            return Ok(());
        }
        let why = leaves_behind(&left, &self.offer.stores);
        if self.forget {
            tracing::warn!(why, "--takeover-forget: the takeover goes on without this");
            return Ok(());
        }
        Err(failed(&why))
    }

    /// Has the running server let go of the logs that these settings need too. Until this process
    /// serves, new clients wait.
    pub(crate) fn release_logs(&self, settings: &Plan) -> Result<(), Failure> {
        let ours = settings.log_directories();
        let common: Vec<&PathBuf> = ours
            .iter()
            .filter(|ours| self.offer.logs.contains(ours))
            .collect();
        if common.is_empty() {
            return Ok(());
        }
        let most = Duration::from_millis(self.offer.release_ms) + SLACK;
        match self.claim.take(most).map_err(|e| failed(&e.to_string()))? {
            Released::InOrder => {
                tracing::info!(?common, "the running server has released its logs")
            }
            Released::ItHasGone => {
                tracing::warn!(
                    "the running server has ended meanwhile; this server has its listeners"
                );
            }
        }
        Ok(())
    }

    /// Says that this process serves; from then on the running server ends. Returns the channel on which connections follow,
    /// if the other server passes some on.
    pub(crate) fn serving(self) -> Result<Option<Following>, Failure> {
        self.claim.serving().map_err(|e| failed(&e.to_string()))
    }

    /// Gives the takeover up before the successor serves, and reports why.
    pub(crate) fn give_up(self, why: Failure) -> Failure {
        self.claim.refuse(&why.message);
        why
    }
}

/// Says what a successor does not take over, as a reason to refuse the takeover.
pub(crate) fn leaves_behind(logs: &[PathBuf], stores: &[PathBuf]) -> String {
    let named = |log: &Path| match stores.iter().any(|store| store == log) {
        true => format!("the key-value store in {}", log.display()),
        false => format!("the log and its streams in {}", log.display()),
    };
    let all: Vec<String> = logs.iter().map(|log| named(log)).collect();
    format!(
        "the running server keeps {}, and its successor would not: --data names another directory (a relative one depends on \
         the working directory), --durability is missing, or a service is not served. Give the successor the same settings, or \
         add --takeover-forget to leave this behind",
        all.join(" and ")
    )
}

fn failed(why: &str) -> Failure {
    Failure::failed(format!("--takeover: {why}"))
}
