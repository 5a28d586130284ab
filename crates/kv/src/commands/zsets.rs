//! Commands of one group.

use super::Spec;

pub(crate) const SPECS: &[Spec] = &[];
