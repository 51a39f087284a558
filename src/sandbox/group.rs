//! A child in a process group of its own: all that every Unix has.
//!
//! What leaves the group (`setsid`) is not followed, and nothing ends the group if colibri itself is
//! killed. Used where there is no helper: outside Linux, and in a program that has not called
//! [`enter`](super::enter).

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child as Process, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::domain::end::End;

use super::life::{Ended, LEAVE_GRACE, TERM_GRACE};
use super::{Spec, policy::Policy};

/// How often it is looked whether a killed group is gone.
const GONE_POLL: Duration = Duration::from_millis(2);

/// Starts the program in a group of its own: `npx` forks, and the group is what must die.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(super) fn spawn(spec: &Spec) -> std::io::Result<Process> {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.arguments)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &spec.directory {
        command.current_dir(directory);
    }
    command.spawn()
}

/// A policy cannot be held here; only [`Policy::off`] asks for nothing.
pub(super) fn refuse(policy: &Policy) -> std::io::Result<()> {
    match policy.needs().difference(&policy.allow_degraded).next() {
        None => Ok(()),
        Some(layer) => Err(std::io::Error::new(
            std::io::ErrorKind::Unsupported,
            format!(
                "the sandbox layer `{}` is missing: there is no helper here; {}",
                layer.name(),
                layer.remedy()
            ),
        )),
    }
}

/// Waits for the child to end, or ends it: it may leave by itself, then it is asked, then killed.
/// Whatever of its group is left is killed too, and the child is reaped.
pub(super) async fn live(mut process: Process, mut asked: mpsc::Receiver<End>) -> Ended {
    let group = Group(process.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw));
    let mut reason = None;
    let left = tokio::select! {
        status = process.wait() => Some(status),
        why = asked.recv() => {
            reason = Some(why.unwrap_or(End::Asked));
            timeout(LEAVE_GRACE, process.wait()).await.ok()
        }
    };
    let status = if let Some(status) = left {
        status
    } else {
        group.signal(Signal::TERM);
        let left = timeout(TERM_GRACE, process.wait()).await;
        group.signal(Signal::KILL);
        match left {
            Ok(status) => status,
            Err(_) => process.wait().await,
        }
    };
    group.end().await;
    let status: ExitStatus = status.unwrap_or_default();
    Ended { status, end: reason.unwrap_or_else(|| super::life::end_of(status)) }
}

/// The child and whatever it started. Killed when the child has ended, and also when nobody waits
/// for that any more: a runtime that stops takes the group with it.
struct Group(Option<Pid>);

impl Group {
    /// Kills whatever is left, and waits until it is gone: the kernel takes a moment after the signal.
    async fn end(&self) {
        self.signal(Signal::KILL);
        let is_left = || self.0.is_some_and(|group| test_kill_process_group(group).is_ok());
        let gone = async {
            while is_left() {
                tokio::time::sleep(GONE_POLL).await;
            }
        };
        // Zombies that nobody reaps look alive; they are not waited for longer than this.
        let _ = timeout(TERM_GRACE, gone).await;
    }

    fn signal(&self, signal: Signal) {
        // Nobody left to hear it is what was wanted.
        let _ = self.0.map(|group| kill_process_group(group, signal));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
