//! The course of a run: how much was answered when.

use super::generator::Progress;

/// Points of a course.
const POINTS_MAX: usize = 500;

/// How much was answered by when, in seconds since the load began.
#[derive(Debug, Default)]
pub(super) struct Course(Vec<(f64, u64)>);

impl Course {
    /// Keeps a point; of long runs every second point, then every fourth, and so on.
    pub(super) fn note(&mut self, progress: &Progress<'_>) {
        let points = &mut self.0;
        if points.len() >= POINTS_MAX {
            let mut number = 0u32;
            points.retain(|_| {
                number += 1;
                number.is_multiple_of(2)
            });
        }
        points.push((progress.elapsed.as_secs_f64(), progress.requests));
    }

    pub(super) fn points(self) -> Vec<(f64, u64)> {
        self.0
    }
}
