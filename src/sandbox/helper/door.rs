//! The door: in a network with nobody in it, one listening socket, handed out to colibri, which accepts on
//! it from outside. Whoever does not use it reaches nobody.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::super::policy::Hosts;
use super::sys;

/// Variables by which programs find a proxy; most read the one or the other spelling.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// And by which they are told for whom not to use it.
const NOT_FOR: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Opens the door in this network, which is new, and hands it out. Returns what the program must know.
/// This process keeps nothing of it: what guards a sandbox has no part in its network.
pub(super) fn open(door: &OwnedFd, hosts: &Hosts) -> io::Result<Vec<(OsString, OsString)>> {
    sys::raise_loopback()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let place = listener.local_addr()?;
    let descriptors = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
    assert!(fits, "the space was made for one descriptor");
    sendmsg(door, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    let proxy = format!("http://{place}");
    // Inside, this machine's name means the private loopback, unless an entry means the one outside.
    let not_for = if hosts.name_loopback() { "" } else { "localhost,127.0.0.1,::1" };
    let pairs = PROXIES.iter().map(|name| (name, proxy.as_str()));
    let pairs = pairs.chain(NOT_FOR.iter().map(|name| (name, not_for)));
    // Node reads those only if it is told to.
    let pairs = pairs.chain([(&"NODE_USE_ENV_PROXY", "1")]);
    Ok(pairs.map(|(name, value)| (name.into(), value.into())).collect())
}
