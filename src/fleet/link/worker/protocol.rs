//! What colibri and a worker say to each other over the worker's stdin and stdout: messages as data, and where one
//! ends. One message is one line of JSON. A frame follows its line as the bytes that it is, of the length that the line
//! says, so that no frame is ever written in another way than its sender wrote it.
//!
//! Must not know: pipes, processes, links.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::domain::grant::Secret;
use crate::fleet::credentials::Refusal;
use crate::fleet::error::Cause;

use super::super::{About, Carrier};

/// The longest line to a worker. What it says of a frame may repeat some of it, each letter as up to six.
pub(super) const ORDER_BYTES_MAX: usize = 32 << 20;

/// What a worker may write into colibri's log within a minute; one that says more is not the one that was started.
const SAID_MAX: u32 = 64;
const SAID_WITHIN: Duration = Duration::from_mins(1);

/// From colibri to its worker. It holds secrets: it cannot be printed.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// The first one: where to go, and as whom.
    Open {
        /// By which carrier.
        carrier: Carrier,
        /// Where to.
        url: String,
        /// What is sent with every request.
        headers: Vec<(String, String)>,
        /// The longest frame of the server.
        frame_bytes_max: usize,
        /// Whether colibri can be asked for the `Authorization` of a request.
        has_credentials: bool,
    },
    /// Send the frame that follows. It is told when that is done.
    Send {
        /// Of this message.
        number: u64,
        /// The revision agreed on, if one is.
        revision: Option<String>,
        /// What the frame is.
        about: Heading,
    },
    /// Whoever sent that message has left.
    Leave {
        /// Of the message.
        number: u64,
    },
    /// The server may speak without being asked. It is told when that is done.
    Listen {
        /// Of this message.
        number: u64,
        /// The revision agreed on.
        revision: Option<String>,
    },
    /// The answer to a question of the worker's.
    Answer {
        /// The question's.
        number: u64,
        /// An `Authorization`, or nothing.
        outcome: Result<Option<String>, Cause>,
    },
    /// End the link, tell so, and leave.
    Close,
}

/// From a worker to colibri. It may hold secrets too.
#[derive(Serialize, Deserialize)]
pub(super) enum Report {
    /// The link is open, or cannot be opened.
    Opened(Result<(), Cause>),
    /// The frame that follows came from the server.
    Frame {
        /// The request whose own exchange carried it.
        exchange: Option<u64>,
    },
    /// A frame was longer than the limit.
    TooLong {
        /// The request whose own exchange carried it.
        exchange: Option<u64>,
    },
    /// A message is sent, or is not.
    Done {
        /// The message's.
        number: u64,
        /// How it went.
        outcome: Result<(), Cause>,
    },
    /// Nothing more will come from the server.
    Ended(Cause),
    /// Something for people.
    Said {
        /// Whether somebody should look at it.
        is_warning: bool,
        /// What.
        text: String,
    },
    /// Something that only colibri knows.
    Asked {
        /// Of this question.
        number: u64,
        /// What.
        question: Question,
    },
    /// The link is ended.
    Closed,
}

/// What a worker asks of colibri's credentials.
#[derive(Serialize, Deserialize)]
pub(super) enum Question {
    /// The `Authorization` of a request.
    Authorization,
    /// What to do about a refusal.
    Refused {
        /// 401, or 403.
        status: u16,
        /// Its `WWW-Authenticate`.
        challenge: Option<String>,
        /// What was refused.
        sent: Option<String>,
    },
}

impl From<Refusal> for Question {
    fn from(Refusal { status, challenge, sent }: Refusal) -> Self {
        Self::Refused { status, challenge, sent: sent.map(|secret| secret.expose().to_owned()) }
    }
}

impl Question {
    /// The refusal, if it is one.
    pub(super) fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Authorization => None,
            Self::Refused { status, challenge, sent } => {
                Some(Refusal { status, challenge, sent: sent.map(Secret::new) })
            }
        }
    }
}

