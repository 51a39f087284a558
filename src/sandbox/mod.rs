//! The only place where a process starts, and where it ends.
//!
//! Owns: children, what they may touch and use, their last words, and that nothing is left behind.
//! Must not know: what a child is for, or which protocol it speaks; configuration.
//!
//! ```text
//! colibri ──posix_spawn──▶ helper ──fork──▶ init ──fork──▶ the program and all it starts
//!    └───────── line ─────────┴──────────────┘
//! ```
//!
//! The helper is this program under another name (`helper/`). It makes the namespaces and starts the
//! init, which covers files, executes the program, watches its tree, and kills and reaps it. The line
//! between colibri and the init is the lifeline: when either end is gone, however it went, the tree is
//! killed. Layers are data (`policy.rs`); one that is missing refuses the program, unless the policy
//! allows for it.

pub mod browser;
mod egress;
#[cfg(target_os = "linux")]
mod examine;
mod group;
#[cfg(target_os = "linux")]
mod groups;
#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod launch;
mod life;
pub mod policy;
#[cfg(target_os = "linux")]
mod removal;
mod tail;
mod usage;
#[cfg(target_os = "linux")]
mod wire;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
#[cfg(target_os = "linux")]
use tokio_util::task::AbortOnDropHandle;

pub use egress::CONNECTIONS_MAX;
#[cfg(target_os = "linux")]
pub use examine::examine;
#[cfg(target_os = "linux")]
pub use groups::control_groups;
pub use life::Life;
pub use policy::{Layer, Level, Policy};
pub use tail::STDERR_TAIL_BYTES_MAX;
pub use usage::{Usage, name_of, usage};

use tail::Tail;

/// What to start.
#[derive(Clone, PartialEq, Eq)]
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

impl std::fmt::Debug for Spec {
    /// Without the values of its environment, and without its arguments: either may be secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        let Self { program, directory, .. } = self;
        write!(out, "Spec {{ {program:?}, environment: {names:?}, directory: {directory:?} }}")
    }
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

/// To be called first in `main`, before there is a second thread. Where the program was started as the
/// helper it does the helper's work and returns its exit code; elsewhere it makes this program the
/// helper of what it will start.
pub fn enter() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    {
        let mut words = std::env::args_os();
        if words.next().is_some_and(|name| name == wire::HELPER_NAME) {
            return Some(helper::main());
        }
        if words.next().is_some_and(|word| word == wire::CANARY) {
            return Some(helper::canary::main());
        }
        // The very program that runs, even if its file has been replaced since.
        launch::set_helper(OWN_PROGRAM.into());
    }
    #[cfg(not(target_os = "linux"))]
    if let Ok(program) = std::env::current_exe() {
        use_helper(program);
    }
    None
}

/// Names another program as the helper: one whose `main` calls [`enter`]. For a program that cannot do
/// so itself. The first call counts.
pub fn use_helper(program: PathBuf) {
    #[cfg(target_os = "linux")]
    launch::set_helper(program);
    #[cfg(not(target_os = "linux"))]
    let _ = OWN.set(program);
}

/// What a process is, wherever its file lies. In a sandbox: what the helper is.
#[cfg(target_os = "linux")]
const OWN_PROGRAM: &str = "/proc/self/exe";

#[cfg(not(target_os = "linux"))]
static OWN: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();

/// The program whose `main` calls [`enter`], to be started anew as something else that its `main` knows.
pub fn own_program() -> std::io::Result<OsString> {
    #[cfg(target_os = "linux")]
    let own = launch::helper().map(|_| OWN_PROGRAM.into());
    #[cfg(not(target_os = "linux"))]
    let own = OWN.get().map(|program| program.clone().into_os_string());
    own.ok_or_else(|| {
        let why = "colibri's own program is not at hand: `main` has to call sandbox::enter";
        std::io::Error::new(std::io::ErrorKind::Unsupported, why)
    })
}

/// Starts a child with nothing taken from it. It ends with colibri, whatever it does, where there is a
/// helper; elsewhere its process group does.
pub fn start(spec: &Spec) -> std::io::Result<Child> {
    start_under(spec, &Policy::off())
}

/// Starts a child under a policy. What cannot be held is refused: here if it is known at once, else the
/// program never runs and [`Life::how_it_ended`] says why.
pub fn start_under(spec: &Spec, policy: &Policy) -> std::io::Result<Child> {
    #[cfg(target_os = "linux")]
    if let Some(helper) = launch::helper() {
        return start_launched(helper, spec, policy);
    }
    group::refuse(policy)?;
    // Whatever is needed is missing here, and may be.
    start_group(spec, policy.needs())
}

