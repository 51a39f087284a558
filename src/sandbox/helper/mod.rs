//! The helper: colibri's own program under another name, with one thread, between colibri and a child.
//!
//! Owns: making the sandbox, and outliving it. It reads its request from the line, makes the namespaces, starts
//! the init and watches over it; the init (`init.rs`) does the rest. It never returns to the rest of the program.
//! Must not know: tokio, configuration, logging. There is nobody to log to.

pub(super) mod canary;
mod clock;
mod door;
mod filter;
mod groups;
mod init;
mod ipc;
mod limits;
mod links;
mod owner;
mod program;
mod sys;
mod tree;
mod view;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getppid, kill_process, set_dumpable_behavior,
    set_parent_process_death_signal, setsid, waitpid,
};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};
use tokio::time::Instant;

use crate::domain::end::End;

use super::is_passing;
use super::policy::{Layer, Network};
use super::wire::{DESCRIPTORS_MAX, Report, Request};
use groups::Groups;
use sys::Fork;
pub(super) use view::counts_processes_in_namespaces;

/// What went wrong before the program ran.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Refusal {
    /// A layer that must hold could not be had.
    Layer(Layer, String),
    /// Anything else.
    Failed {
        /// What the machine said.
        cause: String,
        /// Whether it may go better a little later.
        is_passing: bool,
    },
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Failed { cause: error.to_string(), is_passing: is_passing(&error) }
    }
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl Refusal {
    /// A layer that could not be had. What lacked something only now lacks no layer.
    fn of_layer(layer: Layer, error: io::Error) -> Self {
        if is_passing(&error) { error.into() } else { Self::Layer(layer, error.to_string()) }
    }

    fn end(self) -> End {
        match self {
            Self::Layer(layer, cause) => {
                End::Policy { layer: layer.name().to_owned(), cause, remedy: layer.remedy() }
            }
            Self::Failed { cause, is_passing } => End::NotStarted { cause, is_passing },
        }
    }
}

/// The layers, one by one: which are wanted, which hold, which are missing and may be.
#[derive(Debug, Default)]
struct Layers {
    holding: Vec<Layer>,
    lacking: Vec<Layer>,
    /// The user that the program runs as, if it is not colibri's own.
    own_user: Option<u32>,
    /// The control groups that the program enters, if there are any.
    groups: Option<Groups>,
}

impl Layers {
    /// Puts a layer on, if it is needed. One that fails refuses the program, unless it may be missing.
    fn put_on(
        &mut self,
        layer: Layer,
        request: &Request,
        make: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), Refusal> {
        if !request.policy.needs().contains(&layer) {
            return Ok(());
        }
        let pretended = request.policy.pretend_missing.contains(&layer);
        let outcome =
            if pretended { Err(io::Error::other("it was pretended to be missing")) } else { make() };
        match outcome {
            Ok(()) => self.holding.push(layer),
            Err(_) if request.policy.allow_degraded.contains(&layer) => self.lacking.push(layer),
            Err(error) => return Err(Refusal::of_layer(layer, error)),
        }
        Ok(())
    }

    fn hold(&self, layer: Layer) -> bool {
        self.holding.contains(&layer)
    }
}

/// The child's standard streams, kept apart from the helper's own: one that held the child's stdout
/// open would hide that the child had closed it.
struct Streams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

/// The helper's whole life. Its exit code says nothing: what happened is told over the line.
pub(super) fn main() -> ExitCode {
    let Ok(mut received) = receive() else { return ExitCode::FAILURE };
    let line = received.line;
    match serve(&mut received.request, received.streams, &line, (received.door, received.groups)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            tell_end(&line, refusal.end(), NEVER_RAN);
            ExitCode::FAILURE
        }
    }
}

/// The status told for a program that never ran: exit code 126, as shells have it.
const NEVER_RAN: i32 = 126 << 8;

fn tell(line: &UnixStream, report: &Report) {
    let mut text = serde_json::to_vec(report).expect("reports always serialise");
    text.push(b'\n');
    // Nobody left to hear it: then nobody needs to.
    let _ = (&mut &*line).write_all(&text);
}

fn tell_end(line: &UnixStream, end: End, status: i32) {
    tell(line, &Report::Ended { end, status });
}

