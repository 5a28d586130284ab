//! SIGUSR2: starts a successor from the program's file, which may have been replaced, with the same arguments.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use tidewire_handover::Control;

/// How this process was started.
pub(crate) struct Upgrade {
    program: Option<PathBuf>,
    args: Vec<OsString>,
}

impl Upgrade {
    /// To be called early: later the file may be another one.
    pub(crate) fn remember() -> Upgrade {
        Upgrade {
            program: env::current_exe().ok(),
            args: env::args_os().skip(1).collect(),
        }
    }

    /// Starts the successor. The successor asks for the listeners like any other.
    pub(crate) fn begin(&self, control: Option<&Control>) {
        let Some(control) = control else {
            tracing::error!(
                "SIGUSR2: without a control socket no successor can take over; see --control"
            );
            return;
        };
        let Some(program) = &self.program else {
            tracing::error!(
                "SIGUSR2: the path of this program is unknown, so no successor was started"
            );
            return;
        };
        let mut args = self.args.clone();
        if !args.iter().any(|arg| arg == "--takeover") {
            args.push("--takeover".into());
        }
        args.push("--control".into());
        args.push(control.path().into());
        let mut command = Command::new(program);
        command.args(&args);
        // These variables describe this process, not the successor.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        match command.spawn() {
            Ok(mut child) => {
                tracing::info!(pid = child.id(), program = %program.display(), "SIGUSR2: a successor starts");
                // The thread is not joined: it collects the exit status of a child that ends before
                // this process.
                std::thread::spawn(move || {
                    if let Ok(status) = child.wait() {
                        tracing::warn!(%status, "the successor that SIGUSR2 has started has ended");
                    }
                });
            }
            Err(error) => {
                tracing::error!(%error, program = %program.display(), "SIGUSR2: no successor starts")
            }
        }
    }
}
