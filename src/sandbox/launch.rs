//! Starting the helper, and living with it until it ends. The helper is colibri's own program under
//! another name; it makes the sandbox and executes the child in it.
//!
//! The helper is a fresh process (`posix_spawn`), never a fork of this one: a fork would copy the page
//! tables of everything colibri holds, with all its threads stopped.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IoSlice, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child as Process, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::domain::end::End;

use super::Spec;
use super::egress::proxy::{self, Refusals};
use super::groups::Groups;
use super::is_passing;
use super::life::{Ended, LEAVE_GRACE, TERM_GRACE};
use super::policy::{Hosts, Layer, Network, Policy};
use super::tail::Tail;
use super::wire::{DESCRIPTORS_MAX, HELPER_NAME, LEAVE, REPORT_BYTES_MAX, Report, Request};

/// The kernel needs a moment to end a large tree; a helper that takes longer is killed itself.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Where programs are looked for if the child's environment has no `PATH`, as `execvp` does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

static HELPER: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that serves as the helper. The first call counts.
pub(super) fn set_helper(program: PathBuf) {
    let _ = HELPER.set(program);
}

/// The program that serves as the helper, if there is one.
pub(super) fn helper() -> Option<&'static Path> {
    HELPER.get().map(PathBuf::as_path)
}

/// The helper, and the line to it.
pub(super) struct Launched {
    pub(super) process: Process,
    pub(super) line: UnixStream,
    pub(super) way_out: Option<WayOut>,
    groups: Option<Groups>,
}

/// Where the helper will hand out a listening socket, and which hosts may be reached through it.
pub(super) struct WayOut {
    door: UnixStream,
    hosts: Hosts,
}

impl WayOut {
    pub(super) async fn serve(self, refusals: Refusals) {
        proxy::serve(self.door, self.hosts, refusals).await;
    }
}

/// Which standard streams the child gets.
pub(super) struct Streams {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: Stdio,
    pub(super) stderr: Stdio,
}

/// Starts the helper. That the program exists is looked at first, so that the most common mistake is
/// told at once.
#[expect(clippy::disallowed_methods, reason = "this is the door")]
pub(super) fn launch(helper: &Path, spec: &Spec, policy: &Policy, streams: Streams) -> io::Result<Launched> {
    let directory = match &spec.directory {
        Some(directory) => std::path::absolute(directory)?,
        None => std::env::current_dir()?,
    };
    find(spec, &directory)?;
    let (way_out, door) = way_out(policy)?;
    let groups = Groups::make(policy).map_err(|error| {
        let why = format!(
            "its control group cannot be made: {error}; see `colibri doctor` for which it would lie in"
        );
        // In other words only its kind is left of it.
        let kind = if is_passing(&error) { io::ErrorKind::WouldBlock } else { error.kind() };
        io::Error::new(kind, why)
    })?;
    let request = Request {
        program: spec.program.clone(),
        arguments: spec.arguments.clone(),
        environment: spec.environment.clone(),
        directory: directory.into_os_string(),
        policy: policy.clone(),
        has_door: door.is_some(),
        groups: groups.as_ref().map(|groups| groups.name().to_owned()),
    };
    let (ours, theirs) = StdUnixStream::pair()?;
    let others: Vec<&OwnedFd> = door.iter().chain(groups.iter().flat_map(Groups::above)).collect();
    send(&ours, &request, &streams.stdin, &others)?;
    let mut command = Command::new(helper);
    command
        .arg0(HELPER_NAME)
        // For people who look at a list of processes.
        .args(Path::new(&spec.program).file_name())
        .env_clear()
        .stdin(OwnedFd::from(theirs))
        .stdout(streams.stdout)
        .stderr(streams.stderr)
        // Not killed when nobody waits for it any more: its line is cut then, so that it ends the tree and removes
        // the groups, which a killed one would leave.
        .kill_on_drop(false);
    let process = command.spawn()?;
    ours.set_nonblocking(true)?;
    Ok(Launched { process, line: UnixStream::from_std(ours)?, way_out, groups })
}

