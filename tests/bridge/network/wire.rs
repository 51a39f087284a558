//! A server on loopback that is written byte by byte: it reads requests, and answers each with the
//! steps that its script returns. Nothing here knows HTTP better than it must.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval};

use super::frames::{self, Frame};

/// What a flood may weigh. It is far more than anyone should take.
const FLOOD_BYTES_MAX: u64 = 256 << 20;

/// Between two bytes of what drips.
const DRIP: Duration = Duration::from_millis(100);

/// What pushes may wait.
const PUSHES_AHEAD: usize = 64;

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// Such as `POST`.
    pub(crate) verb: String,
    /// What is asked for: a path, or with a proxy an address.
    pub(crate) target: String,
    /// In lower case, with their values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    /// When it was there, whole.
    pub(crate) at: Instant,
}

impl Heard {
    /// A request without its body.
    pub(crate) fn read(head: &str) -> Option<Self> {
        let mut lines = head.trim_end().split("\r\n");
        let mut first = lines.next()?.split(' ').map(str::to_owned);
        let (verb, target) = (first.next()?, first.next()?);
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header has a colon");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let (headers, at) = (lines.map(header).collect(), Instant::now());
        Some(Self { verb, target, headers, body: Bytes::new(), at })
    }

    /// How long its body is.
    pub(crate) fn length(&self) -> usize {
        self.header("content-length").map_or(0, |text| text.parse().expect("a number"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// What its message is, as far as a server must know.
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope::read(&self.body).unwrap_or_default()
    }

    /// Its body as JSON; null if it has none, or more than a value can hold.
    pub(crate) fn message(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// What its message asks for, or else its verb.
    pub(crate) fn asks(&self) -> String {
        self.envelope().method.unwrap_or_else(|| self.verb.clone())
    }
}

/// The parts of a message that any parser can read; its params may hold what few can.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Envelope {
    pub(crate) id: Value,
    pub(crate) method: Option<String>,
}

impl Envelope {
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        serde_json::from_slice(raw).ok()
    }
}

/// What a server does on a connection, one after the other.
#[derive(Clone)]
pub(crate) enum Step {
    /// Writes this.
    Send(Vec<u8>),
    /// Writes this, byte by byte, slowly.
    Drip(Vec<u8>),
    /// Writes this again and again, until the other side leaves.
    Flood(Bytes),
    /// Says nothing until the other side leaves.
    Hold,
    /// Neither writes nor reads until the story says so.
    Wait(Arc<Notify>),
    /// Ends the connection.
    Close,
    /// Ends it with a reset.
    Reset,
    /// From now on, this connection does what others push.
    Stream,
    /// Gives the streaming connection something to do.
    Push(Box<Step>),
    /// From now on, this connection carries WebSocket frames, each answered with steps.
    Socket(Arc<OnFrame>),
}

impl Step {
    pub(crate) fn send(bytes: impl AsRef<[u8]>) -> Self {
        Self::Send(bytes.as_ref().to_vec())
    }

    pub(crate) fn flood(bytes: impl AsRef<[u8]>) -> Self {
        Self::Flood(Bytes::copy_from_slice(bytes.as_ref()))
    }

