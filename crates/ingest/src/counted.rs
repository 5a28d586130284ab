//! Named counters of a service, over all of its loops: one list gives the public struct, the names
//! and the pages that loops write.

/// Makes `Counters` (public, a field each), `Count` (a variant each), `Tally` (of a service) and
/// `LoopTally` (of a loop).
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

        /// One line, zeros left out.
        impl std::fmt::Display for Counters {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
        pub(crate) struct Tally($crate::ledger::Ledger<N>);

        impl Tally {
            pub(crate) fn on_loop(&self) -> LoopTally {
                LoopTally(self.0.page())
            }
        }

        /// Counts of one loop.
        #[derive(Debug)]
        pub(crate) struct LoopTally($crate::ledger::Page<N>);

        impl LoopTally {
            #[inline]
            pub(crate) fn add(&mut self, what: Count, n: usize) {
                self.0.add(what as usize, n as u64);
            }
        }
    };
}

pub(crate) use counters;
