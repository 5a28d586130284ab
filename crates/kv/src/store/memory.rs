//! A key and its value in one allocation: the one module with unsafe code.
//!
//! An [`Entry`] is one tagged pointer. The entry owns these bytes, without gaps:
//!
//! ```text
//! flags:u8 | clock:u24 | lengths of key and value: u8 u16, or u32 u32 | deadline:u64 if any
//!     | key | value
//! ```
//!
//! where the value is a string of up to [`INLINE_MAX`] bytes or a pointer to a boxed [`Value`]. Seven
//! bytes of header let a 17-byte key with a 64-byte value fit the allocator's 96-byte block.
//! The pointer's upper 16 bits, which user space leaves zero, hold 15 bits of the key's hash and
//! whether there is a deadline: most lookups of other keys never touch the bytes.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use super::value::{Value, ValueRef};
use crate::allocator::block;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the tags of entries need 64-bit pointers");

/// Longest string that is kept beside its key; bytes.
const INLINE_MAX: usize = 4096;

const LONG: u8 = 1;
const DEADLINE: u8 = 2;
const BOXED: u8 = 4;
/// In which of two kinds of epochs it was last written down or changed.
const EPOCH: u8 = 8;

/// The string was changed in place, or is a number that was computed as text: see [`Form`].
const EDITED: u8 = 16;
const TEXT: u8 = 32;

/// How a string came to be, until another takes its place: OBJECT ENCODING tells it, as Redis keeps such strings otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The value's bytes as a client or a command gave them.
    Given,
    /// The string was changed in place.
    Edited,
    /// The text of a number that is no integer to Redis.
    Text,
}

/// The address within a tagged pointer.
const ADDR: usize = (1 << 48) - 1;
/// The bit of a tagged pointer that says that there is a deadline.
const EXPIRES: usize = 1 << 48;
const TAG_SHIFT: u32 = 49;

/// A key, its value, and its deadline.
pub(crate) struct Entry(NonNull<u8>);

// SAFETY: an entry owns its bytes and its boxed value alone, and values may be sent.
unsafe impl Send for Entry {}

/// The meaning of an entry's first bytes.
#[derive(Clone, Copy)]
struct Head {
    flags: u8,
    /// Where the deadline would be, behind the lengths.
    len: usize,
    key_len: usize,
    value_len: usize,
}

impl Head {
    fn new(flags: u8, key_len: usize, value_len: usize) -> Head {
        let long = key_len > usize::from(u8::MAX) || value_len > usize::from(u16::MAX);
        let flags = flags & !LONG | if long { LONG } else { 0 };
        Head {
            flags,
            len: if long { 12 } else { 7 },
            key_len,
            value_len,
        }
    }

    fn key_at(self) -> usize {
        self.len + if self.flags & DEADLINE != 0 { 8 } else { 0 }
    }

    fn value_at(self) -> usize {
        self.key_at() + self.key_len
    }

    fn size(self) -> usize {
        self.value_at() + self.value_len
    }

    fn is_boxed(self) -> bool {
        self.flags & BOXED != 0
    }

    fn layout(self) -> Layout {
        Layout::from_size_align(self.size(), 1).expect("arguments are bounded far below this")
    }
}

impl Entry {
    pub(crate) fn string(key: &[u8], value: &[u8]) -> Entry {
        if value.len() > INLINE_MAX {
            return Entry::new(key, Value::Str(value.to_vec()));
        }
        let entry = Entry::with_room(Head::new(0, key.len(), value.len()), key, 0);
        entry.write(entry.head().value_at(), value);
        entry
    }

    /// Like [`string`](Entry::string), but a long value is moved and not copied.
    pub(crate) fn string_of(key: &[u8], value: Vec<u8>) -> Entry {
        if value.len() > INLINE_MAX {
            Entry::new(key, Value::Str(value))
        } else {
            Entry::string(key, &value)
        }
    }

