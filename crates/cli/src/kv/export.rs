//! `tidewire kv export`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidewire_kv::dumps::to_dump;
use tidewire_rdb::Encoder;

use crate::exit::Failure;

/// The text below the options.
const EXAMPLES: &str = "\
Examples:
  tidewire kv export --data /var/lib/tidewire dump.rdb
  tidewire log backup --data /var/lib/tidewire /backup/today    # of a server that runs
  tidewire kv export --data /backup/today dump.rdb

The dump is of version 9, which Redis 5 and later and Valkey load; with streams or libraries of functions in it, Redis 7 and later. Expired keys are left out.";

/// What to write where.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of the server's data, or a backup of it
    #[arg(long = "data", value_name = "DIR", default_value = crate::serve::DIRECTORY)]
    data: PathBuf,
    /// Goes on where a repair of the log has marked what is lost, as `serve --kv-accept-loss` does, and where the end of the
    /// log is gone up to the snapshot: the dump has what is left
    #[arg(long)]
    accept_loss: bool,
    /// The file to make; it must not be there
    to: PathBuf,
}

/// Bytes of the dump that are gathered before they are written.
const ENOUGH: usize = 1 << 20;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let to = &args.to;
    let failed =
        |error: io::Error| Failure::failed(format!("{} was not made: {error}", to.display()));
    if to.exists() {
        return Err(Failure::failed(format!(
            "{} exists already: choose another name, or remove it",
            to.display()
        )));
    }
    // Opening would make one: an empty dump of a directory that was misspelt is no dump.
    if !super::is_there(&args.data) {
        let found = match crate::data::parts(&args.data).is_empty() {
            true => "it has no log",
            false => "its log holds messages",
        };
        return Err(Failure::failed(format!(
            "there is no key-value store in {}: {found}; --data must name the data directory of a server with \
             durable keys, or `kv` in it",
            args.data.display()
        )));
    }
    let opened = super::open(&args.data, args.accept_loss)?;
    if opened.found.lost > 0 {
        say!(
            "lost        {} records of the log, in damage: the dump lacks their changes",
            opened.found.lost
        );
    }
    if opened.found.end_is_lost {
        say!("lost        the end of the log, with all changes behind the snapshot");
    }
    // The suffix stands behind the whole name, so that the partial file is no other program's file.
    let mut partial = to.clone().into_os_string();
    partial.push(".partial");
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&partial)
        .map_err(failed)?;
    let written = write(&opened.store, file).and_then(|counts| {
        fs::rename(&partial, to)?;
        let above = std::path::absolute(to)?;
        File::open(above.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        Ok(counts)
    });
    let (keys, bytes) = written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        failed(error)
    })?;
    opened.log.close();
    say!(
        "exported    {keys} keys, {bytes} bytes, to {}",
        to.display()
    );
    Ok(())
}

/// How many keys and bytes were written.
fn write(store: &tidewire_kv::store::Store, mut file: File) -> io::Result<(u64, u64)> {
    let now_ms = super::now_ms();
    let mut bytes = Vec::with_capacity(2 * ENOUGH);
    let mut encoder = Encoder::new(&mut bytes);
    let (mut keys, mut written) = (0, 0);
    let mut result = Ok(());
    for library in store.libraries() {
        encoder.library(&library.code, &mut bytes);
    }
    for db in 0..store.databases() {
        store.each_key(db, |key, deadline_ms, value| {
            if result.is_err() || deadline_ms.is_some_and(|at| at <= now_ms) {
                return;
            }
            encoder.key(db.into(), key, deadline_ms, &to_dump(value), &mut bytes);
            keys += 1;
            if bytes.len() >= ENOUGH {
                written += bytes.len() as u64;
                result = file.write_all(&bytes);
                bytes.clear();
            }
        });
    }
    result?;
    encoder.end(&mut bytes);
    written += bytes.len() as u64;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok((keys, written))
}
