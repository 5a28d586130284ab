//! Why there is no home.

/// Why there is no home.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// This program was built without the client.
    #[error(
        "this tidewire was built without Kafka: build it with `cargo build --release --features kafka`, which needs \
         make and a C compiler"
    )]
    NotBuilt,
    /// Kafka's client reports an error that may pass.
    #[error("{0}")]
    Client(String),
    /// The data in the home or in the log is unusable; asking again changes nothing.
    #[error("{0}")]
    Broken(String),
}