/// Both ends of a door for the listening socket, if the child needs one.
fn way_out(policy: &Policy) -> io::Result<(Option<WayOut>, Option<OwnedFd>)> {
    let Network::Hosts(hosts) = policy.network() else { return Ok((None, None)) };
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let way_out = WayOut { door: UnixStream::from_std(ours)?, hosts: hosts.clone() };
    Ok((Some(way_out), Some(theirs.into())))
}

/// Sends the request as a file in memory, so that its length never blocks, and the child's stdin: the
/// helper's own is the line. And what else the request says that comes with it.
fn send(line: &StdUnixStream, request: &Request, stdin: &OwnedFd, others: &[&OwnedFd]) -> io::Result<()> {
    let mut file = File::from(memfd_create("colibri-sandbox-request", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(request)?)?;
    file.rewind()?;
    let mut descriptors = vec![file.as_fd(), stdin.as_fd()];
    descriptors.extend(others.iter().map(|other| other.as_fd()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    assert!(fits, "the space was made for all of them");
    sendmsg(line, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Whether the program can be found and executed, as `execvp` will look for it.
fn find(spec: &Spec, directory: &Path) -> io::Result<()> {
    let program = Path::new(&spec.program);
    let executable = |path: &Path| access(path, Access::EXEC_OK).map_err(io::Error::from);
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return executable(&directory.join(program));
    }
    let path = spec.environment.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(DEFAULT_PATH.as_ref(), |(_, value)| value.as_os_str());
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "there is no such program on the PATH"));
    for folder in std::env::split_paths(path) {
        match executable(&directory.join(folder).join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => outcome = Err(error),
            Err(_) => {}
        }
    }
    outcome
}

/// Waits for the end, or brings it about: the child may leave by itself, then it is asked, then the
/// line is cut, and the helper kills everything. When the helper has ended, nothing is left.
pub(super) async fn live(
    launched: Launched,
    mut asked: mpsc::Receiver<End>,
    lacking: watch::Sender<Option<BTreeSet<Layer>>>,
    last_words: Tail,
) -> Ended {
    let Launched { mut process, line, way_out: _, groups } = launched;
    let (reading, mut writing) = line.into_split();
    let mut told = std::pin::pin!(listen(reading, lacking));
    let mut reason = None;
    let mut ended = tokio::select! {
        ended = &mut told => Some(ended),
        why = asked.recv() => {
            reason = Some(why.unwrap_or(End::Asked));
            timeout(LEAVE_GRACE, &mut told).await.ok()
        }
    };
    if ended.is_none() {
        ask(&mut writing).await;
        ended = timeout(TERM_GRACE, &mut told).await.ok();
    }
    // This cuts the line.
    drop(writing);
    let ended = match ended {
        Some(ended) => ended,
        None => timeout(KILL_GRACE, told).await.unwrap_or_default(),
    };
    if timeout(KILL_GRACE, process.wait()).await.is_err() {
        let _ = process.start_kill();
    }
    let helper = process.wait().await.unwrap_or_default();
    if let Some(groups) = groups {
        groups.end().await;
    }
    let mut ended = ended.unwrap_or(Ended { status: helper, end: End::Lost });
    if !ended.end.ran() {
        last_words.push(format!("{}\n", ended.end).as_bytes());
    } else if let Some(reason) = reason {
        ended.end = reason;
    }
    ended
}

async fn ask(line: &mut OwnedWriteHalf) {
    // A helper that is gone needs no asking.
    let _ = line.write_all(&[LEAVE]).await;
}

/// Hears the helper out. Nothing is returned if it went without a word.
async fn listen(line: OwnedReadHalf, lacking: watch::Sender<Option<BTreeSet<Layer>>>) -> Option<Ended> {
    let mut lines = BufReader::new(line.take(REPORT_BYTES_MAX)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Report::Started { lacking: layers }) => drop(lacking.send_replace(Some(layers))),
            Ok(Report::Ended { end, status }) => {
                return Some(Ended { status: ExitStatus::from_raw(status), end });
            }
            // Our own program wrote it; if it did not, its end is told as lost.
            Err(_) => break,
        }
    }
    None
}
