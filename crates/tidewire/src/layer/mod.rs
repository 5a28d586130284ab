//! Protocols inside protocols: what layers such as TLS are built from. See [`Inner`] and [`Layered`].

mod around;
mod inner;
mod layered;
#[cfg(test)]
pub(crate) mod tests;

pub use around::{Around, Layer, LayeredConn, Wrap};
pub use inner::Inner;
pub use layered::Layered;
