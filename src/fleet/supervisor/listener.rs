//! Hears what a server says without being asked, and asks the client on its behalf.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use crate::domain::audit::Pending;
use crate::domain::face::{Face, Unasked, needs, takes_a_person};
use crate::fleet::inbox::Handler;
use crate::fleet::logbook::Logbook;
use crate::mcp::error::{Error, code};
use crate::mcp::raw::Members;

/// The ear of one supervised server.
pub(super) struct Listener {
    pub(super) slug: Arc<str>,
    /// Told when a list has changed: once is enough, however often the server says so.
    pub(super) stale: Arc<Notify>,
    pub(super) face: Option<Arc<dyn Face>>,
    /// How many of its questions wait for a person.
    pub(super) asking: watch::Sender<usize>,
    pub(super) logbook: Logbook,
}

impl Handler for Listener {
    fn asked(&self, method: &str, params: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        let Some(face) = self.face.as_ref().filter(|_| needs(method).is_some()) else {
            return Box::pin(std::future::ready(Err(Error::unknown_method(method))));
        };
        let method = method.to_owned();
        Box::pin(async move {
            let _waits = takes_a_person(&method).then(|| Waits::begin(&self.asking));
            face.ask(&self.slug, &method, params).await.map_err(|unasked| refusal(&method, unasked))
        })
    }

    fn told(&self, method: &str, params: Option<Bytes>) {
        if method.ends_with("/list_changed") {
            return self.stale.notify_one();
        }
        let Some(face) = &self.face else { return };
        match method {
            "notifications/message" => face.tell(method, params.map(|params| signed(&params, &self.slug))),
            "notifications/resources/updated" => face.tell(method, params),
            // Whatever else it says concerns colibri's connection, or nobody.
            _ => {}
        }
    }

    fn muttered(&self, words: &[u8]) {
        self.logbook.heard(words);
    }
}

/// Counts a question for as long as it waits.
struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    fn begin(asking: &'a watch::Sender<usize>) -> Self {
        asking.send_modify(|count| *count += 1);
        Self(asking)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A log message that says whose it is: `logger` is the server, and its own name for the logger after it.
fn signed(params: &Bytes, slug: &str) -> Bytes {
    let Some(members) = Members::of(params) else { return params.clone() };
    let own: Option<String> = members.get("logger").and_then(|raw| serde_json::from_str(raw.get()).ok());
    let logger = own.map_or_else(|| slug.to_owned(), |own| format!("{slug}/{own}"));
    members.with("logger", serde_json::json!(logger).to_string().as_bytes()).into()
}

/// What the server is told whose question was not answered.
fn refusal(method: &str, unasked: Unasked) -> Error {
    #[derive(Deserialize)]
    struct Refused {
        code: i32,
        message: String,
        data: Option<serde_json::Value>,
    }
    match unasked {
        Unasked::Unable => Error::unknown_method(method),
        Unasked::NotThere => Error {
            code: code::METHOD_NOT_FOUND,
            message: "no client is connected that can be asked: it has left, or speaks a newer protocol"
                .into(),
            data: None,
        },
        Unasked::Busy => Error::internal("the client does not answer"),
        Unasked::Refused(raw) => match serde_json::from_slice::<Refused>(&raw) {
            Ok(Refused { code, message, data }) => Error { code, message: message.into(), data },
            Err(_) => Error::internal("the client answered with an error that cannot be read"),
        },
    }
}
