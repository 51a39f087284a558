//! One connection of the operator socket: one line in, one line or many out.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::domain::operator::{Came, Feed, Operator, Request, VERSION};

use super::{CONNECTIONS_MAX, READ_WAIT, REQUEST_BYTES_MAX, REQUEST_WAIT, STREAMS_MAX};

/// Why a request was not served.
#[derive(Clone, Copy)]
enum Refusal {
    /// It is none that is known.
    BadRequest,
    /// Too many are served already.
    Busy,
    /// It was understood, and cannot be done.
    Refused,
}

impl Refusal {
    fn word(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }

    fn told(self, message: &str) -> Value {
        json!({ "v": VERSION, "error": { "code": self.word(), "message": message } })
    }
}

/// Reads one request and serves it. What goes wrong with the other side is the other side's affair.
pub(super) async fn speak(stream: UnixStream, operator: &dyn Operator, streams: &Semaphore) {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let request = match timeout(REQUEST_WAIT, read(&mut reading)).await {
        Ok(Ok(Some(request))) => request,
        // Somebody who looked whether anybody is here.
        Ok(Ok(None)) => return,
        Ok(Err(why)) => return drop(write(&mut writing, &Refusal::BadRequest.told(&why)).await),
        Err(_) => {
            let why = format!("no request within {} s", REQUEST_WAIT.as_secs());
            return drop(write(&mut writing, &Refusal::BadRequest.told(&why)).await);
        }
    };
    let feed = match &request {
        Request::Logs { server, .. } => operator.logs(server),
        Request::Events { topic, .. } => operator.events(topic.as_deref()),
        _ => {
            let told = answer(operator, request).await;
            let told =
                told.map_or_else(|why| Refusal::Refused.told(&why), |ok| json!({ "v": VERSION, "ok": ok }));
            return drop(write(&mut writing, &told).await);
        }
    };
    let follows =
        matches!(request, Request::Logs { follow: true, .. } | Request::Events { follow: true, .. });
    let _ = match feed {
        Err(why) => write(&mut writing, &Refusal::Refused.told(&why)).await,
        Ok(feed) if follows => {
            if let Ok(_place) = streams.try_acquire() {
                stream_out(feed, &mut reading, &mut writing).await
            } else {
                let why = format!("{STREAMS_MAX} are followed already: end one of them");
                write(&mut writing, &Refusal::Busy.told(&why)).await
            }
        }
        Ok(feed) => write_all(&feed.kept, &mut writing).await,
    };
}

/// Says that there is no room, as far as that can be said without waiting.
pub(super) fn turn_away(stream: &UnixStream) {
    let why = format!("{CONNECTIONS_MAX} connections are served already: try again");
    let _ = stream.try_write(format!("{}\n", Refusal::Busy.told(&why)).as_bytes());
}

async fn answer(operator: &dyn Operator, request: Request) -> Result<Value, String> {
    match request {
        Request::Status => operator.status().await,
        Request::Show { server } => operator.show(&server).await,
        Request::Restart { server } => operator.restart(&server).await,
        Request::Disable { server } => operator.disable(&server).await,
        Request::Enable { server } => operator.enable(&server).await,
        Request::Test { server } => operator.test(&server).await,
        Request::Accept { server, tools, digest } => {
            let accepted = operator.accept(&server, &tools, digest).await;
            accepted.map(|accepted| json!({ "accepted": accepted }))
        }
        Request::Reload => operator.reload().await.map(|changed| json!({ "changed": changed })),
        Request::Logs { .. } | Request::Events { .. } => unreachable!("these are streams"),
    }
}

/// One request; nothing if the other side left without one.
async fn read(input: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Request>, String> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let mut line = Vec::new();
    let mut bounded = input.take(REQUEST_BYTES_MAX as u64 + 1);
    bounded.read_until(b'\n', &mut line).await.map_err(|error| error.to_string())?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > REQUEST_BYTES_MAX {
        return Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes"));
    }
    let Versioned { v } = serde_json::from_slice(&line)
        .map_err(|error| format!("no request: {error}; write {{\"v\":{VERSION},\"verb\":\"status\"}}"))?;
    if v != VERSION {
        return Err(format!("version {v} is not known here: this is version {VERSION}"));
    }
    serde_json::from_slice(&line).map(Some).map_err(|error| error.to_string())
}

/// What is kept, and then whatever comes, until one side leaves.
async fn stream_out(
    mut feed: Feed,
    reading: &mut (impl AsyncBufRead + Unpin),
    writing: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    write_all(&feed.kept, writing).await?;
    feed.kept = Vec::new();
    let mut ignored = [0; 512];
    loop {
        let came = tokio::select! {
            came = feed.coming.next() => came,
            // Nothing more is expected; its end is how we learn that nobody reads.
            read = reading.read(&mut ignored) => match read {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => continue,
            },
        };
        match came {
            Some(Came::One(one)) => write(writing, &json!({ "v": VERSION, "one": one })).await?,
            Some(Came::Missed(count)) => write(writing, &json!({ "v": VERSION, "missed": count })).await?,
            None => return Ok(()),
        }
    }
}

async fn write_all(all: &[Value], writing: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    for one in all {
        write(writing, &json!({ "v": VERSION, "one": one })).await?;
    }
    // So that an empty stream is told from a connection that broke.
    write(writing, &json!({ "v": VERSION, "kept": all.len() })).await
}

async fn write(writing: &mut (impl AsyncWrite + Unpin), value: &Value) -> std::io::Result<()> {
    let line = format!("{value}\n");
    timeout(READ_WAIT, writing.write_all(line.as_bytes()))
        .await
        .unwrap_or(Err(std::io::ErrorKind::TimedOut.into()))
}