/// What the helper starts with.
struct Received {
    request: Request,
    streams: Streams,
    line: UnixStream,
    /// Where a listening socket is handed out, if one is wanted.
    door: Option<OwnedFd>,
    groups: Option<Groups>,
}

/// Takes the line from stdin and the request from the line, and leaves nothing on 0, 1 and 2.
fn receive() -> io::Result<Received> {
    sys::close_the_rest_on_exec()?;
    let line = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (stdout, stderr) = {
        #[expect(clippy::disallowed_methods, reason = "it is handed to the child, not written to")]
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        (stdout, io::stderr().as_fd().try_clone_to_owned()?)
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&line, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(io::ErrorKind::InvalidData);
    let (request, stdin) = (next()?, next()?);
    let mut text = Vec::new();
    File::from(request).read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    let door = if request.has_door { Some(next()?) } else { None };
    let name = request.groups.clone();
    let groups = name.map(|name| Groups { name, above: descriptors.collect(), is_born_inside: false });
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(Received { request, streams: Streams { stdin, stdout, stderr }, line, door, groups })
}

/// Makes the namespaces, starts the init in them, and outlives it.
fn serve(
    request: &mut Request,
    streams: Streams,
    line: &UnixStream,
    (door, groups): (Option<OwnedFd>, Option<Groups>),
) -> Result<(), Refusal> {
    // A session of its own: no terminal, and signals to colibri's group stop here.
    let _ = setsid();
    rustix::process::chdir("/")?;
    let mut layers = Layers { own_user: owner::of(request), groups, ..Layers::default() };
    request.environment.extend(make_namespaces(request, &mut layers, door)?);
    let request = &*request;
    // Nobody in the sandbox may read or stop what guards it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // If the init is killed where there is no namespace, what it kept comes to this process.
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own))?;
    // Whoever has stopped this process has not stopped it for good.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let children = sys::children_as_descriptor()?;
    let (theirs, ours) = io::pipe()?;
    match sys::fork()? {
        Fork::Child => {
            drop((ours, children));
            set_parent_process_death_signal(Some(Signal::CONT))?;
            let code = init::main(request, streams, line, &OwnedFd::from(theirs), layers);
            // Stopped, it would let colibri wait. In a namespace it is out of sight, and out of everybody's reach.
            if getppid() == Some(own) {
                let _ = kill_process(own, Signal::CONT);
            }
            // Without unwinding or destructors: the parent's copies are not this process's to tidy.
            leave(code)
        }
        Fork::Parent(init) => {
            drop((streams, theirs));
            outlive(init, line, &children, &layers);
            drop(ours);
            Ok(())
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the init has no caller to return to")]
fn leave(code: i32) -> ! {
    std::process::exit(code)
}

/// Longer than an init takes that ends the largest tree, and shorter than colibri waits for it.
const END_GRACE: Duration = Duration::from_secs(4);

/// Waits for the init, and kills what is left where nothing else does.
fn outlive(init: Pid, line: &UnixStream, children: &OwnedFd, layers: &Layers) {
    if !ends_by_itself(init, line, children) {
        let _ = kill_process(init, Signal::KILL);
        // In a namespace everybody goes with it, and before that nobody has the number in this view that they have
        // here. Elsewhere it is one of those who are killed below: who traces it could let this wait for ever.
        while layers.hold(Layer::Namespace)
            && waitpid(Some(init), WaitOptions::empty()).is_err_and(|error| error == Errno::INTR)
        {}
    }
    let groups = layers.groups.as_ref();
    groups.map(Groups::kill);
    tree::kill_descendants();
    groups.map(Groups::remove);
}

/// Waits for the init. False if it watches no more: it has been stopped, or colibri is gone and it does not end. Where
/// there is no namespace whatever it keeps may stop it.
fn ends_by_itself(init: Pid, line: &UnixStream, children: &OwnedFd) -> bool {
    let mut cut_at: Option<Instant> = None;
    loop {
        let mut drained = [0; 128];
        while rustix::io::read(children, &mut drained).is_ok_and(|count| count > 0) {}
        match waitpid(Some(init), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => return !status.stopped(),
            Ok(None) | Err(Errno::INTR) => {}
            // There is no such process any more.
            Err(_) => return true,
        }
        let left = cut_at.map(|cut_at| END_GRACE.saturating_sub(cut_at.elapsed()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let left = left.map(|left| Timespec::try_from(left).expect("it is short"));
        // The letters on the line are the init's to read; here only its end matters, and only once.
        let line = if cut_at.is_some() { None } else { Some(PollFd::new(line, PollFlags::RDHUP)) };
        let mut all: Vec<PollFd<'_>> =
            [PollFd::new(children, PollFlags::IN)].into_iter().chain(line).collect();
        match poll(&mut all, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        if all.get(1).is_some_and(|line| !line.revents().is_empty()) {
            cut_at = Some(Instant::now());
        }
    }
}

/// Leaves colibri's namespaces. Returns what the program must know of its network.
fn make_namespaces(
    request: &Request,
    layers: &mut Layers,
    door: Option<OwnedFd>,
) -> Result<Vec<(OsString, OsString)>, Refusal> {
    let mut user = User::default();
    let own_user = layers.own_user;
    layers.put_on(Layer::Namespace, request, || {
        if request.policy.allow_degraded.contains(&Layer::Namespace) {
            try_out(request, own_user)?;
        }
        user.leave(PROCESSES_AND_FILES)
    })?;
    if !layers.hold(Layer::Namespace) {
        // Without a view nothing can be shown as its own.
        layers.own_user = None;
    }
    let mut variables = Vec::new();
    layers.put_on(Layer::Network, request, || {
        user.leave(UnshareFlags::NEWNET)?;
        if let (Some(door), Network::Hosts(hosts)) = (door, request.policy.network()) {
            variables = door::open(&door, hosts)?;
        }
        Ok(())
    })?;
    Ok(variables)
}

const PROCESSES_AND_FILES: UnshareFlags =
    UnshareFlags::NEWPID.union(UnshareFlags::NEWIPC).union(UnshareFlags::NEWNS);

/// Whether the namespaces and the view can be made, by making them in a process that ends. Who has
/// entered a process namespace in which the view cannot be made has no way back.
fn try_out(request: &Request, own_user: Option<u32>) -> io::Result<()> {
    let wait = |child: Pid| match waitpid(Some(child), WaitOptions::empty()) {
        Ok(Some((_, status))) if status.exit_status() == Some(0) => Ok(()),
        _ => Err(io::Error::other("namespaces were tried out, and do not work")),
    };
    let attempt = || match sys::fork()? {
        Fork::Child => leave(i32::from(view::make(request, own_user).is_err())),
        Fork::Parent(init) => wait(init),
    };
    match sys::fork()? {
        Fork::Child => {
            leave(i32::from(User::default().leave(PROCESSES_AND_FILES).and_then(|()| attempt()).is_err()))
        }
        Fork::Parent(child) => wait(child),
    }
}

/// Who leaves: who has the right directly, anybody else through a user namespace, which is entered once.
#[derive(Default)]
struct User {
    has_entered: bool,
}

impl User {
    fn leave(&mut self, flags: UnshareFlags) -> io::Result<()> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let may = capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN);
        if !may && !self.has_entered {
            sys::unshare(UnshareFlags::NEWUSER)?;
            self.has_entered = true;
            map_user(uid.as_raw(), gid.as_raw())?;
        }
        sys::unshare(flags)
    }
}

/// Inside, everybody is who they were outside, and nobody else is there.
fn map_user(uid: u32, gid: u32) -> io::Result<()> {
    let own = Path::new("/proc/self");
    std::fs::write(own.join("setgroups"), "deny")?;
    std::fs::write(own.join("uid_map"), format!("{uid} {uid} 1"))?;
    std::fs::write(own.join("gid_map"), format!("{gid} {gid} 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PR-9: a process that cannot be made now may be made later, and then no layer is missing either.
    #[test]
    fn a_busy_machine_refuses_for_now() {
        let is_passing = |refusal: Refusal| match refusal.end() {
            End::NotStarted { is_passing, .. } => Some(is_passing),
            _ => None,
        };
        for errno in [Errno::AGAIN, Errno::NOMEM, Errno::NFILE] {
            assert_eq!(is_passing(errno.into()), Some(true), "{errno}");
            assert_eq!(is_passing(Refusal::of_layer(Layer::Namespace, errno.into())), Some(true), "{errno}");
        }
        assert_eq!(is_passing(Errno::NOENT.into()), Some(false));
        assert_eq!(is_passing(Refusal::of_layer(Layer::Namespace, Errno::PERM.into())), None);
    }
}
