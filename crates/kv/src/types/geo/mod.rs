//! Places on Earth as scores of sorted sets: 26 bits of latitude and of longitude in turn, so that
//! what is near is often next to each other in the order. The numbers equal Redis's, to the last
//! digit.

mod cell;
mod point;
mod search;

pub use cell::{Cell, letters};
pub use point::{LATITUDE_MAX, LONGITUDE_MAX, Point};
pub use search::{Shape, areas};

#[cfg(test)]
mod tests {
    use super::point::{EARTH_RADIUS, degrees, radians};
    use super::*;

    /// The examples of Redis's documentation.
    #[test]
    fn places_and_distances_are_as_documented() {
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
