//! Costs by function, from files of callgrind.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

/// Costs of functions by themselves, without the functions that they call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Profile(BTreeMap<String, f64>);

/// How the cost of one function has changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The function.
    pub function: String,
    /// Cost of the function before.
    pub before: f64,
    /// Cost of the function after.
    pub after: f64,
}

impl Change {
    /// How much more the function costs; negative if less.
    pub fn by(&self) -> f64 {
        self.after - self.before
    }
}

/// Why a file of callgrind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The profile's first event is not instructions.
    #[error("the first event is not Ir")]
    Events,
    /// A line cannot be understood.
    #[error("line {0} cannot be understood: {1}")]
    Line(usize, String),
    /// The costs of all functions are not the total that the file says.
    #[error("the functions cost {found}, and the file says {said}: it is not whole")]
    Total {
        /// The sum of the functions.
        found: u64,
        /// The total in the file.
        said: u64,
    },
    /// The file has no total.
    #[error("no total: it is not whole")]
    NoTotal,
}

impl Profile {
    /// Reads a file of callgrind (format version 1).
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn parse(text: &str) -> Result<Profile, ParseError> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut costs: HashMap<&str, u64> = HashMap::new();
        let mut function = "";
        let mut of_a_call = false;
        let mut total = None;
        for (number, line) in text.lines().enumerate() {
            let wrong = || ParseError::Line(number + 1, line.chars().take(80).collect());
            if let Some(of) = line.strip_prefix("fn=") {
                function = named(of, &mut names).ok_or_else(wrong)?;
            } else if let Some(of) = line.strip_prefix("cfn=") {
                named(of, &mut names).ok_or_else(wrong)?;
            } else if line.starts_with("calls=") {
                of_a_call = true;
            } else if let Some(events) = line.strip_prefix("events:") {
                if events.split_ascii_whitespace().next() != Some("Ir") {
                    return Err(ParseError::Events);
                }
            } else if let Some(said) = line.strip_prefix("totals:") {
                let said = said.split_ascii_whitespace().next().unwrap_or("0");
                total = Some(said.parse::<u64>().map_err(|_| wrong())?);
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
                // The cost of a call is that of what is called, which has lines of its own.
                if std::mem::take(&mut of_a_call) {
                    continue;
                }
                let mut words = line.split_ascii_whitespace().skip(1);
                let cost = words.next().map_or(Ok(0), str::parse::<u64>);
                *costs.entry(function).or_default() += cost.map_err(|_| wrong())?;
            }
        }
        let found = costs.values().sum();
        match total {
            None => return Err(ParseError::NoTotal),
            Some(said) if said != found => return Err(ParseError::Total { found, said }),
            Some(_) => {}
        }
        let costs = costs.into_iter().filter(|(_, cost)| *cost > 0);
        Ok(Profile(
            costs
                .map(|(name, cost)| (name.to_owned(), cost as f64))
                .collect(),
        ))
    }

    /// The sum of all functions.
    pub fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// Adds to the cost of a function.
    pub fn add(&mut self, function: &str, cost: f64) {
        match self.0.get_mut(function) {
            Some(known) => *known += cost,
            None => drop(self.0.insert(function.to_owned(), cost)),
        }
    }

    /// Adds all costs of another.
    pub fn merge(&mut self, other: &Profile) {
        for (function, cost) in &other.0 {
            self.add(function, *cost);
        }
    }

    /// All costs, divided.
    #[must_use]
    pub fn divided(mut self, by: f64) -> Profile {
        for cost in self.0.values_mut() {
            *cost /= by;
        }
        self
    }

    /// This profile minus `times` times the costs of `other`; no cost goes below 0.
    #[must_use]
    pub fn without(mut self, other: &Profile, times: f64) -> Profile {
        for (function, cost) in &mut self.0 {
            let less = other.0.get(function).map_or(0.0, |less| less * times);
            *cost = (*cost - less).max(0.0);
        }
        self.0.retain(|_, cost| *cost > 0.0);
        self
    }

    /// Functions and costs, the dearest first.
    pub fn dearest(&self) -> Vec<(&str, f64)> {
        let mut all: Vec<(&str, f64)> =
            self.0.iter().map(|(name, cost)| (&**name, *cost)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }

    /// Which functions have changed, the largest change first.
    pub fn changes(before: &Profile, after: &Profile) -> Vec<Change> {
        let cost = |of: &Profile, name: &str| of.0.get(name).copied().unwrap_or(0.0);
        let mut names: Vec<&String> = before.0.keys().chain(after.0.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let mut changes: Vec<Change> = names
            .into_iter()
            .map(|name| Change {
                function: name.clone(),
                before: cost(before, name),
                after: cost(after, name),
            })
            .filter(|change| change.by() != 0.0)
            .collect();
        changes.sort_by(|a, b| b.by().abs().total_cmp(&a.by().abs()));
        changes
    }
}

impl FromIterator<(String, f64)> for Profile {
    fn from_iter<I: IntoIterator<Item = (String, f64)>>(costs: I) -> Profile {
        let mut profile = Profile::default();
        for (function, cost) in costs {
            profile.add(&function, cost);
        }
        profile
    }
}

/// A name, which the file says once, `(7) name`, and then by its number, `(7)`. The names of
/// recursive calls, `name'2`, are one function.
fn named<'a>(text: &'a str, names: &mut HashMap<&'a str, &'a str>) -> Option<&'a str> {
    let Some(end) = text.find(')').filter(|_| text.starts_with('(')) else {
        return Some(plain(text));
    };
    let (number, name) = text.split_at(end + 1);
    let name = name.trim();
    if !name.is_empty() {
        names.insert(number, plain(name));
    }
    names.get(number).copied()
}

