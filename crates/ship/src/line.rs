//! The server in use, and when the next one has its turn.

use std::time::Duration;

use crate::counts::Fatal;
use crate::network::{Ended, Matter};
use crate::settings::Settings;

/// The server in use, for all files.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) server: usize,
    pub(crate) trouble: Option<String>,
    pub(crate) payload_max: usize,
    /// No lane is opened before.
    not_before: Duration,
    /// Number of lanes lost since the last acknowledgement.
    fruitless: usize,
    /// Since when no server was heard.
    silent: Option<Duration>,
}

/// How long to pause when all servers have failed.
const PAUSE: Duration = Duration::from_secs(1);

impl Line {
    pub(crate) fn new(server: usize) -> Line {
        Line {
            server,
            trouble: None,
            payload_max: 0,
            not_before: Duration::ZERO,
            fruitless: 0,
            silent: None,
        }
    }

    pub(crate) fn may_open(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    pub(crate) fn opened(&mut self, server: usize) {
        if server == self.server {
            self.silent = None;
        }
    }

    pub(crate) fn progressed(&mut self) {
        self.fruitless = 0;
    }

    /// A lane has ended of which nothing was heard since then: the next server has its turn, if there is a point in that.
    pub(crate) fn lost(
        &mut self,
        (server, since): (usize, Duration),
        ended: Ended,
        settings: &Settings,
        now: Duration,
        events: &mut Vec<String>,
    ) -> Result<(), Fatal> {
        if server != self.server {
            return Ok(());
        }
        let all = settings.servers.len();
        self.fruitless += 1;
        let silent = now.saturating_sub(*self.silent.get_or_insert(since));
        if ended.matter != Matter::Passing && self.fruitless >= all {
            return Err(Fatal(ended.why));
        }
        // Each has had its turn, however short the time.
        let all_tried = self.fruitless >= all;
        if all_tried && settings.give_up.is_some_and(|most| silent >= most) {
            return Err(Fatal(format!("gave up after {silent:.0?}: {}", ended.why)));
        }
        self.server = (server + 1) % all;
        if self.fruitless.is_multiple_of(all) {
            self.not_before = now + PAUSE;
        }
        if all > 1 {
            let (from, to) = (&settings.servers[server], &settings.servers[self.server]);
            events.push(format!(
                "{}; going on with {to}. What {from} had stored and not acknowledged is in both then, \
                 with the same producer and id",
                ended.why
            ));
        }
        self.trouble = Some(ended.why);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time began with the end of the first lane, which had been tried for all of it.
    #[test]
    fn the_time_in_which_a_lane_was_not_answered_counts() {
        let at = Duration::from_secs;
        let settings = Settings {
            servers: vec!["a".into(), "b".into()],
            give_up: Some(at(10)),
            ..Settings::default()
        };
        let ended = || Ended {
            why: "no answer".into(),
            matter: Matter::Passing,
        };
        let mut line = Line::new(0);
        let mut events = Vec::new();
        let mut lost = |server, since, now| {
            line.lost(
                (server, at(since)),
                ended(),
                &settings,
                at(now),
                &mut events,
            )
        };
        // Each has its turn.
        assert_eq!(lost(0, 100, 111), Ok(()));
        let said = lost(1, 111, 112).unwrap_err().0;
        assert_eq!(said, "gave up after 12s: no answer");
    }
}
