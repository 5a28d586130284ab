//! The cost of a message on one server under one load, counted in several starts.

use serde::{Deserialize, Serialize};
use tidewire_command::exit::Failure;
use tidewire_load::count::verdict::{Mean, Spread};
use tidewire_load::count::{Counted, Profile};

use crate::bench::{Cell, STARTS, Side, Want, at_once};

/// The cost of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    /// Instructions of user code.
    pub(super) instructions: f64,
    /// Half of the 95 % interval of the instructions, as a share: how well they are known.
    pub(super) within: f64,
    /// System calls, where they were counted.
    pub(super) system_calls: Option<f64>,
    /// Instructions by function.
    #[serde(skip)]
    pub(super) profile: Profile,
}

impl Cost {
    /// Starts the server under tools that count, several times, and loads it.
    pub(super) fn of(cell: &Cell, side: &Side, want: &Want<'_>) -> Result<Cost, Failure> {
        // System calls do not differ from start to start.
        let later = Want {
            calls: false,
            ..*want
        };
        let starts: Vec<usize> = (0..STARTS).collect();
        let counts = at_once(&starts, &[side], |&start| {
            let want = if start == 0 { want } else { &later };
            cell.count(side, want, start)
        })?;
        let of_starts: Vec<Counted> = counts
            .iter()
            .map(|start| start.instructions.clone())
            .collect();
        let segments: Vec<&[f64]> = of_starts.iter().map(|start| &*start.segments).collect();
        let mean = Mean::of(&segments);
        let calls = counts.iter().find_map(|start| start.calls.as_ref());
        Ok(Cost {
            instructions: mean.value,
            within: mean.within,
            system_calls: calls.map(|calls| Spread::of(&calls.segments).median),
            profile: Counted::together(&of_starts).profile,
        })
    }
}
