//! The data structures behind the values of keys: plain data, no locks, no clock.

pub mod glob;
mod list;
pub mod score;

pub use list::{End, List};

macro_rules! stub {
    ($($name:ident)*) => {$(
        /// To come.
        #[derive(Clone, Debug, Default)]
        pub struct $name;

        impl $name {
            /// Whether it has no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                true
            }
            /// The name of its encoding, as OBJECT ENCODING answers.
            #[must_use]
            pub fn encoding(&self) -> &'static str {
                "listpack"
            }
            /// Bytes of memory, as an estimate; takes the same time whatever the length.
            #[must_use]
            pub fn bytes(&self) -> usize {
                0
            }
        }
    )*};
}

stub!(Hash Set ZSet);
