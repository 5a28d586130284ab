//! The messages that Kafka's client prints beside its answers. A missing answer is only reported as a transport failure or a
//! time-out; a wrong password, for example, is only named in these messages.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer, ProducerContext};

use super::common::config;
use crate::{Settings, Target};

/// How long a cause is looked for.
const WITHIN: Duration = Duration::from_secs(3);
/// Between looks at what the client says.
const STEP: Duration = Duration::from_millis(50);

/// The cause that was said last. Settings, which may be secrets, are in none.
#[derive(Debug, Default)]
struct Said(Mutex<Option<String>>);

impl Said {
    fn cause(&self) -> Option<String> {
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cause.clone()
    }
}

impl ClientContext for Said {
    fn error(&self, error: KafkaError, reason: &str) {
        let is_cause = matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL)
        );
        if is_cause {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Said {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// Adds the cause to the text of an error, if one is found: a new client asks the brokers once more
/// and collects its messages. This is done only if the client authenticates to brokers: otherwise
/// there is nothing more to find.
pub(super) fn with_cause(told: String, target: &Target, settings: &Settings) -> String {
    let is_guarded = |name: &str| {
        name.starts_with("sasl.") || name.starts_with("ssl.") || name == "security.protocol"
    };
    if !settings.client.iter().any(|(name, _)| is_guarded(name)) {
        return told;
    }
    let client = config(target, settings).create_with_context(Said::default());
    let Ok(client): Result<BaseProducer<Said>, _> = client else {
        return told;
    };
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        let answer = client.client().fetch_metadata(None, STEP);
        client.poll(STEP);
        if let Some(cause) = client.context().cause() {
            return format!("{told}: {cause}");
        }
        if answer.is_ok() {
            break;
        }
    }
    told
}
