//! When messages are sent, from the command line.

use tidewire_load::workload::{Arrivals, Rate, Spacing};

use tidewire_command::count;
use tidewire_command::exit::Failure;
use tidewire_command::span::Span;

/// The load model.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ArrivalArgs {
    /// Messages a second over all connections, each sent at its time however long replies take, as
    /// far as the pipeline or window has room; messages that find none go out as soon as there is some.
    /// Such as 500 or 200k [default: as many as are answered]
    #[arg(long, value_name = "N", value_parser = count::rate)]
    rate: Option<f64>,
    /// How messages of a rate are spread over time: constant, or poisson as if from very many users
    /// [default: constant]
    #[arg(long, value_name = "HOW")]
    arrivals: Option<Gaps>,
    /// Time over which the rate rises from a tenth of itself
    #[arg(long, default_value = "0", value_name = "TIME", requires = "rate")]
    ramp: Span,
    /// Where chance begins: the same seed gives the same times. Goes with a rate [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Gaps {
    Constant,
    Poisson,
}

impl ArrivalArgs {
    /// The model of arrivals; `default` is the rate of a load that has one of its own.
    pub(super) fn arrivals(&self, default: Option<f64>) -> Result<Arrivals, Failure> {
        let Some(per_second) = self.rate.or(default) else {
            return match (self.arrivals, self.seed) {
                (None, None) => Ok(Arrivals::Closed),
                (Some(_), _) => Err(Failure::usage(
                    "--arrivals spreads the messages of a rate: give one with --rate",
                )),
                (None, Some(_)) => Err(Failure::usage(
                    "--seed chooses the send times of a rate: give the rate with --rate",
                )),
            };
        };
        if per_second <= 0.0 {
            return Err(Failure::usage("--rate must be more than 0"));
        }
        Ok(Arrivals::Open(Rate {
            per_second,
            ..self.rate()
        }))
    }

    pub(super) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// How messages are spread, whatever their rate is.
    pub(super) fn rate(&self) -> Rate {
        Rate {
            per_second: self.rate.unwrap_or(1.0),
            spacing: match self.arrivals {
                None | Some(Gaps::Constant) => Spacing::Constant,
                Some(Gaps::Poisson) => Spacing::Poisson,
            },
            ramp: self.ramp.0,
            seed: self.seed.unwrap_or(1),
        }
    }
}

/// In a few words, to stand behind a load; nothing where messages are sent as replies come.
pub(super) fn described(arrivals: &Arrivals) -> String {
    let Some(rate) = arrivals.rate() else {
        return String::new();
    };
    let how = match rate.spacing {
        Spacing::Constant => "",
        Spacing::Poisson => " (poisson)",
    };
    format!(
        ", {} a second{how}",
        tidewire_load::numbers::grouped(rate.per_second)
    )
}
