//! Commands of the user's own, of which one is drawn each time, as often as its weight says.

use std::sync::OnceLock;

use serde::{Serialize, Serializer};

use super::kv_reply::Kind;
use super::kv_template::Template;

/// Commands and their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Each with the sum of the weights up to its own.
    all: Vec<(Template, f64)>,
    shown: String,
}

/// The kind that the first reply to each command of a mix had, on whatever connection.
pub(super) type Firsts = Vec<OnceLock<Kind>>;

impl Mix {
    /// Most commands of a mix.
    pub const COMMANDS_MAX: usize = 64;

    /// One command, each time.
    pub fn one(template: Template) -> Mix {
        Mix {
            shown: template.shown().to_owned(),
            all: vec![(template, 1.0)],
        }
    }

    /// Several, with weights above 0 that need not add up to anything.
    ///
    /// # Errors
    /// There is no command, there are more than [`Mix::COMMANDS_MAX`], or a weight is not above 0; as a
    /// text.
    pub fn new(commands: Vec<(Template, f64)>) -> Result<Mix, String> {
        if commands.is_empty() || commands.len() > Mix::COMMANDS_MAX {
            return Err(format!("1 to {} commands", Mix::COMMANDS_MAX));
        }
        let shown: Vec<String> = commands
            .iter()
            .map(|(template, weight)| format!("{weight}:{}", template.shown()))
            .collect();
        let mut sum = 0.0;
        let mut all = commands;
        for (_, weight) in &mut all {
            if !(*weight > 0.0 && weight.is_finite()) {
                return Err(format!("a weight is a number above 0, not {weight}"));
            }
            sum += *weight;
            *weight = sum;
        }
        Ok(Mix {
            all,
            shown: shown.join("; "),
        })
    }

    /// The mix as text, to be shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The number of the command that chance, from 0 to less than 1, has drawn.
    pub(super) fn draw(&self, chance: f64) -> u8 {
        let sum = self.all.last().map_or(0.0, |(_, sum)| *sum);
        let at = chance * sum;
        let number = self.all.partition_point(|(_, to)| *to <= at);
        number.min(self.all.len() - 1) as u8
    }

    pub(super) fn template(&self, number: u8) -> &Template {
        &self.all[usize::from(number)].0
    }

    /// All commands, by their numbers.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.all.iter().map(|(template, _)| template)
    }

    /// Room for what its first replies were.
    pub(super) fn firsts(&self) -> Firsts {
        self.all.iter().map(|_| OnceLock::new()).collect()
    }
}

impl Serialize for Mix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text, None).unwrap()
    }

    #[test]
    fn each_command_is_drawn_as_often_as_its_weight_says() {
        let mix = Mix::new(vec![
            (template("GET {key}"), 80.0),
            (template("DEL {key}"), 5.0),
            (template("PING"), 15.0),
        ])
        .unwrap();
        let mut times = [0; 3];
        for n in 0..1_000 {
            times[usize::from(mix.draw(f64::from(n) / 1_000.0))] += 1;
        }
        assert_eq!(times, [800, 50, 150]);
        assert_eq!(mix.shown(), "80:GET {key}; 5:DEL {key}; 15:PING");
        assert_eq!(Mix::one(template("PING")).draw(0.999_999), 0);
    }

    #[test]
    fn weights_that_mean_nothing_are_refused() {
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                Mix::new(vec![(template("PING"), weight)]).is_err(),
                "{weight}"
            );
        }
        assert!(Mix::new(Vec::new()).is_err());
        let many = vec![(template("PING"), 1.0); Mix::COMMANDS_MAX + 1];
        assert!(Mix::new(many).is_err());
    }
}
