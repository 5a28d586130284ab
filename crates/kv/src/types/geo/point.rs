//! A place in degrees, and how far it is to another.

/// Metres.
pub(super) const EARTH_RADIUS: f64 = 6_372_797.560856;
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
pub(super) fn north_distance(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// The standard library's conversion would round differently from Redis.
pub(super) fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

pub(super) fn degrees(radians: f64) -> f64 {
    radians / DEGREE
}

pub(super) const DEGREE: f64 = std::f64::consts::PI / 180.0;
