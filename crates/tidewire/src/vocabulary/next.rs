//! When a protocol wants its next call of `received`.

/// When `received` wants to be called again.
///
/// ```
/// use tidewire::{Next, on_input, sim::chunking::collect};
///
/// // Answers each four bytes with a dot.
/// let dots = on_input(|input, link| loop {
///     if link.full() {
///         return Next::AfterDrain;
///     }
///     if input.len() < 4 {
///         return if input.is_empty() { Next::More } else { Next::AtLeast(4) };
///     }
///     input.consume(4);
///     link.write(b".");
/// });
/// assert_eq!(collect(dots, b"abcdefghij", &[1, 2, 3], true).output, b"..");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again when any new bytes have arrived.
    More,
    /// Call again when this many unconsumed bytes are there together, so that a large frame is not
    /// parsed again for every chunk. At most [`Limits::carried`](crate::Limits::carried). A frame
    /// beyond 4 GiB is offered in pieces: its bytes after these are offered as they come.
    AtLeast(usize),
    /// Call again when output has drained, with the unconsumed bytes, even if there are none, and without waiting for
    /// new ones. Until then the protocol is not told of the peer's end, so a reply that is continued in this way is
    /// complete before it.
    AfterDrain,
    /// Call again after [`Link::resume`](crate::Link::resume); as
    /// [`Link::pause`](crate::Link::pause) and [`Next::More`].
    Paused,
}
