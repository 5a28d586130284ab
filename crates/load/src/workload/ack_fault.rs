//! Finds out what is wrong with an acknowledgement that does not continue the chain.
//!
//! The idea: a missing acknowledgement may still come; then it was not lost but overtaken. So the fault
//! is named only after the acknowledgements of the next moments.

use std::time::Duration;

use tidewire_ingest::classic::{AckForm, ChainError};

use super::fault::{Fault, Wrong};

/// An acknowledgement is missing.
pub(super) struct Inquest {
    form: AckForm,
    /// The first message whose acknowledgement is missing.
    missing: u64,
    what: String,
}

impl Inquest {
    /// How long the missing one is waited for.
    pub(super) const PATIENCE: Duration = Duration::from_millis(200);

    /// Whether there is anything to wait for; `next_id` is the first message not sent.
    pub(super) fn of(broken: &ChainError, form: AckForm, next_id: u64) -> Result<Inquest, Wrong> {
        let what = broken.to_string();
        if broken.id >= next_id {
            let what = format!("{what}, and {next_id} is not sent: it was not outstanding");
            return Err(Fault::ReplyBeforeRequest.because(what));
        }
        if broken.id < broken.expected {
            return Err(Fault::DuplicatedAck.because(what));
        }
        if broken.id - broken.expected < u64::from(broken.skipped) {
            // Some of the covered messages are new, some are not.
            return Err(Fault::DuplicatedAck.because(what));
        }
        Ok(Inquest {
            form,
            missing: broken.expected,
            what,
        })
    }

    /// Looks for the missing one among what comes.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Result<usize, Wrong> {
        let whole = bytes.chunks_exact(self.form.len());
        let taken = bytes.len() - whole.remainder().len();
        for ack in whole.map(|bytes| self.form.decode(bytes)) {
            let id = u64::from_ne_bytes(ack.id);
            let first = id.saturating_sub(ack.skipped.into());
            if (first..=id).contains(&self.missing) {
                let what = format!("{}; its own came later", self.what);
                return Err(Fault::ReorderedAck.because(what));
            }
        }
        Ok(taken)
    }

    /// The acknowledgement did not come.
    pub(super) fn lost(&self) -> Wrong {
        Fault::LostAck.because(self.what.clone())
    }
}
