//! How large a collection may be in its small form.

/// Most elements (fields of a hash) of a packed collection, and bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Members, or fields.
    pub entries: usize,
    /// Bytes of the longest member, field or value.
    pub length: usize,
}

/// For sets, which have two small forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFit {
    /// Most members of a set of integers.
    pub integers: usize,
    /// Limits of other sets.
    pub packed: Fit,
}

/// For lists: the number that Redis knows as `list-max-listpack-size`. A value from 1 up is the most
/// elements of a listpack, which then has at most 8 KiB; -1 to -5 stand for 4 to 64 KiB. 0 is as 1, and
/// below -5 as -5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFit(pub i32);

/// Bytes of elements that no packed collection goes beyond, whatever the settings say: it is copied as a
/// whole when it grows, and written down at once.
pub(super) const BYTES_MAX: usize = 128 << 10;

impl Fit {
    /// Redis's for hashes.
    pub const HASH: Fit = Fit {
        entries: 512,
        length: 64,
    };
    /// Redis's for sorted sets.
    pub const ZSET: Fit = Fit {
        entries: 128,
        length: 64,
    };
}

impl SetFit {
    /// Redis's.
    pub const USUAL: SetFit = SetFit {
        integers: 512,
        packed: Fit {
            entries: 128,
            length: 64,
        },
    };
}

impl ListFit {
    /// Redis's: 8 KiB.
    pub const USUAL: ListFit = ListFit(-2);

    /// Most bytes of a listpack.
    fn bytes(self) -> usize {
        match self.0 {
            -1 => 4 << 10,
            -3 => 16 << 10,
            -4 => 32 << 10,
            ..=-5 => 64 << 10,
            // 8 KiB is as far as elements are counted only.
            _ => 8 << 10,
        }
    }

    /// Most elements of a listpack.
    fn elements(self) -> usize {
        if self.0 < 0 {
            usize::MAX
        } else {
            self.0.max(1) as usize
        }
    }

    /// Whether a list of these has the name of a listpack.
    pub(super) fn holds(self, elements: usize, bytes: usize) -> bool {
        elements <= self.elements() && bytes <= self.bytes()
    }

    /// Whether a collection that has left the listpack form is small enough to return to it.
    pub(super) fn holds_twice(self, elements: usize, bytes: usize) -> bool {
        elements <= self.elements() / 2 && bytes <= self.bytes() / 2
    }
}
