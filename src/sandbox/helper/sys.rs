//! The few calls to the kernel that no safe library offers: this file alone may say `unsafe`.

#![expect(
    unsafe_code,
    reason = "fork, unshare, signals and filters have no safe form; each says why it is sound here"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which of the two this process is after a fork.
pub(super) enum Fork {
    /// The one that was there, and the new one's id.
    Parent(Pid),
    /// The new one.
    Child,
}

/// Forks this process, which has one thread.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the helper has a single thread, so that no lock can be held by a thread that the child
    // lacks, and the child may do whatever its parent may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::from_raw(pid).expect("fork returns a process id"))),
    }
}

/// Forks this process, into a control group if the kernel can do that. Tells whether the new one is there.
pub(super) fn fork_into(group: Option<&OwnedFd>) -> io::Result<(Fork, bool)> {
    let Some(group) = group else { return Ok((fork()?, false)) };
    // SAFETY: as for a fork: no memory is shared, there is a single thread, and all that is asked for is plain
    // numbers that outlive the call.
    let pid = unsafe {
        let mut asked: libc::clone_args = std::mem::zeroed();
        asked.flags = INTO_CONTROL_GROUP;
        asked.exit_signal = libc::SIGCHLD as u64;
        asked.cgroup = u64::from(group.as_raw_fd().cast_unsigned());
        libc::syscall(libc::SYS_clone3, &raw const asked, size_of::<libc::clone_args>())
    };
    match i32::try_from(pid) {
        Ok(0) => Ok((Fork::Child, true)),
        Ok(pid @ 1..) => Ok((Fork::Parent(Pid::from_raw(pid).expect("it is above zero")), true)),
        // Before Linux 5.7 there is no such flag, and a container may forbid the call; then one enters later.
        _ => Ok((fork()?, false)),
    }
}

/// `CLONE_INTO_CGROUP`, which is longer than the library's type for it.
const INTO_CONTROL_GROUP: u64 = 1 << 33;

/// Leaves the namespaces it shares.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: descriptors are not among what is unshared here, and there is no other thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Blocks every signal, and gives a descriptor that is readable when a child has changed.
pub(super) fn children_as_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: both sets are initialised before they are read, and a descriptor is taken only if there is one. No
    // handler is installed, only removed.
    unsafe {
        // Whoever started colibri may have ignored it, which is inherited: then no child is ever heard of.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut signals = std::mem::zeroed();
        libc::sigfillset(&raw mut signals);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGCHLD);
        match libc::signalfd(-1, &raw const signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Gives every signal its first meaning again and lets it through: a program must not inherit what
/// colibri ignores, nor what the init blocks.
pub(super) fn reset_signals() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler is installed, only removed. The two that cannot be changed refuse.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set is initialised before it is read.
    let done = unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Marks every descriptor from 3 on to be closed when a program is executed.
pub(super) fn close_the_rest_on_exec() -> io::Result<()> {
    // SAFETY: marking closes nothing that anybody here owns.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets everything mounted there and below be read alone.
pub(super) fn freeze_mounts(place: &CStr) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, and both it and the path outlive the call.
    let done = unsafe {
        let mut attributes: libc::mount_attr = std::mem::zeroed();
        attributes.attr_set = libc::MOUNT_ATTR_RDONLY;
        let (path, flags) = (place.as_ptr(), libc::AT_RECURSIVE);
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path,
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Shows a detached tree of mounts with the owners that a user namespace maps them to.
pub(super) fn map_mounts(tree: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, and it, the path and both descriptors outlive the call.
    let done = unsafe {
        let mut attributes: libc::mount_attr = std::mem::zeroed();
        attributes.attr_set = libc::MOUNT_ATTR_IDMAP;
        attributes.userns_fd = u64::from(map.as_raw_fd().cast_unsigned());
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Raises the loopback device of this network namespace, which is down in a new one.
pub(super) fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: the structure is plain bytes, begins with a name that ends in zeros, and outlives the call.
    let done = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a filter before every system call of this process and of all it starts.
pub(super) fn install_filter(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program before the call returns, and it lives until then.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
