//! The types of this crate when it is built without Kafka's client: each use reports the missing
//! client.

use std::io::{Read, Write};

use tidewire_replicate::{Bell, Held, Home, Homes, Membership, Share};

use crate::{AtHome, Found, Settings, Target, Unavailable};

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn home(_: &Target, _: &Settings, _: Bell) -> Result<Box<dyn Home>, Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn held(_: &Target, _: Share, _: &Settings) -> Result<Held, Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn homes(_: &Target, _: &Settings, _: Bell) -> Result<Box<dyn Homes>, Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn membership(
    _: &Target,
    _: &Settings,
    _: &str,
    _: Bell,
) -> Result<Box<dyn Membership>, Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn send_snapshot(
    _: &Target,
    _: &Settings,
    _: (u64, u64, u64),
    _: &mut dyn Read,
    _: &mut dyn FnMut() -> bool,
) -> Result<AtHome, Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn fetch_snapshot(
    _: &Target,
    _: &Settings,
    _: &AtHome,
    _: &mut dyn Write,
    _: &mut dyn FnMut() -> bool,
) -> Result<(), Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Never: see [`Unavailable::NotBuilt`].
///
/// # Errors
/// Always.
pub fn forget(_: &Target, _: &Settings, _: u64, _: u64) -> Result<(), Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Members of a group; there are none.
#[derive(Debug)]
pub struct Members(std::convert::Infallible);

impl Members {
    /// Never: see [`Unavailable::NotBuilt`].
    ///
    /// # Errors
    /// Always.
    pub fn join(
        _: &Target,
        _: &Settings,
        _: &str,
        _: std::time::Duration,
    ) -> Result<Members, Unavailable> {
        Err(Unavailable::NotBuilt)
    }

    /// No group exists in this build.
    pub fn stay(&self, _: std::time::Duration) {
        match self.0 {}
    }

    /// No group exists in this build.
    ///
    /// # Errors
    /// None.
    pub fn places(&self) -> Result<std::collections::BTreeSet<String>, Unavailable> {
        match self.0 {}
    }
}

/// The result of waiting a bounded time for a [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Another mark.
    Mark,
    /// No further committed mark is there now.
    End,
    /// No mark has arrived.
    Nothing,
}

/// What reads the marks of a home; there is none.
#[derive(Debug)]
pub struct Watch(std::convert::Infallible);

impl Watch {
    /// Never: see [`Unavailable::NotBuilt`].
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Target, _: &Settings) -> Result<Watch, Unavailable> {
        Err(Unavailable::NotBuilt)
    }

    /// No home exists in this build.
    #[must_use]
    pub fn held(&self) -> &Held {
        match self.0 {}
    }

    /// No home exists in this build.
    ///
    /// # Errors
    /// None.
    pub fn poll(&mut self, _: std::time::Duration) -> Result<Watched, Unavailable> {
        match self.0 {}
    }

    /// No home exists in this build.
    #[must_use]
    pub fn is_answered(&self, _: std::time::Duration) -> bool {
        match self.0 {}
    }
}

/// The result of waiting a bounded time for a [`Reader`].
#[derive(Debug)]
pub enum Polled {
    /// The next record.
    Record(Found),
    /// No further committed record is there now.
    End,
    /// No record has arrived.
    Nothing,
    /// A record cannot be read.
    Unreadable(String),
}

/// The reader of a home; a build without Kafka has none.
#[derive(Debug)]
pub struct Reader(std::convert::Infallible);

impl Reader {
    /// Never: see [`Unavailable::NotBuilt`].
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &Target, _: &Settings, _: Option<u64>) -> Result<Reader, Unavailable> {
        Err(Unavailable::NotBuilt)
    }

    /// No reader exists in this build.
    #[must_use]
    pub fn first(&self) -> u64 {
        match self.0 {}
    }

    /// No reader exists in this build.
    #[must_use]
    pub fn passed(&self) -> Option<(u64, &str)> {
        match self.0 {}
    }

    /// No reader exists in this build.
    ///
    /// # Errors
    /// Never fails, because this value cannot exist.
    pub fn poll(&mut self, _: std::time::Duration) -> Result<Polled, Unavailable> {
        match self.0 {}
    }

    /// Never: see [`Unavailable::NotBuilt`].
    ///
    /// # Errors
    /// Always.
    pub fn find(_: &Target, _: &Settings, _: u64) -> Result<u64, Unavailable> {
        Err(Unavailable::NotBuilt)
    }

    /// No reader exists in this build.
    ///
    /// # Errors
    /// Never fails, because this value cannot exist.
    pub fn end(&self, _: std::time::Duration) -> Result<u64, Unavailable> {
        match self.0 {}
    }

    /// No reader exists in this build.
    #[must_use]
    pub fn ended(&self) -> Option<u64> {
        match self.0 {}
    }

    /// No reader exists in this build.
    ///
    /// # Errors
    /// Never fails, because this value cannot exist.
    pub fn next(&mut self, _: bool) -> Result<Option<Found>, Unavailable> {
        match self.0 {}
    }
}
