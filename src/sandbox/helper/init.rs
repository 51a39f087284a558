//! The init: the first process of a sandbox. It covers files, executes the program, watches its tree,
//! reaps the dead, and ends everything when the program ends, breaks a limit, or loses colibri.
//!
//! In a process namespace its own end is the end of all: the kernel kills whoever is left in it, and
//! nobody inside can stop or kill it. Elsewhere it adopts whoever is orphaned, and kills by walking.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use tokio::time::Instant;

use crate::domain::end::End;

use super::super::policy::{Layer, Level};
use super::super::wire::{LEAVE, Report, Request};
use super::clock::Clock;
use super::groups::Groups;
use super::ipc::Held;
use super::sys::{self, Fork};
use super::tree::Usage;
use super::{Layers, Refusal, Streams, ipc, leave, limits, program, tell, tell_end, tree, view};

/// The init's whole life; returns when everything it kept may go, or has gone.
pub(super) fn main(
    request: &Request,
    streams: Streams,
    line: &UnixStream,
    guardian: &OwnedFd,
    layers: Layers,
) -> i32 {
    let (end, status) = match Init::start(request, streams, line, guardian, layers) {
        Ok(mut init) => init.watch(),
        Err(refusal) => (refusal.end(), super::NEVER_RAN),
    };
    // In a namespace this finds nobody who would not be killed anyway, but who is gone has let go of
    // every pipe and file before the end is told.
    tree::kill_descendants();
    tell_end(line, end, status);
    0
}

struct Init<'a> {
    request: &'a Request,
    line: &'a UnixStream,
    /// Readable when the helper is gone.
    guardian: &'a OwnedFd,
    /// Readable when a child has ended.
    children: OwnedFd,
    /// What the program's process says before the program runs; closed by its execution.
    before: Option<io::PipeReader>,
    said_before: Vec<u8>,
    server: Pid,
    layers: Layers,
    /// The kernel bounds the number of processes too, so that the watch need not hurry for it.
    is_bounded: bool,
    clock: Clock,
    begun: Instant,
    look_at: Instant,
}

impl<'a> Init<'a> {
    fn start(
        request: &'a Request,
        streams: Streams,
        line: &'a UnixStream,
        guardian: &'a OwnedFd,
        mut layers: Layers,
    ) -> Result<Self, Refusal> {
        let children = sys::children_as_descriptor()?;
        let mut is_bounded = false;
        if layers.hold(Layer::Namespace) {
            // Beside the guardian's pipe: this works even if the init is busy. It is armed by a process
            // of one thread, so that it means the process.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            is_bounded = view::make(request, layers.own_user)
                .map_err(|error| Refusal::of_layer(Layer::Namespace, error))?;
        } else {
            // Here a dead init could kill nobody; it hears of the helper's end by the pipe, and kills.
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        }
        is_bounded |= layers.groups.as_ref().is_some_and(Groups::bound_processes);
        let (before, mouth) = io::pipe()?;
        let cradle = layers.groups.as_ref().and_then(Groups::cradle);
        let (fork, is_born_inside) = sys::fork_into(cradle.as_ref())?;
        let server = match fork {
            Fork::Child => {
                drop(before);
                layers.groups.iter_mut().for_each(|groups| groups.is_born_inside = is_born_inside);
                program::main(request, &streams, mouth, layers);
                leave(1)
            }
            Fork::Parent(server) => {
                // Who else held them would hide that the program has closed them.
                drop(streams);
                server
            }
        };
        let begun = Instant::now();
        Ok(Self {
            request,
            line,
            guardian,
            children,
            before: Some(before),
            said_before: Vec::new(),
            server,
            layers,
            is_bounded,
            clock: Clock::default(),
            begun,
            look_at: begun,
        })
    }

    /// Waits and looks until there is a reason to end everything.
    fn watch(&mut self) -> (End, i32) {
        const KILLED: i32 = 9;
        loop {
            let [line, guardian, children, before] = match self.wait() {
                Ok(ready) => ready,
                Err(error) => return (Refusal::from(error).end(), KILLED),
            };
            if guardian {
                return (End::Lost, KILLED);
            }
            if line && !self.obey() {
                return (End::Lifeline, KILLED);
            }
            if before && let Err(refusal) = self.hear() {
                return (refusal.end(), super::NEVER_RAN);
            }
            if children && let Some(status) = self.reap() {
                // What it said last may still be in the pipe.
                while self.before.is_some() {
                    if let Err(refusal) = self.hear() {
                        return (refusal.end(), super::NEVER_RAN);
                    }
                }
                return (self.end_of(status), status);
            }
            if let Some(end) = self.look() {
                return (end, KILLED);
            }
        }
    }

    /// Waits until something happens or it is time to look.
    fn wait(&self) -> io::Result<[bool; 4]> {
        let before = self.before.as_ref().map_or(self.guardian.as_fd(), AsFd::as_fd);
        let mut all = [
            PollFd::new(self.line, PollFlags::IN),
            PollFd::new(self.guardian, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::from_borrowed_fd(before, PollFlags::IN),
        ];
        let wall = self.request.policy.limits.wall.map(|wall| self.begun + wall);
        let watched = self.is_watched().then_some(self.look_at);
        let until = wall.into_iter().chain(watched).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).expect("limits are not that long"));
        match poll(&mut all, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = all.map(|one| !one.revents().is_empty());
        ready[3] &= self.before.is_some();
        Ok(ready)
    }

