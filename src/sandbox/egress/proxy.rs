//! The proxy: accepts on the socket that the helper hands out, judges, connects, relays.

use std::collections::HashSet;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::domain::address::{Kind, kind};

use super::head::{self, Answer};
use super::hosts::{Hosts, Target, Verdict};
use super::{CONNECTIONS_MAX, tunnel};

/// Who are told at the same time that there is no room; one more is closed without a word.
const TURNED_AWAY_MAX: usize = 16;

/// Finding and reaching a host, together.
const REACH_WAIT: Duration = Duration::from_secs(15);

/// Names that are looked up at the same time. Whoever asks is left waiting, and a name server that does not
/// answer holds a thread for longer than anybody waits.
const LOOKUPS_MAX: usize = 8;

/// How long and for how many bytes a client that was turned away is heard out, so that it reads why.
const LINGER_WAIT: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 << 10;

/// How many refused hosts are told of; a child that tries thousands does not fill a log.
const REFUSALS_TOLD_MAX: usize = 64;

/// What is told of refusals: once a host.
#[derive(Debug)]
pub(in crate::sandbox) struct Refusals {
    tell: mpsc::Sender<String>,
    told: Mutex<HashSet<String>>,
}

impl Refusals {
    /// And where they are heard.
    pub(in crate::sandbox) fn channel() -> (Self, mpsc::Receiver<String>) {
        let (tell, heard) = mpsc::channel(REFUSALS_TOLD_MAX);
        (Self { tell, told: Mutex::default() }, heard)
    }

    fn add(&self, target: &Target, why: &str) {
        let mut told = self.told.lock().expect("nothing panics while it holds the names");
        if told.len() < REFUSALS_TOLD_MAX && told.insert(target.to_string()) {
            // Nobody listens, or not fast enough: the child was told in any case.
            let _ = self.tell.try_send(why.to_owned());
        }
    }
}

/// What all connections of one child share.
struct Shared {
    hosts: Hosts,
    refusals: Refusals,
    lookups: Arc<Semaphore>,
}

/// Takes the listening socket from the helper and serves on it, until it is dropped. Returns if none
/// comes: then the child does not run, or was allowed to run without this layer.
pub(in crate::sandbox) async fn serve(door: UnixStream, hosts: Hosts, refusals: Refusals) {
    let Ok(listener) = receive(&door).await else { return };
    let shared = Arc::new(Shared { hosts, refusals, lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) });
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let anteroom = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let mut open = JoinSet::new();
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        let Ok((client, _)) = client else {
            // Out of descriptors, or a client that has left already.
            tokio::time::sleep(LINGER_WAIT / 10).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            let why = format!("colibri: {CONNECTIONS_MAX} connections are open already; close one");
            if let Ok(permit) = Arc::clone(&anteroom).try_acquire_owned() {
                let answer = Answer::new("503 Service Unavailable", why);
                open.spawn(async move {
                    let _permit = permit;
                    turn_away(client, answer).await;
                });
            }
            continue;
        };
        let shared = Arc::clone(&shared);
        open.spawn(async move {
            let _permit = permit;
            connection(client, &shared).await;
        });
    }
}

async fn receive(door: &UnixStream) -> io::Result<TcpListener> {
    let receiving = door.async_io(Interest::READABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(door, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let sent = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
            _ => None,
        });
        sent.ok_or(io::ErrorKind::UnexpectedEof.into())
    });
    let listener: OwnedFd = receiving.await?;
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn connection(mut client: TcpStream, shared: &Shared) {
    let (asked, rest) = match head::read(&mut client).await {
        Ok(Some((head, rest))) => match head::understand(&head) {
            Ok(asked) => (asked, rest),
            Err(answer) => return turn_away(client, answer).await,
        },
        Ok(None) => return,
        Err(answer) => return turn_away(client, answer).await,
    };
    let mut server = match reach(&asked.target, shared).await {
        Ok(server) => server,
        Err(answer) => {
            if answer.status == REFUSED {
                shared.refusals.add(&asked.target, &answer.why);
            }
            return turn_away(client, answer).await;
        }
    };
    let begun = match &asked.forwarded {
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
        Some(forwarded) => server.write_all(forwarded.as_bytes()).await,
    };
    if begun.is_ok() && server.write_all(&rest).await.is_ok() {
        tunnel::relay(client, server).await;
    }
}

