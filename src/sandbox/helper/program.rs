//! The last steps before the program: its streams, its limits, its rights; then it is executed.
//!
//! Everything here happens in the process that becomes the program, so that nothing of it weighs on
//! the init.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::super::is_passing;
use super::super::policy::{Layer, Level};
use super::super::wire::Request;
use super::{Layers, Refusal, Streams, filter, limits, owner, sys};

/// What is said to the init before the program runs.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Said {
    /// A layer is missing, and may be.
    Lacking(Layer),
    /// The program will not run.
    Refused(Refusal),
}

/// Becomes the program. Returns only if it cannot, which has been said then.
pub(super) fn main(request: &Request, streams: &Streams, mut mouth: io::PipeWriter, mut layers: Layers) {
    let known = layers.lacking.len();
    let mut say = |said: &Said| {
        let mut text = serde_json::to_vec(said).expect("what is said always serialises");
        text.push(b'\n');
        // The init reads until the end; if it is gone, so is this process.
        let _ = mouth.write_all(&text);
    };
    let Err(refusal) = prepare(request, streams, &mut layers).and_then(|()| {
        layers.lacking[known..].iter().for_each(|layer| say(&Said::Lacking(*layer)));
        execute(request)
    });
    say(&Said::Refused(refusal));
}

fn prepare(request: &Request, streams: &Streams, layers: &mut Layers) -> Result<(), Refusal> {
    rustix::process::setsid()?;
    if let Some(groups) = &layers.groups {
        groups.enter().map_err(|error| Refusal::Failed {
            cause: format!("it cannot enter its control group: {error}"),
            is_passing: is_passing(&error),
        })?;
    }
    // Not inherited from colibri but looked up anew: an inherited folder leads around the view.
    rustix::process::chdir(Path::new(&request.directory))?;
    rustix::stdio::dup2_stdin(&streams.stdin)?;
    rustix::stdio::dup2_stdout(&streams.stdout)?;
    rustix::stdio::dup2_stderr(&streams.stderr)?;
    sys::reset_signals()?;
    if request.policy.level == Level::Off {
        return Ok(());
    }
    let is_root = rustix::process::geteuid().is_root();
    // Root is not counted; anybody else is counted within the user namespace alone, if there is one. A user of
    // its own is nobody else's.
    let counts_processes = (!is_root && layers.hold(Layer::Namespace)) || layers.own_user.is_some();
    limits::set(&request.policy.limits, counts_processes)?;
    // Before rights are given up: the lists may name what only they can open.
    layers.put_on(Layer::Landlock, request, || restrict_files(request))?;
    let own_user = layers.own_user;
    layers.put_on(Layer::Privileges, request, || drop_privileges(own_user, streams))?;
    layers.put_on(Layer::Seccomp, request, || {
        set_no_new_privs(true)?;
        sys::install_filter(&mut filter::program(request.policy.network(), request.policy.level))
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn execute(request: &Request) -> Result<std::convert::Infallible, Refusal> {
    let error = Command::new(&request.program)
        .args(&request.arguments)
        .env_clear()
        .envs(request.environment.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(error.into())
}

/// No program may give rights back, and there are none left.
fn drop_privileges(own_user: Option<u32>, streams: &Streams) -> io::Result<()> {
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    for bit in 0..CapabilitySet::all().bits().count_ones() {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            // One that this kernel does not know.
            Ok(()) | Err(Errno::INVAL) => {}
            // Who has no rights cannot give up the right to get them; no new privileges does that.
            Err(Errno::PERM) if capabilities(None)?.permitted.is_empty() => break,
            Err(error) => return Err(error.into()),
        }
    }
    own_user.map_or(Ok(()), |user| owner::become_user(user, streams))?;
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// What any program needs to start: the system's programs and libraries, and the few settings that
/// name them. Not all of `/etc`: it also holds secrets.
const SYSTEM: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/sbin",
    "/usr",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/timezone",
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

/// Devices that are no way to anything.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts",
    "/dev/ptmx",
];

/// Where temporary files go. Under [`Level::Strict`] both are private.
const TEMPORARY: &[&str] = &["/tmp", "/dev/shm"];

fn restrict_files(request: &Request) -> io::Result<()> {
    // Lower versions cannot keep a file from being emptied.
    const LEAST: ABI = ABI::V3;
    const BEST: ABI = ABI::V6;
    let files = &request.policy.files;
    let (read, all) = (AccessFs::from_read(BEST), AccessFs::from_all(BEST));
    let mut device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir;
    device |= AccessFs::IoctlDev;
    let reads_all = files.allow_read.is_empty() && request.policy.level != Level::Strict;
    let readable: &[&str] = if reads_all { &["/"] } else { SYSTEM };
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .and_then(|rules| rules.set_compatibility(CompatLevel::BestEffort).handle_access(all))
        .and_then(|rules| rules.scope(Scope::Signal | Scope::AbstractUnixSocket))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(readable, read)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(&files.allow_read, read)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(program_file(request), read)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(&files.allow_write, all)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(TEMPORARY, all)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(DEVICES, device)))
        .and_then(RulesetCreated::restrict_self)
        .map_err(|error| io::Error::other(error.to_string()))?;
    if restricted.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::other("the kernel does not enforce it"));
    }
    Ok(())
}

/// The program itself, if it is named by its place.
pub(super) fn program_file(request: &Request) -> Option<std::path::PathBuf> {
    let program = Path::new(&request.program);
    let is_a_place = program.components().count() > 1;
    is_a_place.then(|| Path::new(&request.directory).join(program).canonicalize().ok()).flatten()
}
