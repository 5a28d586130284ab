//! The options of every kind of load on a command line.

use std::fmt;
use std::sync::Arc;

use clap::{ArgMatches, Command};
use tidewire_command::exit::Failure;

use super::extent::Extent;
use super::load::Workload;
use super::url::Url;

/// Most bytes of one write: a whole batch is in memory for each connection.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Options that cannot be meant, and why.
#[derive(Debug)]
pub struct Unfit(pub String);

impl Unfit {
    /// The options do not fit, for this reason.
    pub fn because(why: impl Into<String>) -> Unfit {
        Unfit(why.into())
    }
}

impl From<Unfit> for Failure {
    fn from(Unfit(why): Unfit) -> Failure {
        Failure::usage(why)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The options of one kind of load.
pub trait Options: fmt::Debug + Send + Sync {
    /// Checks the options, and makes the load.
    ///
    /// # Errors
    /// [`Unfit`].
    fn load(&self) -> Result<Chosen, Unfit>;

    /// The commands that each server is loaded with once, before anything is measured.
    ///
    /// # Errors
    /// [`Unfit`].
    fn first(&self) -> Result<Vec<First>, Unfit> {
        Ok(Vec::new())
    }

    /// The server's URL, if it is a part of the load.
    fn url(&self) -> Option<&Url> {
        None
    }

    /// Says how many messages a write has, which only a load without a rate can.
    fn says_batch(&self) -> bool {
        false
    }

    /// Messages a second on so many connections, if no rate is given; `None` is as many as are answered.
    fn own_rate(&self, connections: usize) -> Option<f64> {
        let _ = connections;
        None
    }
}

/// A load that was chosen.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The load.
    pub workload: Workload,
    /// Whether real clients of this protocol set TCP_NODELAY; `None` if the load decides.
    pub nodelay: Option<bool>,
}

impl Chosen {
    /// This workload, with the connection options that suit it best.
    pub fn of(workload: Workload) -> Chosen {
        Chosen {
            workload,
            nodelay: None,
        }
    }

    /// The load without rounds of its own, for runs of a given length.
    #[must_use]
    pub fn endless(self) -> Chosen {
        Chosen {
            workload: self.workload.endless().unwrap_or(self.workload),
            ..self
        }
    }
}

/// A load that prepares the server before anything is measured.
#[derive(Debug)]
pub struct First {
    /// The messages to send.
    pub workload: Workload,
    /// The length of the load.
    pub extent: Extent,
    /// The meaning of another answer of the server; `None`: any other answer is wrong, as in any
    /// load.
    pub refused: Option<&'static str>,
}

/// A kind of load, as the command line has it.
pub struct Kind {
    /// Name of the load as a subcommand.
    pub name: &'static str,
    /// A one-sentence description.
    pub about: &'static str,
    examples: [&'static [&'static str]; 2],
    /// The short help of the load's flags, in this order.
    pub brief: &'static [(&'static str, &'static str)],
    once: Form,
    again: Form,
}

/// How options are declared, and read.
#[derive(Clone, Copy)]
struct Form {
    augment: fn(Command) -> Command,
    read: fn(&ArgMatches) -> Result<Arc<dyn Options>, clap::Error>,
}

impl Form {
    const fn of<A: clap::Args + Options + 'static>() -> Form {
        fn read<A: clap::Args + Options + 'static>(
            matches: &ArgMatches,
        ) -> Result<Arc<dyn Options>, clap::Error> {
            Ok(Arc::new(A::from_arg_matches(matches)?))
        }
        Form {
            augment: A::augment_args,
            read: read::<A>,
        }
    }
}

/// The purpose for which a load is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One run.
    Once,
    /// Runs that are repeated, each as long as the caller says.
    Again,
}

impl Kind {
    /// A kind with these options.
    pub const fn of<A: clap::Args + Options + 'static>(
        name: &'static str,
        about: &'static str,
    ) -> Kind {
        Kind {
            name,
            about,
            examples: [&[], &[]],
            brief: &[],
            once: Form::of::<A>(),
            again: Form::of::<A>(),
        }
    }

    /// The kind with other options for one run, which may have an end of its own.
    pub const fn once<A: clap::Args + Options + 'static>(self) -> Kind {
        Kind {
            once: Form::of::<A>(),
            ..self
        }
    }

    /// Examples of one run, and of a comparison, as lines for the end of the help.
    pub const fn used(self, once: &'static [&'static str], again: &'static [&'static str]) -> Kind {
        Kind {
            examples: [once, again],
            ..self
        }
    }

    /// Sets the short help of the load's own flags, in this order.
    pub const fn briefly(self, brief: &'static [(&'static str, &'static str)]) -> Kind {
        Kind { brief, ..self }
    }

    /// Lines for the end of the help.
    pub fn examples(&self, purpose: Purpose) -> &'static [&'static str] {
        match purpose {
            Purpose::Once => self.examples[0],
            Purpose::Again => self.examples[1],
        }
    }

    fn form(&self, purpose: Purpose) -> Form {
        match purpose {
            Purpose::Once => self.once,
            Purpose::Again => self.again,
        }
    }

    /// A subcommand with its options.
    pub fn command(&self, purpose: Purpose) -> Command {
        (self.form(purpose).augment)(Command::new(self.name)).about(self.about)
    }

    /// Reads the given options.
    ///
    /// # Errors
    /// The options cannot be read.
    pub fn read(
        &self,
        purpose: Purpose,
        matches: &ArgMatches,
    ) -> Result<Arc<dyn Options>, clap::Error> {
        (self.form(purpose).read)(matches)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({})", self.name)
    }
}

pub(super) fn at_least_one(what: &str, n: usize) -> Result<(), Unfit> {
    match n {
        0 => Err(Unfit::because(format!("{what} must be at least 1"))),
        _ => Ok(()),
    }
}

pub(super) fn bounded(size: usize, batch: u32) -> Result<(), Unfit> {
    if size.saturating_mul(batch as usize) <= BATCH_BYTES_MAX {
        return Ok(());
    }
    Err(Unfit::because(format!(
        "a write of {batch} messages of {size} bytes is more than {BATCH_BYTES_MAX} bytes: \
         take smaller messages or a smaller --batch"
    )))
}