    fn is_watched(&self) -> bool {
        self.request.policy.level != Level::Off && limits::need_watching(&self.request.policy.limits)
    }

    /// Does what colibri says. False if colibri is gone, or wants no more.
    fn obey(&self) -> bool {
        let mut letters = [0; 16];
        let count = (&mut &*self.line).read(&mut letters).unwrap_or(0);
        if letters[..count].contains(&LEAVE) {
            let _ = kill_process_group(self.server, Signal::TERM);
        }
        count > 0
    }

    /// Hears what the program's process says before the program runs. Silence at the end means that
    /// it runs.
    fn hear(&mut self) -> Result<(), Refusal> {
        let Some(before) = &mut self.before else { return Ok(()) };
        let mut buffer = [0; 4096];
        let count = before.read(&mut buffer)?;
        self.said_before.extend_from_slice(&buffer[..count]);
        if count > 0 {
            return Ok(());
        }
        self.before = None;
        let mut lacking: BTreeSet<Layer> = self.layers.lacking.iter().copied().collect();
        for said in self.said_before.split(|byte| *byte == b'\n').filter(|said| !said.is_empty()) {
            match serde_json::from_slice(said).map_err(io::Error::from)? {
                program::Said::Lacking(layer) => drop(lacking.insert(layer)),
                program::Said::Refused(refusal) => return Err(refusal),
            }
        }
        tell(self.line, &Report::Started { lacking });
        Ok(())
    }

    /// Takes in the dead. The program's own status is the sandbox's.
    fn reap(&self) -> Option<i32> {
        let mut drained = [0; 128];
        while rustix::io::read(&self.children, &mut drained).is_ok_and(|count| count > 0) {}
        let mut ended = None;
        tree::reap(|pid, status| {
            if pid == self.server {
                ended = Some(status);
            }
        });
        ended
    }

    /// What the program's status means, given the limits it ran under.
    fn end_of(&self, status: i32) -> End {
        let cpu = self.request.policy.limits.cpu;
        let used_up = || cpu.is_some_and(|most| self.clock.used_by_the_dead() >= most);
        match ExitStatus::from_raw(status).signal() {
            // Also if it was somebody it had started: what it did about that is no end of its own.
            _ if self.is_out_of_memory() => End::Memory,
            Some(libc::SIGXCPU) if cpu.is_some() => End::Cpu,
            Some(libc::SIGKILL) if used_up() => End::Cpu,
            Some(libc::SIGXFSZ) => End::FileSize,
            Some(signal) => End::Crashed { signal },
            None => End::Exited { code: ExitStatus::from_raw(status).code().unwrap_or_default() },
        }
    }

    /// Whether the kernel has ended somebody of the tree for memory. Only a limit can be broken.
    fn is_out_of_memory(&self) -> bool {
        self.request.policy.limits.memory_bytes.is_some()
            && self.layers.groups.as_ref().is_some_and(Groups::broke_memory)
    }

    /// Looks at the clock and the tree, and decides when to look next.
    fn look(&mut self) -> Option<End> {
        let limits = &self.request.policy.limits;
        let now = Instant::now();
        if limits.wall.is_some_and(|wall| now >= self.begun + wall) {
            return Some(End::Wall);
        }
        if !self.is_watched() || now < self.look_at {
            return None;
        }
        // Who was ended need not be the program: it would go on without a part of itself.
        if self.is_out_of_memory() {
            return Some(End::Memory);
        }
        let usage = self.usage();
        self.look_at = now + limits::pace(limits, &usage, self.is_bounded);
        limits::broken(limits, &usage)
    }

    /// What the tree uses, as far as there is a limit to it. What seems too much is looked at twice.
    fn usage(&mut self) -> Usage {
        let limits = &self.request.policy.limits;
        let is_alone = self.layers.hold(Layer::Namespace);
        let members = || if is_alone { tree::everybody_else() } else { tree::descendants() };
        let everybody = members();
        let mut usage = tree::usage(&everybody);
        if let Some(most) = limits.memory_bytes {
            let objects = if is_alone { ipc::held(usage.tasks) } else { Held::default() };
            let files = if is_alone { view::memory_bytes(self.request) } else { 0 };
            let in_processes = usage.memory_bytes;
            usage.memory_bytes += objects.bytes() + files;
            // Nobody is ended for what a fork merely shares with its parent.
            if usage.memory_bytes > most {
                let exact = tree::exact_memory_bytes(&everybody).min(in_processes);
                usage.memory_bytes = exact + objects.exact_bytes(&everybody) + files;
            }
        }
        if let Some(most) = limits.cpu {
            let mut time = self.clock.look(&everybody);
            // Nor for the time of a child that its parent took in between being looked at the one and the other.
            if time.used > most {
                time = self.clock.look(&members());
            }
            (usage.cpu, usage.loses_cpu) = (time.used, time.is_being_lost);
        }
        usage
    }
}
