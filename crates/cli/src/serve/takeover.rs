//! `serve --takeover`: the successor's side.

use std::path::PathBuf;
use std::time::Duration;

use tidewire_handover::{Claim, ClaimError, Handed, Hello, Offer, Released};

use super::control;
use super::settings::Settings;
use crate::exit::Failure;

/// What the running server may take longer than it says.
const SLACK: Duration = Duration::from_secs(10);

/// A running server that is asked to make way.
pub(crate) struct Takeover {
    claim: Claim,
    offer: Offer,
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
        Ok((Takeover { claim, offer }, handed))
    }

    /// Has the running server let go of the logs that these settings need too. Until this process serves, whoever
    /// connects waits.
    pub(crate) fn release_logs(&self, settings: &Settings) -> Result<(), Failure> {
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
                tracing::info!(?common, "the running server has let go of its logs")
            }
            Released::ItHasGone => {
                tracing::warn!("the running server has ended meanwhile; its listeners are here");
            }
        }
        Ok(())
    }

    /// Says that this process serves; from then on the running server ends.
    pub(crate) fn serving(self) -> Result<(), Failure> {
        self.claim.serving().map_err(|e| failed(&e.to_string()))
    }

    /// Gives up before that, and says why.
    pub(crate) fn give_up(self, why: Failure) -> Failure {
        self.claim.refuse(&why.message);
        why
    }
}

fn failed(why: &str) -> Failure {
    Failure::failed(format!("--takeover: {why}"))
}
