//! Looking what became of tenures that are over, one at a time and not often.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidewire_log::{Step, Tenure};

use crate::home::{Answer, Ask, Held, Home};
use crate::settings::Settings;

/// The module's comment describes the type.
#[derive(Default)]
pub(crate) struct Look {
    now: Option<Looking>,
    asked: u64,
    /// When to look again, at the earliest.
    due: Duration,
    /// Tenures that are over and have left records.
    left: BTreeSet<Tenure>,
    /// The tenure that was looked at last: the one after it is next.
    turn: Option<Tenure>,
}

struct Looking {
    tenure: Tenure,
    home: Box<dyn Home>,
    number: u64,
    within: Duration,
}

impl Look {
    /// The tenures that were found to have left records.
    pub(crate) fn left(&self) -> &BTreeSet<Tenure> {
        &self.left
    }

    /// Looks whether `others` are still there. `settle` says whether anything is left of one, and `None` if it is not
    /// over.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        others: &[Tenure],
        settings: &Settings,
        mut open: impl FnMut(u32) -> Result<Box<dyn Home>, Arc<str>>,
        mut settle: impl FnMut(Tenure, &Held) -> Option<bool>,
    ) -> Step {
        if let Some(looking) = &mut self.now {
            let mut held = None;
            while let Some((number, answer)) = looking.home.answer() {
                if number == looking.number {
                    held = Some(answer);
                }
            }
            if held.is_none() && now < looking.within {
                return Step::WaitUntil(looking.within);
            }
            if let Some(Answer::Held(held)) = held
                && settle(looking.tenure, &held) == Some(true)
            {
                let tenure = looking.tenure;
                tracing::warn!(
                    partition = tenure.partition,
                    tenure = tenure.number,
                    "messages of a partition that another node has now are not in the home, and \
                     stay on this server: see tidewire log unreplicated"
                );
                self.left.insert(tenure);
            }
            self.now = None;
            self.due = now + settings.retry_last;
            return Step::Worked;
        }
        self.left.retain(|tenure| others.contains(tenure));
        let mut next = others.iter().filter(|tenure| !self.left.contains(*tenure));
        let behind = next.clone().find(|tenure| self.turn < Some(**tenure));
        let Some(&tenure) = behind.or_else(|| next.next()) else {
            return Step::Idle;
        };
        if now < self.due {
            return Step::WaitUntil(self.due);
        }
        self.due = now + settings.retry_last;
        self.turn = Some(tenure);
        let Ok(mut home) = open(tenure.partition) else {
            return Step::WaitUntil(self.due);
        };
        self.asked += 1;
        home.ask(self.asked, Ask::Look);
        self.now = Some(Looking {
            tenure,
            home,
            number: self.asked,
            within: now + settings.answer_within,
        });
        Step::Worked
    }
}
