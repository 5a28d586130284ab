//! The slices that sends of several slices point at.

/// Slices of one send.
pub(super) const SLICES: usize = 64;
/// The slices that one send of several slices points at. The slices stay in one place until the
/// send completes.
pub(super) struct Gather {
    pub(super) header: libc::msghdr,
    pub(super) slices: [libc::iovec; SLICES],
}

/// Spare ones. Boxed, because the kernel is told their address while they are in use.
#[derive(Default)]
#[expect(clippy::vec_box)]
pub(super) struct Gathers(Vec<Box<Gather>>);

/// Kept for reuse; more are freed.
const KEEP: usize = 64;

impl Gathers {
    pub(super) fn take(&mut self) -> Box<Gather> {
        self.0.pop().unwrap_or_else(|| {
            let none = libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            };
            Box::new(Gather {
                // SAFETY: integers and pointers, for all of which zero is a value.
                header: unsafe { std::mem::zeroed() },
                slices: [none; SLICES],
            })
        })
    }

    pub(super) fn give(&mut self, gather: Box<Gather>) {
        if self.0.len() < KEEP {
            self.0.push(gather);
        }
    }
}
