//! The canary: sent into a sandbox, it tries what a layer should refuse, and comes back with what it
//! found. Layers are believed by what they do, not by what the kernel says it has.

use std::fs;
use std::process::ExitCode;

use rustix::process::{Pid, getppid};

use super::super::policy::Layer;

/// Tries every layer. The exit code has one bit for each that held.
pub(in crate::sandbox) fn main() -> ExitCode {
    let held = Layer::ALL.iter().enumerate().filter(|(_, layer)| holds(**layer));
    ExitCode::from(held.fold(0, |bits, (index, _)| bits | 1 << index))
}

/// Whether an exit code has a layer's bit.
pub(in crate::sandbox) fn found(code: i32, layer: Layer) -> bool {
    Layer::ALL.iter().position(|one| *one == layer).is_some_and(|index| code & (1 << index) != 0)
}

fn holds(layer: Layer) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let says = |name: &str, value: &str| {
        status.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.trim() == value))
    };
    match layer {
        // Its parent is the first of its namespace, and that one's files cannot be looked at.
        Layer::Namespace => getppid() == Some(Pid::INIT) && fs::read_link("/proc/1/root").is_err(),
        // The loopback device alone.
        Layer::Network => {
            let devices = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
            devices.lines().filter(|line| line.contains(':')).all(|line| line.trim_start().starts_with("lo:"))
        }
        Layer::Privileges => {
            // Root has become somebody who owns nothing, unless a user namespace has made it so before, or
            // there is no namespace at all.
            let is_nobody = !rustix::process::geteuid().is_root()
                || !super::owner::is_outermost()
                || getppid() != Some(Pid::INIT);
            says("NoNewPrivs:", "1") && says("CapBnd:", "0000000000000000") && is_nobody
        }
        // Nothing was named that would let it be listed.
        Layer::Landlock => fs::read_dir("/").is_err(),
        Layer::Seccomp => super::sys::unshare(rustix::thread::UnshareFlags::NEWUSER)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EPERM) && says("Seccomp:", "2")),
    }
}
