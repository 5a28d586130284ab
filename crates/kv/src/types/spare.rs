//! Memory that a vector does not need any more.

/// Gives memory back where a vector has lost most of what it held.
pub(super) fn spare<T>(vector: &mut Vec<T>) {
    /// Elements that are not worth an allocation.
    const FEW: usize = 16;
    if vector.capacity() > FEW && vector.len() < vector.capacity() / 4 {
        vector.shrink_to((vector.len() * 2).max(FEW));
    }
}
