//! The key-value store as a product of the frame.

mod archive;
mod begun;
mod durability;
mod failover;
mod follow;
mod home;
mod log;
mod member;
mod names;
mod served;
mod settings;
mod source;
mod store;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tidewire::Limits;
use tidewire_kv::durable::KvLog;
use tidewire_kv::service::{BinaryService, RespService};
use tidewire_kv::store::Store;
use tidewire_log::{Policy, Settings as LogSettings};

use self::begun::has_taken_over;
pub(crate) use self::log::kv_settings;
use self::log::{from_start, kv_directory};
use self::names::{SERVICE, binary, resp};
use self::served::Kv;
use self::settings::KvOptions;
use crate::exit::Failure;
use crate::secret::Secret;
use crate::serve::listeners::kind::Kind;
use crate::serve::listeners::limits::never_is_0;
use crate::serve::logs::open::Logs;
use crate::serve::product::{Entry, FileKey, Frame, Plan, Product, Serving, read_key};
use crate::serve::running::word::word;
use crate::serve::settings::frame::Settings;
use crate::size::Size;

pub(super) static ENTRY: Entry = Entry {
    keys: &[FileKey {
        name: "kv-password",
        is_secret: true,
        read: read_key::<Secret>,
        example: "\
# The password of the key-value store. Better in a file of its own (kv-password-file), or in TIDEWIRE_KV_PASSWORD.
#kv-password = \"...\"
",
    }],
    defaults: || {
        let segment = Size(KvLog::settings(Policy::Sync).segment_length(0) >> 20 << 20);
        vec![("segment", format!("for kv {segment}, less on a disk of less than 3GiB"))]
    },
    ..Entry::of::<KvOptions>(&SERVICE, "Key-value store")
};

/// Bytes that keys may begin with that show the log.
const LOG_KEYS_MAX: usize = 64;

impl Product for KvOptions {
    fn take_secret(&mut self) -> Result<(), Failure> {
        self.take_password()
    }

    fn take(&mut self, value: Box<dyn Any>) {
        self.password = value.downcast().ok().map(|secret| *secret);
    }

    fn left_out(&self, plan: &Plan) -> Result<Option<(Kind, &'static str)>, Failure> {
        if !self.has_password() || is_binary_open(plan) {
            return Ok(None);
        }
        if plan.endpoints_of(binary()).any(|e| e.by_name) {
            return Err(Failure::usage(
                "kv has a password, and the protocol of kv/binary has none: any client that \
                 reaches kv/binary could read and write everything. Leave kv/binary out, or add \
                 --open=kv/binary to allow it",
            ));
        }
        let said = "kv/binary is not served: kv has a password, and that protocol has none (to \
                    serve it all the same: kv/resp kv/binary --open=kv/binary)";
        Ok(Some((binary(), said)))
    }

