//! Reads the marks as they are committed, for a follower that watches the owner of a home.

use std::fmt;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use tidewire_replicate::{Held, Share};

use super::common::{passes, told};
use super::marks;
use crate::{Settings, Target, Unavailable, format};

/// How long a broker may take for the first answer.
const ANSWER: Duration = Duration::from_secs(5);

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

/// Reads the marks of a home from their beginning, and on.
pub struct Watch {
    consumer: BaseConsumer,
    marks: String,
    partition: i32,
    held: Held,
    is_empty: bool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    /// Begins with the oldest mark that is kept.
    ///
    /// # Errors
    /// The error of Kafka's client: also that the topic is not there yet.
    pub fn open(target: &Target, settings: &Settings) -> Result<Watch, Unavailable> {
        let client = |error: KafkaError| Unavailable::Client(told(&error));
        let consumer = marks::consumer(target, settings, "read_committed").map_err(client)?;
        let (marks, partition) = (target.marks(), target.partition);
        let ends = consumer.fetch_watermarks(&marks, partition, ANSWER);
        let (first, next) = ends.map_err(client)?;
        let mut places = TopicPartitionList::new();
        places
            .add_partition_offset(&marks, partition, Offset::Beginning)
            .and_then(|()| consumer.assign(&places))
            .map_err(client)?;
        Ok(Watch {
            consumer,
            marks,
            partition,
            held: Held::default(),
            is_empty: first >= next,
        })
    }

    /// The marks that were read so far. Positions of cursors and producers are not of use here.
    #[must_use]
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Reads the next mark, if it comes within this time.
    ///
    /// # Errors
    /// The error of Kafka's client; the watch has to be opened again then.
    pub fn poll(&mut self, within: Duration) -> Result<Watched, Unavailable> {
        if std::mem::take(&mut self.is_empty) {
            return Ok(Watched::End);
        }
        match self.consumer.poll(within) {
            None => Ok(Watched::Nothing),
            Some(Ok(message)) => {
                let key = message.key().unwrap_or_default();
                let taken = format::take(key, message.payload(), Share::Whole, &mut self.held);
                taken.map_err(|why| {
                    let (offset, marks) = (message.offset(), &self.marks);
                    Unavailable::Client(format!("offset {offset} of {marks} is {why}"))
                })?;
                format::note_proof(key, message.offset(), &mut self.held);
                Ok(Watched::Mark)
            }
            Some(Err(KafkaError::PartitionEOF(_))) => Ok(Watched::End),
            Some(Err(error)) if passes(&error) => Ok(Watched::Nothing),
            Some(Err(error)) => Err(Unavailable::Client(told(&error))),
        }
    }

    /// Whether a broker says within this time where the marks end: what was committed before comes with the next
    /// [polls](Watch::poll), unless it was read.
    #[must_use]
    pub fn is_answered(&self, within: Duration) -> bool {
        let ends = self
            .consumer
            .fetch_watermarks(&self.marks, self.partition, within);
        ends.is_ok()
    }
}
