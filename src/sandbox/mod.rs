//! The only place where a process starts, and where it ends.
//!
//! Owns: children, their process groups, their last words, and that no group is left behind by a close.
//! Must not know: what a child is for, or which protocol it speaks.
//!
//! Today a child has a process group of its own, an environment that was chosen for it, and nothing
//! else of colibri's. What leaves its group (`setsid`) is not followed, and nothing ends the group if
//! colibri itself is killed; limits and isolation come on top of this.

pub mod browser;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child as Process, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// How much of a child's stderr is kept to explain its end.
pub const STDERR_TAIL_BYTES_MAX: usize = 8 << 10;

/// A child whose stdin has ended may leave by itself for this long …
const LEAVE_GRACE: Duration = Duration::from_millis(500);

/// … and after SIGTERM for this long; then it is killed.
const TERM_GRACE: Duration = Duration::from_millis(500);

/// How often it is looked whether a killed group is gone.
const GONE_POLL: Duration = Duration::from_millis(2);

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment: nothing of colibri's own is added.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; colibri's own working directory if absent.
    pub directory: Option<PathBuf>,
}

/// A running child.
#[derive(Debug)]
pub struct Child {
    /// Its stdin; dropping it asks the child to leave.
    pub stdin: ChildStdin,
    /// Its stdout.
    pub stdout: ChildStdout,
    /// Its end.
    pub life: Life,
}

/// A cheap handle to a child's life. Its task owns the process, and ends the whole group with it.
#[derive(Clone, Debug)]
pub struct Life {
    end: mpsc::Sender<()>,
    ended: watch::Receiver<Option<ExitStatus>>,
    last_words: Arc<Mutex<Tail>>,
    /// The process id, for people.
    pub pid: u32,
}

/// Starts a child in a process group of its own: `npx` forks, and the group is what must die.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub fn start(spec: &Spec) -> std::io::Result<Child> {
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
    let mut process = command.spawn()?;
    let pid = process.id().expect("a child that was just started has not been waited for");
    let piped = "the pipe was asked for above";
    let (stdin, stdout) = (process.stdin.take().expect(piped), process.stdout.take().expect(piped));
    let stderr = process.stderr.take().expect(piped);
    let last_words = Arc::new(Mutex::new(Tail::default()));
    let (end, asked) = mpsc::channel(1);
    let (publish, ended) = watch::channel(None);
    let listening = tokio::spawn(listen(stderr, Arc::clone(&last_words)));
    tokio::spawn(async move {
        let status = live(process, pid, asked).await;
        // What the child said last is read before its end is told; a grandchild that holds the pipe
        // is dead by now, so this ends.
        let _ = timeout(TERM_GRACE, listening).await;
        publish.send_replace(Some(status));
    });
    Ok(Child { stdin, stdout, life: Life { end, ended, last_words, pid } })
}

impl Life {
    /// Waits for the end.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.map(|status| *status);
        status.ok().flatten().unwrap_or_default()
    }

    /// Ends the child and its group, if they have not ended; returns when they have.
    pub async fn end(&self) -> ExitStatus {
        // Full means that somebody asked before.
        let _ = self.end.try_send(());
        self.ended().await
    }

    /// The end of what the child wrote to stderr.
    pub fn last_words(&self) -> String {
        self.last_words.lock().expect("nothing panics while it holds the tail").text()
    }
}

/// Waits for the child to end, or ends it: it may leave by itself, then it is asked, then killed.
/// Whatever of its group is left is killed too, and the child is reaped.
async fn live(mut process: Process, pid: u32, mut asked: mpsc::Receiver<()>) -> ExitStatus {
    let group = Group(i32::try_from(pid).ok().and_then(Pid::from_raw));
    let left = tokio::select! {
        status = process.wait() => Some(status),
        _ = asked.recv() => timeout(LEAVE_GRACE, process.wait()).await.ok(),
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
    status.unwrap_or_default()
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

async fn listen(mut stderr: ChildStderr, last_words: Arc<Mutex<Tail>>) {
    let mut buffer = vec![0; STDERR_TAIL_BYTES_MAX];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        last_words.lock().expect("nothing panics while it holds the tail").push(&buffer[..length]);
    }
}

/// The last [`STDERR_TAIL_BYTES_MAX`] bytes of a stream.
#[derive(Debug, Default)]
struct Tail(VecDeque<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        let fresh = &bytes[bytes.len().saturating_sub(STDERR_TAIL_BYTES_MAX)..];
        let over = (self.0.len() + fresh.len()).saturating_sub(STDERR_TAIL_BYTES_MAX);
        self.0.drain(..over);
        self.0.extend(fresh);
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
