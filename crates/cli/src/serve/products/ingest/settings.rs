//! The settings of ingest.

use std::path::PathBuf;

use tidewire_ingest::Level;
use tidewire_ingest::native::{self, Quota, Rights, Token};

use super::tokens::{TokenEntry, sendable};
use crate::exit::Failure;
use crate::secret::Secret;
use crate::size::Size;

/// The ingest service.
#[derive(Debug, clap::Args)]
pub(super) struct IngestOptions {
    /// Level of ingest producers that do not say: received or durable
    #[arg(long = "ingest-level", id = "ingest_level", value_name = "LEVEL", default_value_t = Level::Durable)]
    pub(super) level: Level,

    /// Messages a second that one ingest connection may send [default: no limit]
    #[arg(long, value_name = "N")]
    pub(super) quota_messages: Option<u64>,

    /// Bytes a second that one ingest connection may send [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub(super) quota_bytes: Option<Size>,

    /// Most messages that an ingest producer may have unacknowledged
    #[arg(long, value_name = "N", default_value_t = native::Settings::default().window_messages)]
    pub(super) window_messages: u32,

    /// Most bytes that an ingest producer may have unacknowledged
    #[arg(long, value_name = "SIZE", default_value_t = Size(native::Settings::default().window_bytes))]
    pub(super) window_bytes: Size,

    /// Readers at once; more are refused
    #[arg(long, value_name = "N", default_value_t = native::Settings::default().readers)]
    pub(super) readers: usize,

    /// Bytes that all ingest readers may hold of what was sent to them and is not taken; then they
    /// wait
    #[arg(long, value_name = "SIZE", default_value_t = Size(native::Settings::default().reader_memory as u64))]
    pub(super) reader_memory: Size,

    /// Largest payload of an ingest message; a larger one is refused [default: --max-payload]
    #[arg(long = "ingest-max-payload", value_name = "SIZE")]
    pub(super) payload_max: Option<Size>,

    /// A file whose one line clients must show as their token, for all streams; the environment's
    /// TIDEWIRE_INGEST_TOKEN does too. More of them, by hash and for some streams, in the configuration
    /// file [default: none, and only this host is served]
    #[arg(long = "ingest-token-file", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// A file whose one line administrators of streams must show as their token; it is good for reading
    /// and writing too [default: none, and tokens of the configuration file with the right admin]
    #[arg(
        long = "ingest-admin-token-file",
        id = "ingest_admin_token_file",
        value_name = "FILE"
    )]
    pub(super) admin_token_file: Option<PathBuf>,

    /// Which streams there are: auto (a producer's hello makes the one that it names) or declared
    /// (only streams that `tidewire stream create` has made)
    #[arg(long = "streams", id = "ingest_streams", value_name = "WHICH", value_enum, default_value_t = StreamsName::Auto)]
    pub(super) streams: StreamsName,

    /// The environment's.
    #[arg(skip)]
    pub(super) token: Option<Secret>,

    /// Secrets that clients must show, if there are any; only in the file.
    #[arg(skip)]
    pub(super) tokens: Vec<TokenEntry>,

    /// The checked settings.
    #[arg(skip)]
    pub(super) plan: native::Settings,
}

/// Whether streams are created by their first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum StreamsName {
    /// Streams that producers name.
    Auto,
    /// Streams that were created.
    Declared,
}

impl IngestOptions {
    /// Takes the token that the environment holds, if no flag says where it is.
    pub(super) fn take_token(&mut self) -> Result<(), Failure> {
        if self.token_file.is_none() {
            self.token = Secret::from_environment("TIDEWIRE_INGEST_TOKEN")?;
        }
        Ok(())
    }

    /// The service's own settings; `payload_max` is what the flag for all services says.
    pub(super) fn settings(&self, payload_max: Option<u32>) -> Result<native::Settings, Failure> {
        let own = native::Settings::default();
        let tokens = self.accepted()?;
        let in_file = self
            .payload_max
            .map(|size| u32::try_from(size.0).unwrap_or(u32::MAX));
        let level = match self.level {
            Level::Received => native::codec::Level::Received,
            Level::Durable => native::codec::Level::Durable,
            Level::None => {
                return Err(Failure::usage(
                    "the level of ingest is received or durable, not none",
                ));
            }
        };
        Ok(native::Settings {
            level,
            payload_max: payload_max.or(in_file).unwrap_or(own.payload_max),
            window_messages: self.window_messages,
            window_bytes: self.window_bytes.0,
            quota: Quota {
                messages: self.quota_messages,
                bytes: self.quota_bytes.map(|size| size.0),
            },
            readers: self.readers,
            reader_memory: self.reader_memory.0 as usize,
            tokens,
            declared: self.streams == StreamsName::Declared,
            ..own
        })
    }

    /// The tokens that are accepted; files are read.
    pub(super) fn accepted(&self) -> Result<Vec<Token>, Failure> {
        let tokens: Result<Vec<Token>, Failure> =
            self.tokens.iter().map(TokenEntry::token).collect();
        let mut tokens = tokens?;
        let secret = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(Secret::from_file(path)?),
            (None, None) => None,
        };
        if let Some(secret) = secret {
            let secret = sendable("--token-file", secret)?;
            tokens.push(Token::new("default", &secret, &[]));
        }
        if let Some(path) = &self.admin_token_file {
            let secret = sendable("--ingest-admin-token-file", Secret::from_file(path)?)?;
            tokens.push(Token {
                rights: Rights {
                    admin: true,
                    ..Rights::default()
                },
                ..Token::new("admin", &secret, &[])
            });
        }
        Ok(tokens)
    }
}
