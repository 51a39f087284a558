//! The two ends of a client: a thread that reads, a thread that writes.
//!
//! Owns: the process's stdout. [`Transport::stdio`] takes it away from everybody else, so that no
//! stray print, in whatever library, can reach the protocol.
//! Must not know: what the bytes mean.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::thread;

use bytes::Bytes;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdout, stderr, stdin, stdout};
use tokio::sync::mpsc;

use crate::domain::log::Logger;

use super::outbox::Outbox;

/// One read of the input.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Chunks read ahead. Little, so that a client is soon held up when colibri is.
const CHUNKS_MAX: usize = 2;

/// The first descriptor that is not stdin, stdout or stderr.
const FIRST_PRIVATE_FD: i32 = 3;

/// Where a client's bytes come from and where the answers go.
pub struct Transport {
    input: Box<dyn Read + Send>,
    output: Box<dyn Write + Send>,
}

impl Transport {
    /// Any pair: a library user's, or a test's.
    pub fn new(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        Self { input: Box::new(input), output: Box::new(output) }
    }

    /// The process's own stdin and stdout. From here on descriptor 1 is stderr: whatever is printed
    /// there is read by people and never by the client. The real one is private to the transport and
    /// closed in every child.
    pub fn stdio() -> io::Result<Self> {
        let private = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, FIRST_PRIVATE_FD).map(File::from);
        let input = private(stdin())?;
        let output = private(stdout())?;
        dup2_stdout(stderr())?;
        Ok(Self::new(input, output))
    }
}

/// Starts both threads. They are not joined: a read that never returns must not hold up the end of
/// the process, and the writer's end is seen on the outbox.
pub(super) fn start(
    transport: Transport,
    outbox: Outbox,
    logger: Logger,
) -> io::Result<mpsc::Receiver<Bytes>> {
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    let Transport { input, output } = transport;
    thread::Builder::new().name("client-out".to_owned()).spawn(move || outbox.write_to(output))?;
    thread::Builder::new().name("client-in".to_owned()).spawn(move || read_from(input, &sender, &logger))?;
    Ok(chunks)
}

/// Reads until the input ends or nobody wants more.
fn read_from(mut input: impl Read, chunks: &mpsc::Sender<Bytes>, logger: &Logger) {
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                if chunks.blocking_send(Bytes::copy_from_slice(&buffer[..length])).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                logger.warn(format_args!("[colibri] cannot read from the client: {error}"));
                return;
            }
        }
    }
}