    pub(crate) fn new(key: &[u8], value: Value) -> Entry {
        let head = Head::new(BOXED, key.len(), size_of::<*mut Value>());
        let entry = Entry::with_room(head, key, 0);
        entry.set_boxed(Box::into_raw(Box::new(value)));
        entry
    }

    /// An entry whose deadline and value are still to be written; its tag is zero.
    fn with_room(head: Head, key: &[u8], clock: u32) -> Entry {
        assert!(
            u32::try_from(key.len()).is_ok(),
            "arguments are bounded far below this"
        );
        let layout = head.layout();
        // SAFETY: a header makes the size more than zero.
        let bytes = unsafe { alloc(layout) };
        let Some(bytes) = NonNull::new(bytes) else {
            handle_alloc_error(layout)
        };
        assert_eq!(bytes.addr().get() & !ADDR, 0, "user space is 48 bits wide");
        let mut entry = Entry(bytes);
        let mut text = [0; 12];
        text[0] = head.flags;
        text[1..4].copy_from_slice(&clock.to_le_bytes()[..3]);
        if head.flags & LONG != 0 {
            text[4..8].copy_from_slice(&(head.key_len as u32).to_le_bytes());
            text[8..12].copy_from_slice(&(head.value_len as u32).to_le_bytes());
        } else {
            text[4] = head.key_len as u8;
            text[5..7].copy_from_slice(&(head.value_len as u16).to_le_bytes());
        }
        // SAFETY: the allocation is fresh and has `head.size()` bytes; these parts are within it.
        unsafe {
            bytes.copy_from_nonoverlapping(NonNull::from(&text[..head.len]).cast(), head.len);
            // These bytes are written before they are read; zeros keep them initialised anyway.
            bytes.add(head.len).write_bytes(0, head.key_at() - head.len);
            bytes.add(head.value_at()).write_bytes(0, head.value_len);
        }
        entry.write(head.key_at(), key);
        entry.mark(0, head.flags & DEADLINE != 0);
        entry
    }

    #[inline]
    fn bytes_ptr(&self) -> NonNull<u8> {
        let addr = |tagged: NonZeroUsize| {
            NonZeroUsize::new(tagged.get() & ADDR).expect("an allocation is not at zero")
        };
        self.0.map_addr(addr)
    }

    fn mark(&mut self, tag: u16, expires: bool) {
        let expires = if expires { EXPIRES } else { 0 };
        let high = usize::from(tag) << TAG_SHIFT | expires;
        self.0 = self.bytes_ptr().map_addr(|addr| addr | high);
    }

    /// The part of the hash of the key that [`set_tag`](Entry::set_tag) was given.
    #[inline]
    pub(crate) fn tag(&self) -> u16 {
        (self.0.addr().get() >> TAG_SHIFT) as u16
    }

    /// Keeps 15 bits of the hash of the key.
    #[inline]
    pub(crate) fn set_tag(&mut self, tag: u16) {
        self.mark(tag & 0x7fff, self.expires());
    }

    /// Whether there is a deadline; touches none of the bytes.
    #[inline]
    pub(crate) fn expires(&self) -> bool {
        self.0.addr().get() & EXPIRES != 0
    }

    #[inline]
    fn head(&self) -> Head {
        let bytes = self.bytes_ptr();
        // SAFETY: every entry has the bytes of a header of the length that its flags say, and no
        // code writes to them while `self` is borrowed.
        unsafe {
            let flags = bytes.read();
            let (len, key_len, value_len) = if flags & LONG != 0 {
                (
                    12,
                    bytes.add(4).cast::<u32>().read_unaligned() as usize,
                    bytes.add(8).cast::<u32>().read_unaligned() as usize,
                )
            } else {
                (
                    7,
                    bytes.add(4).read().into(),
                    bytes.add(5).cast::<u16>().read_unaligned().into(),
                )
            };
            Head {
                flags,
                len,
                key_len,
                value_len,
            }
        }
    }