/// What a frame is, on its way through a pipe.
#[derive(Serialize, Deserialize)]
pub(super) enum Heading {
    /// Wants an answer.
    Request { id: u64, method: String, name: Option<String>, mirrored: Vec<(String, String)> },
    /// Wants none.
    Notification { method: String },
    /// Our answer to a request of the server's.
    Answer,
}

impl From<About<'_>> for Heading {
    fn from(about: About<'_>) -> Self {
        match about {
            About::Request { id, method, name, mirrored } => Self::Request {
                id,
                method: method.to_owned(),
                name: name.map(str::to_owned),
                mirrored: mirrored.to_vec(),
            },
            About::Notification { method } => Self::Notification { method: method.to_owned() },
            About::Answer => Self::Answer,
        }
    }
}

impl Heading {
    /// As a link takes it.
    pub(super) fn about(&self) -> About<'_> {
        match self {
            Self::Request { id, method, name, mirrored } => {
                About::Request { id: *id, method, name: name.as_deref(), mirrored }
            }
            Self::Notification { method } => About::Notification { method },
            Self::Answer => About::Answer,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    /// The length of what follows the line.
    bytes: usize,
    message: T,
}

/// A message with the frame that belongs to it, as it is written.
pub(super) fn written<T: Serialize>(message: &T, frame: &[u8]) -> Vec<u8> {
    let line = Line { bytes: frame.len(), message };
    let mut written = serde_json::to_vec(&line).expect("messages always serialise");
    written.reserve(frame.len() + 1);
    written.push(b'\n');
    written.extend_from_slice(frame);
    written
}

/// Why nothing more can be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// More than may be said at once.
    TooMuch,
    /// No message.
    Nonsense,
}

/// How often a worker has written into colibri's log lately.
#[derive(Default)]
pub(super) struct Said {
    since: Option<Instant>,
    count: u32,
}

impl Said {
    /// Counts one more, if that is not too much.
    pub(super) fn once_more(&mut self, now: Instant) -> Result<(), Broken> {
        if self.since.is_none_or(|since| now.duration_since(since) >= SAID_WITHIN) {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        if self.count > SAID_MAX { Err(Broken::TooMuch) } else { Ok(()) }
    }
}

/// Where one message ends and the next begins. Nothing is kept of what is longer than it may be.
pub(super) struct Messages<T> {
    /// What was read and is not taken yet; whoever reads appends to it.
    pub(super) buffer: BytesMut,
    /// How much of the buffer has no end of a line.
    searched: usize,
    line: Option<Line<T>>,
    line_bytes_max: usize,
    frame_bytes_max: usize,
}

impl<T: DeserializeOwned> Messages<T> {
    pub(super) fn new(line_bytes_max: usize, frame_bytes_max: usize) -> Self {
        let buffer = BytesMut::new();
        Self { buffer, searched: 0, line: None, line_bytes_max, frame_bytes_max }
    }

    /// The next message that is there as a whole, with its frame.
    pub(super) fn next_message(&mut self) -> Result<Option<(T, Bytes)>, Broken> {
        let line = match self.line.take() {
            Some(line) => line,
            None => match self.next_line()? {
                Some(line) => line,
                None => return Ok(None),
            },
        };
        if line.bytes > self.frame_bytes_max {
            return Err(Broken::TooMuch);
        }
        if self.buffer.len() < line.bytes {
            self.buffer.reserve(line.bytes - self.buffer.len());
            self.line = Some(line);
            return Ok(None);
        }
        let frame = self.buffer.split_to(line.bytes).freeze();
        Ok(Some((line.message, frame)))
    }

