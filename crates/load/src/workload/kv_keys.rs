//! Which key each command of the key-value load is for.

use serde::Serialize;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyChoice {
    /// Each connection goes through a part of the keys in order.
    InTurn,
    /// Each is as likely as any other.
    Uniform,
    /// Key `k`, from 0, is as likely as `1 / (k + 1)^theta`: few keys have most of the commands.
    Zipf {
        /// The exponent, above 0 and at most [`KeyChoice::THETA_MAX`]; 0.99 is what many benchmarks of stores take.
        theta: f64,
    },
}

impl KeyChoice {
    /// Beyond this exponent 999 of 1,000 commands are for the first key.
    pub const THETA_MAX: f64 = 10.0;
}

/// Draws keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Picker {
    InTurn { next: u64 },
    Uniform,
    Zipf(Zipf),
}

impl Picker {
    pub(super) fn new(choice: KeyChoice, keys: u64, connection: u64, connections: usize) -> Picker {
        let connections = connections as u64;
        match choice {
            KeyChoice::InTurn => Picker::InTurn {
                next: keys / connections * connection + (keys % connections).min(connection),
            },
            KeyChoice::Uniform => Picker::Uniform,
            KeyChoice::Zipf { theta } => Picker::Zipf(Zipf::new(keys, theta)),
        }
    }

    /// A key below `keys`; `random` gives 64 random bits.
    pub(super) fn pick(&mut self, keys: u64, random: &mut impl FnMut() -> u64) -> u64 {
        match self {
            Picker::InTurn { next } => {
                let key = *next % keys;
                *next += 1;
                key
            }
            // The upper half of a product is as good as a remainder and needs no division.
            Picker::Uniform => ((u128::from(random()) * u128::from(keys)) >> 64) as u64,
            Picker::Zipf(zipf) => zipf.draw(|| unit(random())) - 1,
        }
    }
}

/// Evenly from 0 (included) to 1 (excluded).
pub(super) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Zipf's distribution over 1 to n, by rejection-inversion: W. Hörmann and G. Derflinger, "Rejection-inversion to
/// generate variates from monotone discrete distributions", ACM Transactions on Modeling and Computer Simulation 6
/// (1996), 169 to 184.
///
/// The idea: the histogram is covered by its continuous counterpart `x^-theta`, whose integral can be inverted. A
/// point drawn under the curve is rounded to its number and kept if it lies in that number's bar, which it nearly
/// always does. There are no tables, so a thousand million keys cost as much as ten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    n: f64,
    theta: f64,
    /// The integral where the first bar begins, and where the last one ends.
    first: f64,
    last: f64,
    /// Whatever lies so near to its number needs no closer look.
    near: f64,
}

impl Zipf {
    /// `n` must be at least 1, `theta` above 0.
    pub(super) fn new(n: u64, theta: f64) -> Zipf {
        let mut zipf = Zipf {
            n: n as f64,
            theta,
            first: 0.0,
            last: 0.0,
            near: 0.0,
        };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.n + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    /// `unit` draws evenly from 0 to 1.
    pub(super) fn draw(&self, mut unit: impl FnMut() -> f64) -> u64 {
        loop {
            let at = self.last + unit() * (self.first - self.last);
            let x = self.inverse(at);
            let number = x.round().clamp(1.0, self.n);
            if number - x <= self.near || at >= self.integral(number + 0.5) - self.height(number) {
                return number as u64;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// The integral of the height from 1 to `x`. Both forms of the integral are written so that they
    /// agree where theta is 1.
    fn integral(&self, x: f64) -> f64 {
        let rest = 1.0 - self.theta;
        match rest.abs() < NEARLY_ONE {
            true => x.ln(),
            false => (rest * x.ln()).exp_m1() / rest,
        }
    }

    /// The `x` of an integral.
    fn inverse(&self, integral: f64) -> f64 {
        let rest = 1.0 - self.theta;
        match rest.abs() < NEARLY_ONE {
            true => integral.exp(),
            // Rounding must not lead to a number without a logarithm.
            false => ((integral * rest).max(-1.0).ln_1p() / rest).exp(),
        }
    }
}

/// An exponent that differs from 1 by less is 1.
const NEARLY_ONE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Pearson's statistic of draws against the theoretical distribution, over the degrees of freedom.
    fn misfit(n: usize, theta: f64, drawn_from: f64) -> f64 {
        const DRAWS: usize = 400_000;
        let mut random = SplitMix64::new(11);
        let zipf = Zipf::new(n as u64, drawn_from);
        let mut hits = vec![0u64; n];
        for _ in 0..DRAWS {
            hits[zipf.draw(|| random.uniform()) as usize - 1] += 1;
        }
        let weight = |k: usize| ((k + 1) as f64).powf(-theta);
        let all: f64 = (0..n).map(weight).sum();
        // Numbers that are to come up less than ten times are taken together.
        let (mut sum, mut cells, mut few) = (0.0, 0.0, (0.0, 0.0));
        let mut cell = |want: f64, have: f64| {
            sum += (have - want).powi(2) / want;
            cells += 1.0;
        };
        for (k, &hits) in hits.iter().enumerate() {
            let want = weight(k) / all * DRAWS as f64;
            match want >= 10.0 {
                true => cell(want, hits as f64),
                false => few = (few.0 + want, few.1 + hits as f64),
            }
        }
        if few.0 >= 10.0 {
            cell(few.0, few.1);
        }
        sum / (cells - 1.0)
    }

    #[test]
    fn draws_follow_the_theoretical_distribution() {
        for theta in [0.1, 0.5, 0.99, 1.0, 1.0 + 1e-12, 1.2, 2.0, 10.0] {
            for n in [2, 3, 100, 5_000] {
                let misfit = misfit(n, theta, theta);
                // With some cells only, chance has more room: three standard deviations and a half.
                assert!(misfit < 12.0, "theta {theta} of {n}: {misfit}");
                assert!(
                    n < 100 || theta > 1.5 || misfit < 1.4,
                    "theta {theta} of {n}: {misfit}"
                );
            }
        }
        // A nearly right distribution is told from the right one.
        assert!(misfit(100, 0.99, 0.95) > 5.0);
    }

    #[test]
    fn extremes_stay_within_the_keys() {
        for (n, theta) in [
            (1, 0.99),
            (1, 10.0),
            (1 << 53, 0.01),
            (1 << 53, 1.0),
            (1 << 53, 10.0),
        ] {
            let zipf = Zipf::new(n, theta);
            for unit in [0.0, f64::MIN_POSITIVE, 0.5, 1.0 - f64::EPSILON / 2.0] {
                let mut first = Some(unit);
                let drawn = zipf.draw(|| first.take().unwrap_or(0.75));
                assert!((1..=n).contains(&drawn), "{n} {theta} {unit}: {drawn}");
            }
        }
    }

    #[test]
    fn uniform_keys_are_about_equal() {
        let mut random = SplitMix64::new(5);
        let mut picker = Picker::new(KeyChoice::Uniform, 5, 0, 1);
        let mut hits = [0u32; 5];
        for _ in 0..50_000 {
            hits[picker.pick(5, &mut || random.next()) as usize] += 1;
        }
        assert!(hits.iter().all(|h| (9_500..10_500).contains(h)), "{hits:?}");
    }
}
