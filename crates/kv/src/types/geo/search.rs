//! Finds the cells that contain everything within a shape: nine at most, the cell of its centre and
//! its neighbours.

use super::cell::Cell;
use super::point::{EARTH_RADIUS, Point, degrees, north_distance, radians};

/// The area of a search around a centre; metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// A circle.
    Circle {
        /// The distance from the centre.
        radius: f64,
    },
    /// A rectangle around the centre: half of each length lies on either side.
    Box {
        /// The width from west to east.
        width: f64,
        /// The height from south to north.
        height: f64,
    },
}

impl Shape {
    /// Metres from the centre to a place that is within.
    #[must_use]
    pub fn distance_within(self, centre: Point, place: Point) -> Option<f64> {
        match self {
            Shape::Circle { radius } => {
                let distance = centre.distance(place);
                (distance <= radius).then_some(distance)
            }
            Shape::Box { width, height } => {
                if north_distance(place.latitude, centre.latitude) > height / 2.0 {
                    return None;
                }
                let beside = Point {
                    longitude: centre.longitude,
                    latitude: place.latitude,
                };
                if place.distance(beside) > width / 2.0 {
                    return None;
                }
                Some(centre.distance(place))
            }
        }
    }

    /// The farthest from the centre; metres.
    fn reach(self) -> f64 {
        match self {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                let (x, y) = (width / 2.0, height / 2.0);
                (x * x + y * y).sqrt()
            }
        }
    }
}

/// From where to where a shape goes; degrees.
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Bounds {
    fn new(centre: Point, shape: Shape) -> Bounds {
        let (x, y) = match shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Point {
            longitude,
            latitude,
        } = centre;
        let up = degrees(y / EARTH_RADIUS);
        // The shape is widest where it is nearest to a pole.
        let edge = if latitude < 0.0 {
            latitude - up
        } else {
            latitude + up
        };
        let aside = degrees(x / EARTH_RADIUS / radians(edge).cos());
        Bounds {
            west: longitude - aside,
            east: longitude + aside,
            south: latitude - up,
            north: latitude + up,
        }
    }
}

/// Steps of cells of which nine have all that is so near.
fn steps(mut reach: f64, latitude: f64) -> u32 {
    /// Metres from the equator to the end of the map.
    const MAP: f64 = 20_037_726.37;
    if reach == 0.0 {
        return Cell::STEPS_MAX;
    }
    let mut steps = 1;
    while reach < MAP {
        reach *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Cells are narrower there.
    if latitude.abs() > 66.0 {
        steps -= 1;
    }
    if latitude.abs() > 80.0 {
        steps -= 1;
    }
    steps.clamp(1, Cell::STEPS_MAX as i32) as u32
}

/// Steps to the north and to the east, from the centre's cell to itself and its neighbours. A search visits the cells
/// in this order; without a sort, its results come in this order, too.
const AROUND: [(i32, i32); 9] = [
    (0, 0),
    (1, 0),
    (-1, 0),
    (0, 1),
    (0, -1),
    (1, 1),
    (1, -1),
    (-1, 1),
    (-1, -1),
];

/// The cells that have all places within a shape, and others.
#[must_use]
pub fn areas(centre: Point, shape: Shape) -> Vec<Cell> {
    let bounds = Bounds::new(centre, shape);
    let steps = steps(shape.reach(), centre.latitude);
    let mut cell = Cell::of(centre, steps);
    // Near the edge of a cell its neighbours may not go far enough.
    let is_short = cell.moved(1, 0).latitudes().1 < bounds.north
        || cell.moved(-1, 0).latitudes().0 > bounds.south
        || cell.moved(0, 1).longitudes().1 < bounds.east
        || cell.moved(0, -1).longitudes().0 > bounds.west;
    if steps > 1 && is_short {
        cell = Cell::of(centre, steps - 1);
    }
    let steps = if is_short { (steps - 1).max(1) } else { steps };
    let ((south, north), (west, east)) = (cell.latitudes(), cell.longitudes());
    let is_useless = |(up, right): (i32, i32)| {
        steps >= 2
            && (up < 0 && south < bounds.south
                || up > 0 && north > bounds.north
                || right < 0 && west < bounds.west
                || right > 0 && east > bounds.east)
    };
    let mut areas = Vec::with_capacity(AROUND.len());
    for (up, right) in AROUND {
        let area = cell.moved(up, right);
        // If there are few cells, some are neighbours in two ways.
        if !is_useless((up, right)) && areas.last() != Some(&area) {
            areas.push(area);
        }
    }
    areas
}
