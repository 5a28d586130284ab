//! System calls.

pub(crate) mod sys;
