//! The operator socket: a person's commands reach a running colibri by it, and nobody else's do.
//!
//! Owns: the socket, who may speak on it, and the bounds of what is said: one request a connection, one answer or a
//! stream of lines. Nothing here can hold up a client of MCP.
//! Uses: the port `domain::operator`. Must not know: servers, fleets, or what a request does.

mod speak;

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::operator::Operator;

/// Connections at the same time. One more is told so and let go.
pub const CONNECTIONS_MAX: usize = 16;

/// How many of them may be streams, which stay.
pub const STREAMS_MAX: usize = 8;

/// One request, with its line end.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// How long a connection may take to say what it wants.
pub const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// How long somebody may take to read a line before it counts as gone.
pub const READ_WAIT: Duration = Duration::from_secs(30);

/// After accepting failed, since there are too many open files: it will fail again for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The longest path of a socket, as most systems have it, with the zero at its end.
const PATH_BYTES_MAX: usize = 104;

/// A socket that is bound and not yet served.
pub struct Bound {
    listener: UnixListener,
    file: File,
}

/// The file of a socket. It goes with its owner.
struct File {
    path: PathBuf,
    inode: u64,
}

impl Bound {
    /// Binds a socket of that name. It is private before it has the name, so that nobody ever sees it otherwise.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let unfinished = path.with_extension("new");
        if unfinished.as_os_str().len() >= PATH_BYTES_MAX {
            let what = format!(
                "the path of the socket is too long ({} bytes of {PATH_BYTES_MAX}): set XDG_RUNTIME_DIR to a shorter folder",
                unfinished.as_os_str().len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // What a process of the same number left behind.
        let _ = std::fs::remove_file(&unfinished);
        let listener = UnixListener::bind(&unfinished)?;
        let named = std::fs::set_permissions(&unfinished, PermissionsExt::from_mode(0o600))
            .and_then(|()| std::fs::rename(&unfinished, path))
            .and_then(|()| std::fs::symlink_metadata(path));
        match named {
            Ok(found) => Ok(Self { listener, file: File { path: path.to_owned(), inode: found.ino() } }),
            Err(error) => {
                let _ = std::fs::remove_file(&unfinished);
                Err(error)
            }
        }
    }

    /// Serves whoever comes until `stop` is cancelled; then every connection ends and the file is gone.
    pub async fn serve(self, operator: Arc<dyn Operator>, stop: CancellationToken) {
        let Self { listener, file: _file } = self;
        let (places, streams) = (Semaphore::new(CONNECTIONS_MAX), Semaphore::new(STREAMS_MAX));
        let (places, streams) = (Arc::new(places), Arc::new(streams));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            if !is_ours(&stream) {
                continue;
            }
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                speak::turn_away(&stream);
                continue;
            };
            let (operator, streams) = (Arc::clone(&operator), Arc::clone(&streams));
            let speaking = async move {
                speak::speak(stream, &*operator, &streams).await;
                drop(place);
            };
            connections.spawn(stop.clone().run_until_cancelled_owned(speaking));
        }
        connections.close();
        connections.wait().await;
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Where several share a folder and not their process numbers, it may be another's by now.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether the other side is of this user, or of root. The folder and the file say the same; this is the third lock.
fn is_ours(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| may_speak(peer.uid(), rustix::process::geteuid().as_raw()))
}

fn may_speak(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests;
