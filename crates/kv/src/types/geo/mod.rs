//! Places on Earth as scores of sorted sets: 26 bits of latitude and of longitude in turn, so that what is
//! near is often next to each other in the order. The numbers are those of Redis, to the last digit.

mod cell;
mod search;

pub use cell::{Cell, letters};
pub use search::{Shape, areas};

/// Metres.
const EARTH_RADIUS: f64 = 6_372_797.560856;
/// The farthest from the equator that can be told.
pub const LATITUDE_MAX: f64 = 85.051_128_78;
/// The farthest from the meridian of Greenwich.
pub const LONGITUDE_MAX: f64 = 180.0;

/// A place in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Degrees east.
    pub longitude: f64,
    /// Degrees north.
    pub latitude: f64,
}

impl Point {
    /// A place that can be told.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Point> {
        let is_told = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_told.then_some(Point {
            longitude,
            latitude,
        })
    }

    /// The place of a score: the middle of a cell of some 60 cm.
    #[must_use]
    pub fn of_score(score: f64) -> Point {
        // Below zero it is none that was made from a place; Redis takes its bits.
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

    /// Metres from one place to another, on a ball.
    #[must_use]
    pub fn distance(self, other: Point) -> f64 {
        let (long, other_long) = (radians(self.longitude), radians(other.longitude));
        let v = ((other_long - long) / 2.0).sin();
        if v == 0.0 {
            return north_distance(self.latitude, other.latitude);
        }
        let (lat, other_lat) = (radians(self.latitude), radians(other.latitude));
        let u = ((other_lat - lat) / 2.0).sin();
        let a = u * u + lat.cos() * other_lat.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }
}

/// Metres between two latitudes.
fn north_distance(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// Not as the standard library does it, which would round in another way.
fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / DEGREE
}

const DEGREE: f64 = std::f64::consts::PI / 180.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Redis's documentation.
    #[test]
    fn places_and_distances_are_those_that_are_documented() {
        let palermo = Point::new(13.361389, 38.115556).unwrap();
        let catania = Point::new(15.087269, 37.502669).unwrap();
        assert_eq!(palermo.score(), 3479099956230698.0);
        let (a, b) = (
            Point::of_score(palermo.score()),
            Point::of_score(catania.score()),
        );
        assert_eq!(format!("{:.4}", a.distance(b)), "166274.1516");
        assert_eq!(letters(a), *b"sqc8b49rny0");
        assert_eq!(letters(b), *b"sqdtr74hyu0");
    }

    #[test]
    fn any_score_is_somewhere() {
        for score in [0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, 4.5e15] {
            let place = Point::of_score(score);
            assert!(Point::new(place.longitude, place.latitude).is_some());
        }
    }

    #[test]
    fn what_is_at_the_end_of_the_map_is_near_itself() {
        for (longitude, latitude) in [(-8.8, LATITUDE_MAX), (LONGITUDE_MAX, 1.0), (180.0, -85.0)] {
            let place = Point::of_score(Point::new(longitude, latitude).unwrap().score());
            let areas = areas(place, Shape::Circle { radius: 36_550.0 });
            let score = place.score() as u64;
            assert!(
                areas.iter().any(|area| area.scores().contains(&score)),
                "{place:?}"
            );
        }
    }

    proptest::proptest! {
        /// Every place within a shape is in one of its areas.
        #[test]
        fn nothing_near_is_missed(
            longitude in -180.0..180.0f64,
            latitude in -85.0..85.0f64,
            radius in 1.0..3_000_000.0f64,
            bearing in 0.0..std::f64::consts::TAU,
            share in 0.0..0.99f64,
        ) {
            let centre = Point { longitude, latitude };
            let north = degrees(radius * share * bearing.cos() / EARTH_RADIUS);
            let there = latitude + north;
            let east = degrees(radius * share * bearing.sin() / EARTH_RADIUS / radians(there).cos());
            if let Some(near) = Point::new(longitude + east, there) {
                let shape = Shape::Circle { radius };
                if shape.distance_within(centre, near).is_some() {
                    let score = near.score() as u64;
                    let found = areas(centre, shape).iter().any(|area| area.scores().contains(&score));
                    // Areas across the ends of the longitudes are left out, as in Redis.
                    proptest::prop_assert!(found || (longitude + east).abs() > 120.0, "{near:?}");
                }
            }
        }
    }
}