    #[inline]
    fn slice(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.head().size());
        // SAFETY: the callers name parts of the allocation, which is initialised, and which no code
        // writes to while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.bytes_ptr().add(at).as_ptr(), len) }
    }

    /// Writes into the bytes. Call this only on an entry that is not shared: a fresh one, or one
    /// that the caller has borrowed mutably.
    #[inline]
    fn write(&self, at: usize, what: &[u8]) {
        debug_assert!(at + what.len() <= self.head().size());
        // SAFETY: callers name parts of the allocation and hold it exclusively; `what` is not a
        // part of it, because then it would borrow the entry.
        unsafe {
            let to = self.bytes_ptr().add(at).as_ptr();
            std::ptr::copy_nonoverlapping(what.as_ptr(), to, what.len());
        }
    }

    /// The address of the pointer to the boxed value; meaningful only if the value is boxed.
    fn boxed_at(&self) -> *mut *mut Value {
        // SAFETY: a boxed entry ends with the eight bytes of the pointer.
        unsafe { self.bytes_ptr().add(self.head().value_at()).as_ptr().cast() }
    }

    fn set_boxed(&self, value: *mut Value) {
        // SAFETY: called on fresh entries with room for a pointer, which need not be aligned.
        unsafe { self.boxed_at().write_unaligned(value) }
    }

    fn boxed(&self) -> Option<NonNull<Value>> {
        if !self.head().is_boxed() {
            return None;
        }
        // SAFETY: a boxed entry ends with a pointer that `set_boxed` has written.
        NonNull::new(unsafe { self.boxed_at().read_unaligned() })
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let head = self.head();
        self.slice(head.key_at(), head.key_len)
    }

    #[inline]
    pub(crate) fn value(&self) -> ValueRef<'_> {
        match self.boxed() {
            // SAFETY: the box is the entry's own, and lent for as long as the entry.
            Some(value) => unsafe { value.as_ref() }.as_ref(),
            None => {
                let head = self.head();
                ValueRef::Str(self.slice(head.value_at(), head.value_len))
            }
        }
    }

    /// The value if it is not kept inline.
    pub(crate) fn value_mut(&mut self) -> Option<&mut Value> {
        // SAFETY: the box is the entry's own, and the entry is borrowed mutably as long.
        self.boxed().map(|mut value| unsafe { value.as_mut() })
    }

    /// Puts a string in the place of the value.
    pub(crate) fn set_string(&mut self, value: &[u8]) {
        let head = self.head();
        if !head.is_boxed() && head.value_len == value.len() {
            if head.flags & (EDITED | TEXT) != 0 {
                self.set_form(Form::Given);
            }
            return self.write(head.value_at(), value);
        }
        if let Some(Value::Str(old)) = self.value_mut()
            && value.len() > INLINE_MAX
        {
            if old.capacity() >= value.len() && block(old.capacity()) == block(value.len()) {
                old.clear();
                return old.extend_from_slice(value);
            }
            // The old buffer is freed first. A buffer that grows by itself would double, and one that is reused would
            // stay as large as the largest value ever was.
            *old = Vec::new();
            *old = value.to_vec();
            return;
        }
        self.replace(Entry::string(self.key(), value));
    }

    /// Replaces this entry by another entry of the same key; clock, deadline and tag stay.
    fn replace(&mut self, mut new: Entry) {
        new.set_clock(self.clock());
        new.set_epoch(self.epoch());
        new.set_deadline_ms(self.deadline_ms());
        new.set_tag(self.tag());
        *self = new;
    }

    /// Lets `change` work on the bytes if the value is a string.
    pub(crate) fn edit_string<R>(&mut self, change: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        if self.head().is_boxed() {
            let result = self.value_mut()?.string_mut().map(change);
            if result.is_some() {
                self.set_form(Form::Edited);
            }
            return result;
        }
        let ValueRef::Str(s) = self.value() else {
            return None;
        };
        let mut copy = s.to_vec();
        let result = change(&mut copy);
        if copy.len() <= INLINE_MAX {
            self.set_string(&copy);
        } else {
            self.replace(Entry::string_of(self.key(), copy));
        }
        self.set_form(Form::Edited);
        Some(result)
    }

    pub(crate) fn into_value(self) -> Value {
        match self.boxed() {
            None => self.value().to_value(),
            Some(value) => {
                let head = self.head();
                let bytes = self.bytes_ptr();
                std::mem::forget(self);
                // SAFETY: the entry is forgotten, so that both are owned here: the allocation,
                // made with this layout, and the box.
                unsafe {
                    dealloc(bytes.as_ptr(), head.layout());
                    *Box::from_raw(value.as_ptr())
                }
            }
        }
    }

    /// Milliseconds since 1970.
    #[inline]
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        if !self.expires() {
            return None;
        }
        let bytes = self.slice(self.head().len, 8).try_into().expect("eight");
        Some(u64::from_le_bytes(bytes))
    }

    pub(crate) fn set_deadline_ms(&mut self, at: Option<u64>) {
        let head = self.head();
        if at.is_some() != self.expires() {
            let flags = head.flags ^ DEADLINE;
            let new = Head::new(flags, head.key_len, head.value_len);
            let mut moved = Entry::with_room(new, self.key(), self.clock());
            match self.boxed() {
                Some(value) => {
                    moved.set_boxed(value.as_ptr());
                    // The old entry does not own the box any more. SAFETY: the pointer is
                    // overwritten with null, which drops as nothing.
                    unsafe { self.boxed_at().write_unaligned(std::ptr::null_mut()) };
                }
                None => moved.write(new.value_at(), self.slice(head.value_at(), head.value_len)),
            }
            moved.set_tag(self.tag());
            *self = moved;
        }
        if let Some(at) = at {
            self.write(self.head().len, &at.to_le_bytes());
        }
    }

    /// The last value given to [`set_epoch`](Entry::set_epoch); false at first.
    #[inline]
    pub(crate) fn epoch(&self) -> bool {
        self.slice(0, 1)[0] & EPOCH != 0
    }

    #[inline]
    pub(crate) fn set_epoch(&mut self, epoch: bool) {
        let flags = self.slice(0, 1)[0] & !EPOCH;
        self.write(0, &[flags | if epoch { EPOCH } else { 0 }]);
    }

    /// The form of the entry's string: how it was made.
    pub(crate) fn form(&self) -> Form {
        match self.slice(0, 1)[0] {
            flags if flags & EDITED != 0 => Form::Edited,
            flags if flags & TEXT != 0 => Form::Text,
            _ => Form::Given,
        }
    }

    pub(crate) fn set_form(&mut self, form: Form) {
        let flags = self.slice(0, 1)[0] & !(EDITED | TEXT);
        let form = match form {
            Form::Given => 0,
            Form::Edited => EDITED,
            Form::Text => TEXT,
        };
        self.write(0, &[flags | form]);
    }

    #[inline]
    pub(crate) fn clock(&self) -> u32 {
        let c = self.slice(1, 3);
        u32::from_le_bytes([c[0], c[1], c[2], 0])
    }

    #[inline]
    pub(crate) fn set_clock(&mut self, clock: u32) {
        self.write(1, &clock.to_le_bytes()[..3]);
    }

    /// Bytes of memory that the entry takes, as the allocator rounds them, without the memory that
    /// its value owns elsewhere.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        block(self.head().size())
    }

    /// Bytes of memory that the entry's value owns elsewhere.
    #[inline]
    pub(crate) fn owned_bytes(&self) -> usize {
        if self.head().is_boxed() {
            block(size_of::<Value>()) + self.boxed_bytes()
        } else {
            0
        }
    }

    /// Bytes of memory of the boxed value, without its box; none where there is none.
    fn boxed_bytes(&self) -> usize {
        // SAFETY: the box is the entry's own, and lent for as long as this call.
        let value = self.boxed().map(|value| unsafe { value.as_ref() });
        value.map_or(0, Value::bytes)
    }

    /// Begins to bring the bytes into the cache.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.bytes_ptr().as_ptr());
        // An entry of usual size has two lines.
        prefetch(self.bytes_ptr().as_ptr().wrapping_add(64));
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (head, bytes) = (self.head(), self.bytes_ptr());
        if let Some(value) = self.boxed() {
            // SAFETY: the box is the entry's own.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
        // SAFETY: allocated with this layout, and not used any more.
        unsafe { dealloc(bytes.as_ptr(), head.layout()) };
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?})", String::from_utf8_lossy(self.key()))
    }
}

