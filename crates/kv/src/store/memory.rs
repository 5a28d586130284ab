//! A key with its value.

use super::value::{Value, ValueRef};

/// A key, its value, and when it expires.
#[derive(Debug)]
pub(crate) struct Entry {
    key: Box<[u8]>,
    value: Value,
    deadline_ms: Option<u64>,
    clock: u32,
}

impl Entry {
    pub(crate) fn string(key: &[u8], value: &[u8]) -> Entry {
        Entry::new(key, Value::Str(value.to_vec()))
    }

    pub(crate) fn new(key: &[u8], value: Value) -> Entry {
        Entry {
            key: key.into(),
            value,
            deadline_ms: None,
            clock: 0,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn value(&self) -> ValueRef<'_> {
        self.value.as_ref()
    }

    /// The value if it is not kept inline.
    pub(crate) fn value_mut(&mut self) -> Option<&mut Value> {
        Some(&mut self.value)
    }

    /// Puts a string in the place of the value.
    pub(crate) fn set_string(&mut self, value: &[u8]) {
        match &mut self.value {
            Value::Str(old) => {
                old.clear();
                old.extend_from_slice(value);
            }
            other => *other = Value::Str(value.to_vec()),
        }
    }

    /// Lets `change` work on the bytes if the value is a string.
    pub(crate) fn edit_string<R>(&mut self, change: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        match &mut self.value {
            Value::Str(s) => Some(change(s)),
            _ => None,
        }
    }

    pub(crate) fn into_value(self) -> Value {
        self.value
    }

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    pub(crate) fn set_deadline_ms(&mut self, at: Option<u64>) {
        self.deadline_ms = at;
    }

    pub(crate) fn clock(&self) -> u32 {
        self.clock
    }

    pub(crate) fn set_clock(&mut self, clock: u32) {
        self.clock = clock;
    }

    /// Bytes of memory that it takes without what its value owns elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + 64
    }

    /// Bytes of memory that its value owns elsewhere; an estimate.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.value.as_ref().bytes()
    }
}
