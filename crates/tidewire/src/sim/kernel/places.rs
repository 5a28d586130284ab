//! The tables of rings: sockets that need no descriptor.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::kernel::queues::Target;
use crate::sim::kernel::Kernel;
use crate::sim::kernel::files::FileId;

impl Kernel {
    pub(super) fn make_table(&mut self, ring: usize, places: u32) {
        self.record("table", ring as RawFd, places.into());
        self.rings[ring].table = vec![None; places as usize];
    }

    fn place(&mut self, ring: usize, place: u32) -> Option<&mut Option<FileId>> {
        self.rings[ring].table.get_mut(place as usize)
    }

    pub(super) fn put(&mut self, ring: usize, place: u32, number: RawFd) -> Result<(), Errno> {
        let file = self.files.id(number).ok_or(Errno::BADF)?;
        self.fails("put", number, self.faults.setting_fails_one_in)?;
        self.record("put", number, place.into());
        let Some(found) = self.place(ring, place) else {
            return Err(Errno::INVAL);
        };
        if found.replace(file).is_some() {
            self.wrong(format!("place {place} is taken"));
        }
        self.files.hold(file);
        Ok(())
    }

    pub(super) fn take_out(&mut self, ring: usize, place: u32) {
        self.record("take_out", ring as RawFd, place.into());
        let Some(file) = self.place(ring, place).and_then(Option::take) else {
            return self.wrong(format!("nothing is at place {place}"));
        };
        self.closed_under_operations(file, place as RawFd);
        self.release(file);
    }

    /// The socket or file that an operation works on.
    pub(super) fn target(&mut self, ring: usize, target: Target) -> Option<FileId> {
        match target {
            Target::Number(number) => self.files.id(number),
            Target::Place(place) => self.place(ring, place).and_then(|found| *found),
        }
    }

    /// Makes a descriptor for what stands in a table.
    pub(super) fn install(&mut self, ring: usize, place: u32) -> Result<RawFd, Errno> {
        let file = self.target(ring, Target::Place(place)).ok_or(Errno::BADF)?;
        let fails = self.faults.accept_fails_one_in;
        if self.chance(fails) {
            return Err(Errno::NFILE);
        }
        if self.files.open_numbers().count() >= self.faults.descriptors_max {
            return Err(Errno::MFILE);
        }
        self.files.hold(file);
        Ok(self.files.name(file))
    }
}