/// Begins to bring a line into the cache; any address will do.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that a program could notice, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Allocator;

    fn string(entry: &Entry) -> &[u8] {
        match entry.value() {
            ValueRef::Str(s) => s,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn strings_of_all_sizes() {
        for len in [0, 1, 64, 255, 256, INLINE_MAX, INLINE_MAX + 1, 70_000] {
            for key_len in [0, 17, 255, 256] {
                let (key, value) = (vec![b'k'; key_len], vec![b'v'; len]);
                let mut entry = Entry::string(&key, &value);
                entry.set_tag(0x7abc);
                entry.set_clock(0x0012_3456);
                for at in [Some(1), Some(u64::MAX), None, Some(7)] {
                    entry.set_deadline_ms(at);
                    assert_eq!((entry.key(), string(&entry)), (&key[..], &value[..]));
                    assert_eq!(entry.deadline_ms(), at);
                    assert_eq!((entry.tag(), entry.clock()), (0x7abc, 0x0012_3456));
                }
                entry.set_string(b"other");
                assert_eq!(entry.deadline_ms(), Some(7));
                assert_eq!(entry.edit_string(|s| s.extend_from_slice(&value)), Some(()));
                assert_eq!(string(&entry).len(), 5 + len);
                assert_eq!((entry.tag(), entry.clock()), (0x7abc, 0x0012_3456));
            }
        }
    }

    #[test]
    fn long_strings_are_not_copied() {
        let long = vec![b'x'; 10_000];
        let place = long.as_ptr();
        let entry = Entry::string_of(b"key", long);
        assert_eq!(string(&entry).as_ptr(), place);
        // A string that grows long while it is edited stays where it grew.
        let mut entry = Entry::string(b"key", b"short");
        let place = entry.edit_string(|s| {
            s.resize(10_000, 0);
            s.as_ptr()
        });
        assert_eq!(Some(string(&entry).as_ptr()), place);
        assert_eq!(entry.key(), b"key");
    }

    #[test]
    fn boxed_values_move_with_their_entry() {
        let mut entry = Entry::new(b"key", Value::Str(b"abc".to_vec()));
        entry.set_deadline_ms(Some(5));
        entry.set_deadline_ms(None);
        assert_eq!(string(&entry), b"abc");
        assert!(matches!(entry.into_value(), Value::Str(s) if s == b"abc"));
        let mut entry = Entry::new(b"key", Value::Str(vec![1; INLINE_MAX * 2]));
        entry.set_string(&vec![2; INLINE_MAX * 3]);
        assert_eq!(string(&entry).len(), INLINE_MAX * 3);
        entry.set_string(b"x");
        assert!(entry.value_mut().is_none());
    }

    #[test]
    fn a_usual_entry_fits_its_block() {
        assert_eq!(Entry::string(&[0; 17], &[0; 64]).head().size(), 88);
        assert_eq!(Allocator::Glibc.block(88, 1), 96);
        assert_eq!(Allocator::Mimalloc.block(88, 1), 96);
        assert_eq!(size_of::<Option<Entry>>(), 8);
    }
}