    fn unused(&self, flag: &str, plan: &Plan) -> Option<&'static str> {
        KvOptions::unused(
            self,
            flag,
            self.own_log(plan).is_some() && plan.serves(&SERVICE),
        )
    }

    fn check(&self, plan: &Plan) -> Result<(), Failure> {
        if let Some(prefix) = &self.log_keys {
            self.check_log_keys(prefix, plan)?;
        }
        if plan.serves(&SERVICE) {
            self.home(&plan.durable)?;
            self.check_failover(plan)?;
        }
        Ok(())
    }

    fn check_files(&self, plan: &Plan) -> Result<(), Failure> {
        let store = Arc::new(Store::new(self.store(plan)?));
        self.use_acl_file(&RespService::new(store, self.services(plan)?))
    }

    fn limits(&self, kind: Kind, settings: &Settings) -> Limits {
        match kind == binary() {
            true => settings.changed(kind, BinaryService::limits()),
            false => self.resp_limits(settings),
        }
    }

    fn show_limits(&self, kind: Kind, settings: &Settings, shown: &mut Value) {
        if kind == resp() {
            // Not --kv-timeout, which is for silence between commands.
            shown["idle"] = never_is_0(self.bounds(settings).stall).into();
        }
    }

    fn shown(&self, plan: &Plan) -> Value {
        match plan.serves(&SERVICE) {
            true => json!({
                "durability": self.durability().to_string(),
                "password": self.has_password(),
            }),
            false => Value::Null,
        }
    }

    fn asks_for_secret(&self, kind: Kind) -> bool {
        kind == resp() && (self.has_password() || self.acl_file.is_some())
    }

    fn secret_flag(&self, kind: Kind) -> Option<&'static str> {
        (kind == resp()).then_some("--kv-password-file")
    }

    fn secret_files(&self) -> Vec<&Path> {
        let files = [&self.password_file, &self.acl_file];
        files
            .into_iter()
            .filter_map(|file| file.as_deref())
            .collect()
    }

    fn is_harmless(&self) -> bool {
        false
    }

    fn own_log(&self, settings: &Settings) -> Option<(PathBuf, Policy)> {
        let policy = self.durability().policy()?;
        Some((kv_directory(&settings.durable), policy))
    }

    /// A server that follows another server's store, and has not been promoted, has no log.
    fn opens(&self, settings: &Settings) -> Result<Option<(PathBuf, LogSettings)>, Failure> {
        let own = self.own_log(settings);
        let Some((directory, policy)) =
            own.filter(|(directory, _)| !self.may_follow() || has_taken_over(directory))
        else {
            return Ok(None);
        };
        let opened = from_start(&settings.durable, policy, self.has_home())?;
        Ok(Some((directory, opened)))
    }

    fn has_home(&self) -> bool {
        self.replicate.is_some() || self.follow.is_some()
    }

    fn is_large(&self) -> bool {
        true
    }

    fn described(&self, logs: &Logs) -> String {
        let mut text = format!(" durability={}", self.durability());
        if let Some(log) = logs.of(SERVICE.name) {
            text += &format!(" dir={}", word(&log.directory.to_string_lossy()));
        }
        if let Some(home) = &self.follow {
            text += &format!(" follows={}", word(home));
        }
        if self.failover {
            text += &format!(" master-name={}", word(&self.master_name));
        }
        text
    }

    fn serve(&self, frame: &mut Frame<'_>) -> Result<Box<dyn Serving>, Failure> {
        let is_binary_open = is_binary_open(frame.plan);
        Ok(Box::new(Kv::add(self, is_binary_open, frame)?))
    }
}

/// Whether the binary port serves although the store has a password: only if the port was asked for
/// by name and opened, or if all its listeners require certificates.
fn is_binary_open(plan: &Plan) -> bool {
    let mut own = plan.endpoints_of(binary());
    let opened = plan.is_open(binary()) && plan.endpoints_of(binary()).any(|e| e.by_name);
    opened || (plan.serves_kind(binary()) && own.all(|e| e.front.asks_for_certificates()))
}

impl KvOptions {
    /// Whether it follows another server's store if there is none of its own.
    fn may_follow(&self) -> bool {
        self.follow.is_some() || self.failover
    }

    /// Refuses to show the log as keys where clients without the right would read it, or where
    /// there is none.
    fn check_log_keys(&self, prefix: &str, plan: &Plan) -> Result<(), Failure> {
        if !(1..=LOG_KEYS_MAX).contains(&prefix.len()) {
            return Err(Failure::usage(format!(
                "--kv-log-keys: a prefix of 1 to {LOG_KEYS_MAX} bytes, such as log:"
            )));
        }
        if !plan.serves(&SERVICE) {
            // A file that several servers share may contain the setting all the same.
            return Ok(());
        }
        if !plan.need_log() {
            return Err(Failure::usage(
                "--kv-log-keys shows messages of ingest, or of ack with --ack-level, and neither is served here",
            ));
        }
        if self.log_past_tokens {
            return Ok(());
        }
        let without = plan
            .endpoints_of(resp())
            .any(|e| !e.front.asks_for_certificates());
        let what = match () {
            () if plan.guards_messages().is_some() => "tokens",
            () if without && plan.shows_messages_to_certificates() => "certificates",
            () => return Ok(()),
        };
        Err(Failure::usage(format!(
            "ingest requires {what}, and clients of kv have none: with --kv-log-keys any client \
             that may read keys could read all streams. Leave --kv-log-keys out, or add \
             --kv-log-past-tokens to allow it; ACL then says which user reads which stream \
             (%R~{prefix}NAME)"
        )))
    }
}