/// Whether something was not started because the machine, or this process, has too much of something right now:
/// files, processes, memory.
pub fn is_passing(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOBUFS];
    // One that was told in other words has only its kind left.
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
        || matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory)
}

const PIPED: &str = "the pipe was asked for";

#[cfg(target_os = "linux")]
fn start_launched(helper: &std::path::Path, spec: &Spec, policy: &Policy) -> std::io::Result<Child> {
    use std::process::Stdio;
    let (stdin, ours) = std::io::pipe()?;
    let streams = launch::Streams { stdin: stdin.into(), stdout: Stdio::piped(), stderr: Stdio::piped() };
    let mut launched = launch::launch(helper, spec, policy, streams)?;
    let ours = std::process::ChildStdin::from(std::os::fd::OwnedFd::from(ours));
    let stdin = ChildStdin::from_std(ours)?;
    let stdout = launched.process.stdout.take().expect(PIPED);
    Ok(Child { stdin, stdout, life: keep(launched) })
}

/// Runs a child on colibri's own standard streams, for `colibri run`.
#[cfg(target_os = "linux")]
pub fn run_under(spec: &Spec, policy: &Policy) -> std::io::Result<Life> {
    use std::os::fd::AsFd;
    use std::process::Stdio;
    let helper = launch::helper().ok_or(std::io::ErrorKind::Unsupported)?;
    let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
    let streams = launch::Streams { stdin, stdout: Stdio::inherit(), stderr: Stdio::inherit() };
    Ok(keep(launch::launch(helper, spec, policy, streams)?))
}

/// Runs a child on colibri's own standard streams: not here.
#[cfg(not(target_os = "linux"))]
pub fn run_under(_: &Spec, _: &Policy) -> std::io::Result<Life> {
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "there is no sandbox on this platform"))
}

/// What control groups hold here: there are none.
#[cfg(not(target_os = "linux"))]
pub fn control_groups() -> String {
    "there are no control groups on this platform".to_owned()
}

/// Whether each layer holds here, and if not, why: none does.
#[cfg(not(target_os = "linux"))]
pub async fn examine() -> Vec<(Layer, Result<(), String>)> {
    Layer::ALL.map(|layer| (layer, Err("there is no sandbox on this platform".to_owned()))).into()
}

/// Gives a launched child a task of its own.
#[cfg(target_os = "linux")]
fn keep(mut launched: launch::Launched) -> Life {
    let pid = launched.process.id().expect("a child that was just started has not been waited for");
    let last_words = Tail::default();
    let (end, asked) = mpsc::channel(1);
    let (publish, ended) = watch::channel(None);
    let (tell, lacking) = watch::channel(None);
    let words = last_words.clone();
    let listening = launched.process.stderr.take().map(|stderr| tokio::spawn(words.listen(stderr)));
    let words = last_words.clone();
    let (refusals, refused) = egress::proxy::Refusals::channel();
    let way_out = launched.way_out.take().map(|way_out| tokio::spawn(way_out.serve(refusals)));
    // Dropped with the task below, and with it every connection.
    let way_out = way_out.map(AbortOnDropHandle::new);
    tokio::spawn(async move {
        let whole = launch::live(launched, asked, tell, words).await;
        drop(way_out);
        // What the child said last is read before its end is told; nobody is left who holds the pipe.
        if let Some(listening) = listening {
            let _ = timeout(life::TERM_GRACE, listening).await;
        }
        publish.send_replace(Some(whole));
    });
    Life { end, ended, lacking, refused: life::Refused::new(refused), last_words, pid }
}

fn start_group(spec: &Spec, without: BTreeSet<Layer>) -> std::io::Result<Child> {
    let mut process = group::spawn(spec)?;
    let pid = process.id().expect("a child that was just started has not been waited for");
    let (stdin, stdout) = (process.stdin.take().expect(PIPED), process.stdout.take().expect(PIPED));
    let stderr = process.stderr.take().expect(PIPED);
    let last_words = Tail::default();
    let (end, asked) = mpsc::channel(1);
    let (publish, ended) = watch::channel(None);
    let lacking = watch::channel(Some(without)).1;
    let listening = tokio::spawn(last_words.clone().listen(stderr));
    tokio::spawn(async move {
        let whole = group::live(process, asked).await;
        // A grandchild that holds the pipe is dead by now, so this ends.
        let _ = timeout(life::TERM_GRACE, listening).await;
        publish.send_replace(Some(whole));
    });
    let refused = life::Refused::new(mpsc::channel(1).1);
    Ok(Child { stdin, stdout, life: Life { end, ended, lacking, refused, last_words, pid } })
}
