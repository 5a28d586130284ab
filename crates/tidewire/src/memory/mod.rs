//! Memory: from the kernel, for input, for output, for the records of connections; and how much of it.

pub(crate) mod budget;
pub(crate) mod buffer;
pub(crate) mod kept;
pub(crate) mod output;
pub(crate) mod pages;
pub(crate) mod table;
