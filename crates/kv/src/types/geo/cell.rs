//! Cells: the Earth halved in both directions, step by step.

use std::ops::Range;

use super::point::{LATITUDE_MAX, LONGITUDE_MAX, Point};

/// A part of the Earth; there are two to the power of `steps` of them in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Number of the row, from the south.
    row: u32,
    /// Number of the column, from the west.
    column: u32,
    steps: u32,
}

impl Cell {
    /// Steps of the smallest.
    pub const STEPS_MAX: u32 = 26;

    /// The cell that a place is in.
    pub(super) fn of(point: Point, steps: u32) -> Cell {
        Cell::within(point, steps, LATITUDE_MAX)
    }

    /// The cell of a point where the northernmost latitude is another.
    fn within(point: Point, steps: u32, latitude_max: f64) -> Cell {
        let share = |x: f64, most: f64| (x + most) / (most - -most);
        let cells = f64::from(1u32 << steps);
        Cell {
            row: (share(point.latitude, latitude_max) * cells) as u32,
            column: (share(point.longitude, LONGITUDE_MAX) * cells) as u32,
            steps,
        }
    }

    /// The cell of these bits, which are bits of rows and columns in turn from the lowest.
    pub(super) fn of_bits(bits: u64, steps: u32) -> Cell {
        Cell {
            row: every_other(bits),
            column: every_other(bits >> 1),
            steps,
        }
    }

    /// Number of the cell.
    pub(super) fn bits(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }

    /// The cell that is `north` cells to the north and `east` to the east; the map wraps around.
    /// With 0 and 0 the cell stays as it is: a place at the very end of the map is in a cell beyond
    /// the last.
    pub(super) fn moved(self, north: i32, east: i32) -> Cell {
        let mask = (1 << self.steps) - 1;
        let moved = |at: u32, by: i32| match by {
            0 => at,
            by => at.wrapping_add_signed(by) & mask,
        };
        Cell {
            row: moved(self.row, north),
            column: moved(self.column, east),
            ..self
        }
    }

    /// The southern and the northern bound of the cell, in degrees north.
    pub(super) fn latitudes(self) -> (f64, f64) {
        self.span(self.row, LATITUDE_MAX)
    }

    /// West and east edge of the cell, in degrees east.
    pub(super) fn longitudes(self) -> (f64, f64) {
        self.span(self.column, LONGITUDE_MAX)
    }

    fn span(self, at: u32, most: f64) -> (f64, f64) {
        let cells = (1u64 << self.steps) as f64;
        let edge = |at: u64| -most + (at as f64 / cells) * (most - -most);
        (edge(at.into()), edge(u64::from(at) + 1))
    }

    /// The middle of the cell.
    pub(super) fn middle(self) -> Point {
        let middle = |(low, high): (f64, f64), most: f64| ((low + high) / 2.0).clamp(-most, most);
        Point {
            longitude: middle(self.longitudes(), LONGITUDE_MAX),
            latitude: middle(self.latitudes(), LATITUDE_MAX),
        }
    }

    /// The scores of the places in the cell.
    #[must_use]
    pub fn scores(self) -> Range<u64> {
        let shift = 2 * (Cell::STEPS_MAX - self.steps);
        self.bits() << shift..(self.bits() + 1) << shift
    }
}

/// The eleven letters by which a place is known elsewhere; the last tells nothing.
#[must_use]
pub fn letters(point: Point) -> [u8; 11] {
    const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    // Elsewhere latitudes go to the poles.
    let bits = Cell::within(point, Cell::STEPS_MAX, 90.0).bits();
    std::array::from_fn(|at| match at {
        10 => LETTERS[0],
        at => LETTERS[(bits >> (52 - 5 * (at + 1)) & 31) as usize],
    })
}

/// The bits of a number with a zero before each.
fn spread(x: u32) -> u64 {
    const STEPS: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    STEPS
        .iter()
        .fold(x.into(), |x, (shift, mask)| (x | x << shift) & mask)
}

/// Every other bit, from the lowest on.
fn every_other(x: u64) -> u32 {
    const STEPS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    let first = x & 0x5555_5555_5555_5555;
    STEPS
        .iter()
        .fold(first, |x, (shift, mask)| (x | x >> shift) & mask) as u32
}

impl Point {
    /// The place of a score: the middle of a cell of some 60 cm.
    #[must_use]
    pub fn of_score(score: f64) -> Point {
        // A negative score was not made from a place; Redis takes its bits.
        let bits = if score < 0.0 {
            score as i64 as u64
        } else {
            score as u64
        };
        Cell::of_bits(bits, Cell::STEPS_MAX).middle()
    }

    /// The score of a place.
    #[must_use]
    pub fn score(self) -> f64 {
        Cell::of(self, Cell::STEPS_MAX).bits() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn rows_and_columns_come_back(row: u32, column: u32) {
            let cell = Cell { row, column, steps: 26 };
            proptest::prop_assert_eq!(Cell::of_bits(cell.bits(), 26), cell);
        }
    }
}