const REFUSED: &str = "403 Forbidden";
const UNREACHED: &str = "502 Bad Gateway";

/// Connects to a target, if it may be reached.
async fn reach(target: &Target, shared: &Shared) -> Result<TcpStream, Answer> {
    let refused = |why: &str| Answer::new(REFUSED, format!("colibri: `{target}` {why}"));
    let verdict = shared.hosts.judge(target);
    let reaching = async {
        let addresses: Vec<SocketAddr> = match verdict {
            Verdict::Refused => {
                return Err(refused(&format!(
                    "is not in this server's sandbox.network; add \"{target}\" to it if the server may go there"
                )));
            }
            Verdict::Literal(address) => vec![(address, target.port).into()],
            Verdict::Named => {
                look_up(target, &shared.lookups).await.map_err(|error| unreached(target, &error))?
            }
        };
        let is_open =
            |address: &SocketAddr| matches!(verdict, Verdict::Literal(_)) || is_elsewhere(address.ip());
        let open: Vec<SocketAddr> = addresses.into_iter().filter(is_open).collect();
        if open.is_empty() {
            return Err(refused(
                "is a name for an address of this machine or its network; if the server may go there, name \
                 the address itself in sandbox.network, as address:port",
            ));
        }
        TcpStream::connect(&open[..]).await.map_err(|error| unreached(target, &error))
    };
    timeout(REACH_WAIT, reaching).await.unwrap_or_else(|_| {
        Err(Answer::new("504 Gateway Timeout", format!("colibri: `{target}` does not answer")))
    })
}

/// Whether an address is anybody's in the public network, and not this machine's own there: what listens here may
/// trust whoever is here.
fn is_elsewhere(address: IpAddr) -> bool {
    kind(address) == Kind::Public && !is_own(address)
}

/// Whether this machine has the address: only then can a socket have it.
fn is_own(address: IpAddr) -> bool {
    let can_have = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    let nobodys: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    if !can_have(address) {
        return false;
    }
    // Machines that stand in for each other let a socket have any address. There the way to it tells: it begins where
    // it ends. Nothing is sent.
    !can_have(nobodys) || way_to(address).is_ok_and(|begin| begin == address)
}

fn way_to(address: IpAddr) -> io::Result<IpAddr> {
    let anywhere: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((anywhere, 0))?;
    socket.connect((address, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// What a name means. The permit is the thread's, which may look for longer than anybody waits.
async fn look_up(target: &Target, lookups: &Arc<Semaphore>) -> io::Result<Vec<SocketAddr>> {
    let permit = Arc::clone(lookups).acquire_owned().await;
    let place = (target.host.clone(), target.port);
    let looking = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        place.to_socket_addrs().map(Iterator::collect)
    });
    looking.await.map_err(io::Error::other)?
}

fn unreached(target: &Target, error: &io::Error) -> Answer {
    Answer::new(UNREACHED, format!("colibri: `{target}` cannot be reached: {error}"))
}

/// Says why, and waits a moment for the client to have read it: closing at once, with something unread,
/// would take the answer back.
async fn turn_away(mut client: TcpStream, answer: Answer) {
    let heard = async {
        client.write_all(answer.text().as_bytes()).await?;
        client.shutdown().await?;
        tokio::io::copy(&mut (&mut client).take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER_WAIT, heard).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-3: an address of this machine is inside, whatever kind it is; nobody else's is.
    #[test]
    fn this_machine_knows_its_addresses() {
        for address in ["127.0.0.1", "127.8.8.8"] {
            assert!(is_own(address.parse().unwrap()), "{address}");
        }
        // Wherever this machine would send from is its own.
        for beyond in ["93.184.216.34", "2606:4700::1111"] {
            if let Ok(own) = way_to(beyond.parse().unwrap()) {
                assert!(is_own(own), "{own}");
                assert!(!is_elsewhere(own), "{own}");
            }
            assert!(!is_own(beyond.parse().unwrap()), "{beyond}");
            assert!(is_elsewhere(beyond.parse().unwrap()), "{beyond}");
        }
        for nobodys in ["192.0.2.1", "2001:db8::1", "8.8.8.8"] {
            assert!(!is_own(nobodys.parse().unwrap()), "{nobodys}");
        }
        assert_eq!(way_to("127.0.0.1".parse().unwrap()).unwrap(), Ipv4Addr::LOCALHOST);
    }
}
