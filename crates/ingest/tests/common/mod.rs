//! What the tests of the classic protocol share: streams of messages, and the meaning of the
//! acknowledgements that come back.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::Arc;

use tidewire_ingest::Counted;
use tidewire_ingest::classic::{AckForm, AckPolicy, Chain, Classic, ClassicService, Mode, header};

pub(crate) type Server = Arc<ClassicService<Counted>>;

pub(crate) fn server(classic: Classic) -> Server {
    Arc::new(ClassicService::new(classic, Counted::default()))
}

/// The presets, and combinations that no client uses but that are as legal.
pub(crate) fn dialects() -> Vec<Classic> {
    let mut all: Vec<Classic> = Mode::ALL.map(Classic::preset).to_vec();
    for policy in [AckPolicy::EachMessage, AckPolicy::EachChunk] {
        for form in [AckForm::IdOnly, AckForm::IdAndSkipped] {
            all.push(Classic {
                policy,
                form,
                ..Classic::preset(Mode::Sync)
            });
        }
    }
    all
}

/// Messages with these payload sizes, ids counted up from 0.
pub(crate) fn messages(classic: &Classic, sizes: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let mut stream = Vec::new();
    for (id, size) in sizes.into_iter().enumerate() {
        stream.extend_from_slice(&header(
            classic.order,
            (id as u64).to_ne_bytes(),
            size as u32,
        ));
        stream.extend((0..size).map(|i| (id + i) as u8));
    }
    stream
}

/// How many messages `acks` acknowledges, counted up from id 0.
///
/// # Panics
/// If the chain is broken or the last acknowledgement is not whole.
pub(crate) fn acknowledged(classic: &Classic, acks: &[u8]) -> u64 {
    assert_eq!(
        acks.len() % classic.form.len(),
        0,
        "a piece of an acknowledgement"
    );
    if classic.form == AckForm::IdOnly && classic.policy != AckPolicy::EachMessage {
        // Says nothing of earlier ids: only the order can be checked.
        let ids = acks
            .chunks_exact(8)
            .map(|id| u64::from_ne_bytes(id.try_into().unwrap()));
        let ids: Vec<u64> = ids.collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        return ids.last().map_or(0, |last| last + 1);
    }
    let mut chain = Chain::new(classic.form);
    let taken = chain
        .check(acks)
        .unwrap_or_else(|e| panic!("{classic:?}: {e}"));
    assert_eq!(taken, acks.len());
    chain.acknowledged()
}
