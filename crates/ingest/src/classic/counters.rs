//! What a classic service has counted.

use std::fmt;

use crate::ledger::{Ledger, Page};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts of one service, over all loops.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types, reason = "the names of the fields")]
        pub(crate) enum Count { $($name),* }

        const N: usize = [$(stringify!($name)),*].len();

        impl Counters {
            /// Every counter with its name, for logs and metrics pages.
            pub fn each(&self, mut f: impl FnMut(&str, u64)) {
                $(f(stringify!($name), self.$name);)*
            }
        }

        impl From<&Tally> for Counters {
            fn from(tally: &Tally) -> Counters {
                let [$($name),*] = tally.0.sums();
                Counters { $($name),* }
            }
        }
    };
}

counters! {
    /// Messages received whole.
    messages,
    /// Their payload bytes.
    payload_bytes,
    /// Acknowledgements written.
    acks,
    /// Connections ended because a payload was larger than allowed.
    oversized,
    /// Connections whose client finished sending in the middle of a message.
    truncated,
}

/// One line, zeros left out.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut result = Ok(());
        self.each(|name, n| {
            if n != 0 && result.is_ok() {
                result = write!(f, "{between}{name}={n}");
                between = " ";
            }
        });
        result
    }
}

/// Counts of all loops.
#[derive(Debug, Default)]
pub(crate) struct Tally(Ledger<N>);

impl Tally {
    pub(crate) fn on_loop(&self) -> LoopTally {
        LoopTally(self.0.page())
    }
}

/// Counts of one loop.
#[derive(Debug)]
pub(crate) struct LoopTally(Page<N>);

impl LoopTally {
    #[inline]
    pub(crate) fn add(&mut self, what: Count, n: usize) {
        self.0.add(what as usize, n as u64);
    }
}
