//! `math.random`: the numbers that Redis gives for the same seed. Every run of a script begins with a seed of its own.

use std::cell::Cell;

use crate::args::{Args, Outcome};

use mlua::Value;

/// The largest number and one more.
const RANGE: u64 = 1 << 31;

/// The generator of drand48.
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Default for Random {
    fn default() -> Random {
        let random = Random(Cell::new(0));
        random.seed(0);
        random
    }
}

impl Random {
    pub(crate) fn seed(&self, seed: i32) {
        self.0.set((u64::from(seed as u32) << 16) | 0x330e);
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1);
        self.0.set(state);
        state >> 17
    }

    /// `math.random`.
    pub(crate) fn random(&self, args: &Args) -> Outcome {
        let most = (RANGE - 1) as f64;
        let x = (self.next() % (RANGE - 1)) as f64 / most;
        let (low, high) = match args.len() {
            0 => return Ok(vec![Value::Number(x)]),
            1 => (1.0, args.number(0, "random")?),
            2 => (args.number(0, "random")?, args.number(1, "random")?),
            _ => return Err("wrong number of arguments".into()),
        };
        if low.floor() > high.floor() {
            let at = args.len();
            return Err(format!("bad argument #{at} to 'random' (interval is empty)").into());
        }
        let (low, high) = (low.trunc(), high.trunc());
        Ok(vec![Value::Number((x * (high - low + 1.0)).floor() + low)])
    }

    /// `math.randomseed`.
    pub(crate) fn randomseed(&self, args: &Args) -> Outcome {
        self.seed(args.number(0, "randomseed")? as i64 as i32);
        Ok(Vec::new())
    }
}
