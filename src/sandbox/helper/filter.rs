//! System calls that a server has no use for, refused before the kernel looks at them.
//!
//! A list of refusals, not of permissions: runtimes use new calls with every version, and what is
//! refused here are the doors through which sandboxes have been left.

use libc::sock_filter;

use super::super::policy::{Level, Network};

/// Refused as not permitted.
const REFUSED: &[libc::c_long] = &[
    // Other processes, and their memory and files.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Work that the kernel does out of sight of this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Keys, which belong to the user and not to the process.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Another view of the files, other namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The machine.
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // Memory that the watch over the tree cannot see.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_kexec_file_load];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// New namespaces by way of `clone`.
const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP)
    .cast_unsigned();

/// The machine this filter was made for, as the kernel names it; 0 for one it was not made for.
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u32 = 0;

/// Numbers from here on are the same calls in another dress (x32).
const OTHER_DRESS: u32 = 0x4000_0000;

/// Where the kernel shows the call's number, its machine, and the low halves of its first arguments: all that it
/// reads of numbers as short as a family or a kind of socket.
const NUMBER: u32 = 0;
const ITS_MACHINE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;

const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const KEEP_BITS: u16 = 0x54;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000;

/// The filter. Without a network there are no sockets at all: those of this machine lie in the file
/// system, where a network namespace does not reach. Pairs of them stay if they are tied to each other, runtimes
/// talk to their own children with those. With some hosts there are sockets of the internet's families, which a network
/// namespace holds; and under `strict` no others even with the whole network, since sockets of this machine lead
/// to services that act for whoever asks.
pub(super) fn program(network: &Network, level: Level) -> Vec<sock_filter> {
    let refused = REFUSE | libc::EPERM.cast_unsigned();
    let unknown = REFUSE | libc::ENOSYS.cast_unsigned();
    let mut steps = vec![step(LOAD, 0, 0, ITS_MACHINE)];
    // A call of another machine (32 bits) would have other numbers.
    steps.extend([step(IF_EQUAL, 1, 0, MACHINE), step(RETURN, 0, 0, unknown)]);
    steps.push(step(LOAD, 0, 0, NUMBER));
    steps.extend([step(IF_AT_LEAST, 0, 1, OTHER_DRESS), step(RETURN, 0, 0, unknown)]);
    let mut refuse = |number: libc::c_long, answer: u32| {
        let number = u32::try_from(number).expect("a call's number is small");
        steps.extend([step(IF_EQUAL, 0, 1, number), step(RETURN, 0, 0, answer)]);
    };
    REFUSED.iter().chain(REFUSED_HERE).for_each(|number| refuse(*number, refused));
    // Its flags lie in memory, where a filter cannot look; runtimes then use `clone`.
    refuse(libc::SYS_clone3, unknown);
    match network {
        Network::None => refuse(libc::SYS_socket, refused),
        Network::Hosts(_) => steps.extend(families_alone(&INTERNET, refused)),
        Network::Full if level == Level::Strict => steps.extend(families_alone(&NETWORK, refused)),
        Network::Full => {}
    }
    if *network != Network::Full || level == Level::Strict {
        steps.extend(tied_pairs_alone(refused));
    }
    let clone = u32::try_from(libc::SYS_clone).expect("a call's number is small");
    steps.extend([
        step(IF_EQUAL, 0, 3, clone),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(IF_ANY_BIT, 0, 1, NAMESPACES),
        step(RETURN, 0, 0, refused),
        step(RETURN, 0, 0, ALLOW),
    ]);
    steps
}

const INTERNET: [libc::c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// With what libraries ask which addresses this machine has, before they choose among those of a name.
const NETWORK: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Sockets of other families than these are refused.
fn families_alone(families: &[libc::c_int], refused: u32) -> Vec<sock_filter> {
    let socket = u32::try_from(libc::SYS_socket).expect("a call's number is small");
    let count = u8::try_from(families.len()).expect("they are few");
    let mut steps = vec![step(IF_EQUAL, 0, count + 3, socket), step(LOAD, 0, 0, FIRST_ARGUMENT)];
    let to_allow = (1..=count).rev();
    steps.extend(
        families
            .iter()
            .zip(to_allow)
            .map(|(family, skipped)| step(IF_EQUAL, skipped, 0, family.cast_unsigned())),
    );
    steps.extend([step(RETURN, 0, 0, refused), step(RETURN, 0, 0, ALLOW)]);
    steps
}

/// The bits of a kind of socket; the others say how its descriptors behave.
const KIND: u32 = 0xf;

/// Pairs of sockets are refused unless the two are tied to each other for good. Those of datagrams are not: each can
/// be sent from to any socket of this machine, and tied anew to one. (A raw one is one of datagrams.) Nor do other
/// families have pairs that anybody needs.
fn tied_pairs_alone(refused: u32) -> [sock_filter; 9] {
    let pair = u32::try_from(libc::SYS_socketpair).expect("a call's number is small");
    [
        step(IF_EQUAL, 0, 8, pair),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(IF_EQUAL, 0, 4, libc::AF_UNIX.cast_unsigned()),
        step(LOAD, 0, 0, SECOND_ARGUMENT),
        step(KEEP_BITS, 0, 0, KIND),
        step(IF_EQUAL, 2, 0, libc::SOCK_STREAM.cast_unsigned()),
        step(IF_EQUAL, 1, 0, libc::SOCK_SEQPACKET.cast_unsigned()),
        step(RETURN, 0, 0, refused),
        step(RETURN, 0, 0, ALLOW),
    ]
}

fn step(code: u16, then: u8, otherwise: u8, value: u32) -> sock_filter {
    sock_filter { code, jt: then, jf: otherwise, k: value }
}
