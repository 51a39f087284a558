//! The line to a running colibri: finding its socket, one question, one answer or a stream.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::app::operator::place::{folders, sockets, sweep};
use crate::domain::operator::{Request, VERSION};

use super::super::Session;
use super::super::fault::{Exit, Fault};

/// How long somebody may take to be connected to: it is on this machine.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// A colibri that serves many at the moment has room again within this, whoever they are.
const BUSY_WAIT: Duration = Duration::from_secs(8);

/// Between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// The longest answer: a server with thousands of tools.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A colibri that runs.
pub(in crate::cli) struct Running {
    pub(in crate::cli) pid: u32,
    path: PathBuf,
}

/// A line of a stream.
pub(in crate::cli) enum Line {
    /// One of what was asked for.
    One(Value),
    /// So many were missed.
    Missed(u64),
}

/// Every colibri of this user that runs, in the order of their numbers.
pub(in crate::cli) async fn all(session: &Session) -> Result<Vec<Running>, Fault> {
    let (loaded, _) = session.load()?;
    let mut running: Vec<Running> = Vec::new();
    for folder in folders(&loaded.config) {
        sweep(&folder).await;
        for (pid, path) in sockets(&folder) {
            let one = Running { pid, path };
            if one.connect().await.is_ok() {
                running.push(one);
            }
        }
    }
    running.sort_by_key(|one| one.pid);
    Ok(running)
}

impl Running {
    async fn connect(&self) -> Result<UnixStream, Fault> {
        let gone = |why: String| {
            Fault::new(Exit::Unreachable, format!("colibri {} cannot be reached: {why}", self.pid))
        };
        let connected = timeout(CONNECT_WAIT, UnixStream::connect(&self.path)).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(gone(error.to_string())),
            Err(_) => return Err(gone("it does not answer".to_owned())),
        };
        let peer = stream.peer_cred().map_err(|error| gone(error.to_string()))?;
        let own = rustix::process::geteuid().as_raw();
        if peer.uid() != own && own != 0 {
            return Err(gone("its socket is another user's".to_owned()));
        }
        Ok(stream)
    }

    /// One question, one answer.
    pub(in crate::cli) async fn ask(&self, request: &Request, patience: Duration) -> Result<Value, Fault> {
        let until = Instant::now() + BUSY_WAIT;
        loop {
            let answered = timeout(patience, self.ask_once(request)).await;
            let answer = answered.map_err(|_| self.silent(patience))??;
            if answer["error"]["code"] == "busy" && Instant::now() < until {
                sleep(BUSY_PAUSE).await;
                continue;
            }
            return self.settle(answer, request);
        }
    }

    async fn ask_once(&self, request: &Request) -> Result<Value, Fault> {
        let mut stream = self.say(request).await?;
        self.next(&mut stream).await?.ok_or_else(|| self.left())
    }

    /// Gives each line of a stream to `each`, until it has seen enough or there are no more. Without `follows` that
    /// is what is kept. Tells whether the stream ended by itself.
    pub(in crate::cli) async fn stream(
        &self,
        request: &Request,
        follows: bool,
        mut each: impl FnMut(Line) -> Result<bool, Fault>,
    ) -> Result<bool, Fault> {
        let mut stream = self.say(request).await?;
        let mut is_whole = false;
        while let Some(mut line) = self.next(&mut stream).await? {
            let goes_on = if line["error"].is_object() {
                return self.settle(line, request).map(|_| true);
            } else if let Some(missed) = line["missed"].as_u64() {
                each(Line::Missed(missed))?
            } else if line["kept"].is_u64() {
                is_whole = true;
                follows
            } else {
                each(Line::One(line["one"].take()))?
            };
            if !goes_on {
                return Ok(false);
            }
        }
        if is_whole { Ok(true) } else { Err(self.left()) }
    }

    async fn say(&self, request: &Request) -> Result<BufReader<UnixStream>, Fault> {
        let mut said = json!(request);
        said["v"] = VERSION.into();
        let mut stream = self.connect().await?;
        // One that turns us away may have done so before we spoke; its answer is there all the same.
        let _ = stream.write_all(format!("{said}\n").as_bytes()).await;
        Ok(BufReader::new(stream))
    }

    async fn next(&self, stream: &mut BufReader<UnixStream>) -> Result<Option<Value>, Fault> {
        let mut line = Vec::new();
        let read = stream.take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).await;
        read.map_err(|_| self.left())?;
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(|_| self.left())
    }

    /// An answer, or what is wrong, in the exit code that scripts know.
    fn settle(&self, mut answer: Value, request: &Request) -> Result<Value, Fault> {
        let Some(message) = answer["error"]["message"].as_str() else { return Ok(answer["ok"].take()) };
        let exit = match answer["error"]["code"].as_str() {
            Some("refused") if *request == Request::Reload => Exit::ConfigInvalid,
            Some("refused") => Exit::Usage,
            Some("busy") => Exit::Unreachable,
            _ => Exit::Unexpected,
        };
        let what = if exit == Exit::Unexpected {
            format!(
                "colibri {} does not understand this one; is it another version? It says: {message}",
                self.pid
            )
        } else {
            message.to_owned()
        };
        Err(Fault::new(exit, what))
    }

    fn silent(&self, patience: Duration) -> Fault {
        let what = format!("colibri {} did not answer within {} s", self.pid, patience.as_secs());
        Fault::new(Exit::Unreachable, what)
    }

    fn left(&self) -> Fault {
        Fault::new(Exit::Unreachable, format!("colibri {} ended before it had answered", self.pid))
    }
}