    fn next_line(&mut self) -> Result<Option<Line<T>>, Broken> {
        let end = memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
        if end.unwrap_or(self.buffer.len()) > self.line_bytes_max {
            return Err(Broken::TooMuch);
        }
        let Some(end) = end else {
            self.searched = self.buffer.len();
            return Ok(None);
        };
        let text = self.buffer.split_to(end);
        self.buffer.advance(1);
        self.searched = 0;
        serde_json::from_slice(&text).map(Some).map_err(|_| Broken::Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(messages: &mut Messages<Report>) -> Vec<(Option<u64>, Bytes)> {
        let next = || match messages.next_message().expect("it is sound") {
            Some((Report::Frame { exchange }, frame)) => Some((exchange, frame)),
            Some(_) => panic!("only frames were sent"),
            None => None,
        };
        std::iter::from_fn(next).collect()
    }

    /// A frame may hold line ends, or nothing, or what is no text; in whatever pieces it comes, it is the same.
    #[test]
    fn frames_come_through_as_they_are() {
        let frames: [(Option<u64>, &[u8]); 4] =
            [(None, b"{\n\r\n}"), (Some(7), b""), (Some(u64::MAX), b"\xff\x00\n"), (None, b"{\"bytes\":9}")];
        let sent: Vec<u8> = frames
            .iter()
            .flat_map(|(exchange, frame)| written(&Report::Frame { exchange: *exchange }, frame))
            .collect();
        for piece in 1..sent.len() {
            let mut messages = Messages::new(1 << 10, 1 << 10);
            let mut came = Vec::new();
            for chunk in sent.chunks(piece) {
                messages.buffer.extend_from_slice(chunk);
                came.extend(all(&mut messages));
            }
            let came: Vec<(Option<u64>, &[u8])> = came.iter().map(|(of, frame)| (*of, &frame[..])).collect();
            assert_eq!(came, frames, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_too_much_or_no_message_is_told() {
        let read = |bytes: &[u8]| {
            let mut messages = Messages::<Report>::new(100, 10);
            messages.buffer.extend_from_slice(bytes);
            messages.next_message().map(|next| next.is_some())
        };
        assert_eq!(read(&written(&Report::Closed, b"")), Ok(true));
        assert_eq!(read(&written(&Report::Closed, &[b'x'; 11])), Err(Broken::TooMuch));
        assert_eq!(read(&written(&Report::Closed, &[b'x'; 10])), Ok(true));
        assert_eq!(read(&[b'x'; 101]), Err(Broken::TooMuch));
        assert_eq!(read(&[b'x'; 100]), Ok(false));
        assert_eq!(read(b"{\"jsonrpc\":\"2.0\"}\n"), Err(Broken::Nonsense));
    }

    /// What a caller is told is decided by the cause, so none may change on its way.
    #[test]
    fn every_cause_comes_through_as_it_is() {
        let text = || "a \"text\"\n".to_owned();
        let waits = Duration::from_millis(1500);
        let causes = [
            Cause::Answered { code: -32_000, message: text(), raw: text() },
            Cause::TimedOut(waits),
            Cause::Unreachable(text()),
            Cause::Network(text()),
            Cause::Http { status: 429, text: text(), retry_after: Some(waits) },
            Cause::SessionLost,
            Cause::Busy(7),
            Cause::Gone(text()),
            Cause::Closed,
            Cause::Protocol(text()),
            Cause::Version { server: text(), ours: text() },
            Cause::Unauthorized(text()),
            Cause::Invalid(text()),
            Cause::Start { program: text(), reason: text() },
        ];
        for cause in causes {
            let mut messages = Messages::<Report>::new(1 << 10, 0);
            messages.buffer.extend_from_slice(&written(&Report::Ended(cause.clone()), b""));
            let came = messages.next_message().expect("it is sound");
            assert!(matches!(came, Some((Report::Ended(came), _)) if came == cause), "{cause:?}");
        }
    }

    /// SB-3: what a worker writes into colibri's log is bounded, and a long life alone does not use it up.
    #[tokio::test(start_paused = true)]
    async fn a_worker_does_not_fill_the_log() {
        let mut said = Said::default();
        for _ in 0..3 {
            for _ in 0..SAID_MAX {
                assert_eq!(said.once_more(Instant::now()), Ok(()));
            }
            tokio::time::advance(SAID_WITHIN).await;
        }
        for _ in 0..SAID_MAX {
            assert_eq!(said.once_more(Instant::now()), Ok(()));
        }
        assert_eq!(said.once_more(Instant::now()), Err(Broken::TooMuch));
    }
}