    /// The same for the streaming connection.
    pub(crate) fn pushed(self) -> Self {
        Self::Push(Box::new(self))
    }
}

/// What is done with a frame.
pub(crate) type OnFrame = dyn Fn(&Frame) -> Vec<Step> + Send + Sync;

type Script = dyn Fn(&Heard) -> Vec<Step> + Send + Sync;

/// A running server. When it is dropped, so are its connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    script: Box<Script>,
    heard: Mutex<Vec<Heard>>,
    frames: Mutex<Vec<Frame>>,
    opened: AtomicUsize,
    left: AtomicUsize,
    flooded: AtomicU64,
    push: mpsc::Sender<Step>,
    pushes: tokio::sync::Mutex<mpsc::Receiver<Step>>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Heard) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound");
        let (push, pushes) = mpsc::channel(PUSHES_AHEAD);
        let state = Arc::new(State {
            script: Box::new(script),
            heard: Mutex::default(),
            frames: Mutex::default(),
            opened: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            flooded: AtomicU64::new(0),
            push,
            pushes: tokio::sync::Mutex::new(pushes),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.opened.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(Arc::clone(&shared), stream));
            }
        });
        Self { address, state, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Every request so far.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.state.heard.lock().expect("sound").clone()
    }

    /// What each of them asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.heard().iter().map(Heard::asks).collect()
    }

    /// How often one thing was asked for.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.asked().iter().filter(|asked| *asked == what).count()
    }

    /// Every WebSocket frame so far.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.state.frames.lock().expect("sound").clone()
    }

    /// Connections so far.
    pub(crate) fn opened(&self) -> usize {
        self.state.opened.load(Ordering::SeqCst)
    }

    /// How often the other side left while the server was holding or streaming.
    pub(crate) fn left(&self) -> usize {
        self.state.left.load(Ordering::SeqCst)
    }

    /// What floods wrote before the other side stopped reading.
    pub(crate) fn flooded(&self) -> u64 {
        self.state.flooded.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(state: Arc<State>, stream: TcpStream) {
    let mut wire = Wire { stream, buffer: BytesMut::new(), state };
    while let Some(heard) = wire.request().await {
        wire.state.heard.lock().expect("sound").push(heard.clone());
        let steps = (wire.state.script)(&heard);
        if !wire.all(steps).await {
            return;
        }
    }
}

/// One connection.
struct Wire {
    stream: TcpStream,
    /// What came and was not read yet.
    buffer: BytesMut,
    state: Arc<State>,
}

impl Wire {
    /// Takes every step; says whether the connection is still of use.
    async fn all(&mut self, steps: Vec<Step>) -> bool {
        for step in steps {
            if !Box::pin(self.take(step)).await {
                return false;
            }
        }
        true
    }

    async fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Send(bytes) => return self.stream.write_all(&bytes).await.is_ok(),
            Step::Drip(bytes) => {
                let mut ticks = interval(DRIP);
                for byte in bytes {
                    ticks.tick().await;
                    if self.stream.write_all(&[byte]).await.is_err() {
                        return false;
                    }
                }
            }
            Step::Flood(piece) => self.flood(&piece).await,
            Step::Hold => {
                self.silence().await;
                self.state.left.fetch_add(1, Ordering::SeqCst);
                return false;
            }
            Step::Wait(told) => told.notified().await,
            Step::Close => return false,
            Step::Reset => {
                let _ = self.stream.set_zero_linger();
                return false;
            }
            Step::Push(step) => self.state.push.send(*step).await.expect("the server holds the other end"),
            Step::Stream => return self.follow().await,
            Step::Socket(answer) => return self.socket(answer.as_ref()).await,
        }
        true
    }

    async fn flood(&mut self, piece: &[u8]) {
        let piece = piece.repeat((64 << 10) / piece.len() + 1);
        while self.state.flooded.load(Ordering::SeqCst) < FLOOD_BYTES_MAX {
            if self.stream.write_all(&piece).await.is_err() {
                return;
            }
            self.state.flooded.fetch_add(piece.len() as u64, Ordering::SeqCst);
        }
    }

    /// Waits until the other side leaves; what it says until then is kept.
    async fn silence(&mut self) {
        while self.stream.read_buf(&mut self.buffer).await.is_ok_and(|length| length > 0) {}
    }

    /// Does what is pushed, until the other side leaves or a step ends the connection.
    async fn follow(&mut self) -> bool {
        let state = Arc::clone(&self.state);
        let mut pushes = state.pushes.lock().await;
        loop {
            let step = tokio::select! {
                step = pushes.recv() => step.expect("the server holds the other end"),
                () = self.silence() => {
                    state.left.fetch_add(1, Ordering::SeqCst);
                    return false;
                }
            };
            if !Box::pin(self.take(step)).await {
                return false;
            }
        }
    }

    async fn socket(&mut self, answer: &OnFrame) -> bool {
        loop {
            if let Some((frame, length)) = frames::read(&self.buffer) {
                self.buffer.advance(length);
                self.state.frames.lock().expect("sound").push(frame.clone());
                if !self.all(answer(&frame)).await {
                    return false;
                }
            } else if !self.stream.read_buf(&mut self.buffer).await.is_ok_and(|length| length > 0) {
                self.state.left.fetch_add(1, Ordering::SeqCst);
                return false;
            }
        }
    }

    /// The next request; nothing when the other side has left.
    async fn request(&mut self) -> Option<Heard> {
        let end = loop {
            match memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 => return None,
                None => {}
            }
        };
        let text = String::from_utf8(self.buffer.split_to(end).to_vec()).expect("a head is text");
        let mut heard = Heard::read(&text)?;
        let length = heard.length();
        while self.buffer.len() < length {
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
        heard.body = self.buffer.split_to(length).freeze();
        heard.at = Instant::now();
        Some(heard)
    }
}