fn plain(name: &str) -> &str {
    match name.rsplit_once('\'') {
        Some((before, number))
            if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) =>
        {
            before
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# callgrind format\nversion: 1\npositions: line\nevents: Ir\nsummary: 7000\n\n\
        ob=(1) /x/server\nfl=(2) main.rs\nfn=(10) main\n16 400\n+2 100\ncfi=(3) a.rs\ncfn=(11) work<(u8, u8)>\n\
        calls=3 50\n* 5400\n-1 100\n\nfl=(3)\nfn=(11)\n50 5000\nfi=(2)\n51 399\nfe=(3)\n* 1\n\nfn=(12) again'2\n9 30\n\
        fn=(13) again\n9 70\n\ntotals: 6100\n";

    #[test]
    fn costs_are_of_functions_without_their_callees() {
        let profile = Profile::parse(FILE).unwrap();
        assert_eq!(
            profile.dearest(),
            [
                ("work<(u8, u8)>", 5400.0),
                ("main", 600.0),
                ("again", 100.0)
            ]
        );
        assert_eq!(profile.total(), 6100.0);
    }

    #[test]
    fn what_is_cut_off_or_of_another_kind_is_refused() {
        let cut = &FILE[..FILE.find("totals").unwrap()];
        assert_eq!(Profile::parse(cut), Err(ParseError::NoTotal));
        let lost = FILE.replace("50 5000\n", "");
        let (found, said) = (1100, 6100);
        assert_eq!(
            Profile::parse(&lost),
            Err(ParseError::Total { found, said })
        );
        let other = FILE.replace("events: Ir", "events: Bc Ir");
        assert_eq!(Profile::parse(&other), Err(ParseError::Events));
        let unknown = FILE.replace("fn=(12) again'2", "fn=(12)");
        assert!(matches!(
            Profile::parse(&unknown),
            Err(ParseError::Line(..))
        ));
    }

    #[test]
    fn changes_are_told_by_function_the_largest_first() {
        let of = |costs: &[(&str, f64)]| -> Profile {
            costs
                .iter()
                .map(|(name, cost)| ((*name).to_owned(), *cost))
                .collect()
        };
        let before = of(&[("a", 100.0), ("b", 50.0), ("gone", 5.0), ("same", 7.0)]);
        let after = of(&[("a", 103.0), ("b", 10.0), ("new", 100.0), ("same", 7.0)]);
        let changes = Profile::changes(&before, &after);
        let told: Vec<(&str, f64)> = changes
            .iter()
            .map(|change| (&*change.function, change.by()))
            .collect();
        assert_eq!(
            told,
            [("new", 100.0), ("b", -40.0), ("gone", -5.0), ("a", 3.0)]
        );
    }
}
