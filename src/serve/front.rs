//! The way from a server to the client: requests of colibri's own on the client's connection, and their answers.
//!
//! Owns: which question waits for which answer, how many each server may have open, that the person who is asked sees
//! which server it is, and what the client said it can do.
//! Must not know: why a server asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::domain::audit::Pending;
use crate::domain::face::{Face, Unasked, needs};
use crate::mcp::envelope::Id;
use crate::mcp::raw::Members;
use crate::mcp::request::{self, Meta};

use super::outbox::Outbox;

/// Questions that wait for an answer. A client with more than this does not answer.
const QUESTIONS_MAX: usize = 64;

/// … of one server: however often it asks, the others are heard.
const QUESTIONS_OF_ONE_MAX: usize = 16;

/// Where a client finds which server asks, beside what people see.
const ASKED_BY: &str = "colibri/server";

/// A person may take this long. Nothing waits for ever.
const ANSWER_WITHIN: Duration = Duration::from_mins(10);

/// A cheap handle: the servers hold one, the connection another.
#[derive(Clone, Default)]
pub struct Front(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// What the client can do; nothing until it has said so.
    client: watch::Sender<Option<Client>>,
    questions: Mutex<Questions>,
}

#[derive(Clone)]
struct Client {
    capabilities: Value,
    /// Whether it can be asked at all: the newer family is not.
    outbox: Option<Outbox>,
    log_level: Option<&'static str>,
}

#[derive(Default)]
struct Questions {
    next: u64,
    waiting: HashMap<u64, Question>,
}

struct Question {
    server: Box<str>,
    answer: oneshot::Sender<Result<Bytes, Bytes>>,
}

impl Questions {
    fn has_room_for(&self, server: &str) -> bool {
        let own = self.waiting.values().filter(|question| *question.server == *server).count();
        self.waiting.len() < QUESTIONS_MAX && own < QUESTIONS_OF_ONE_MAX
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Front").finish_non_exhaustive()
    }
}

impl Front {
    /// Where there is no client: servers are promised nothing, and do not wait to hear what it can do.
    pub fn of_nobody() -> Self {
        let front = Self::default();
        front.introduce(json!({}), None);
        front
    }

    /// The client has said what it can do; without an outbox it is one that is not asked.
    pub(super) fn introduce(&self, capabilities: Value, outbox: Option<Outbox>) {
        self.0.client.send_if_modified(|client| {
            let is_first = client.as_ref().is_none_or(|client| client.outbox.is_none() && outbox.is_some());
            if is_first {
                *client = Some(Client { capabilities, outbox, log_level: None });
            }
            is_first
        });
    }

    /// The client wants log messages from this severity on.
    pub(super) fn set_log_level(&self, level: &'static str) {
        self.0.client.send_if_modified(|client| {
            if let Some(client) = client {
                client.log_level = Some(level);
            }
            false
        });
    }

    /// The client answered a question. An answer to nothing changes nothing.
    pub(super) fn answered(&self, id: &Id, outcome: Result<Bytes, Bytes>) {
        let waiter = id.raw().parse().ok().and_then(|id: u64| self.questions().waiting.remove(&id));
        if let Some(question) = waiter {
            let _ = question.answer.send(outcome);
        }
    }

    /// The client is gone: nobody will answer.
    pub(super) fn gone(&self) {
        self.0.client.send_if_modified(|client| {
            if let Some(client) = client {
                client.outbox = None;
            }
            false
        });
        self.questions().waiting.clear();
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.0.questions.lock().expect("nothing panics while it holds the questions")
    }

    /// The client's outbox, if it can be asked this now.
    fn asked_of(&self, method: &str) -> Result<Outbox, Unasked> {
        let client = self.0.client.borrow();
        let client = client.as_ref().ok_or(Unasked::NotThere)?;
        let outbox = client.outbox.clone().ok_or(Unasked::NotThere)?;
        let able = needs(method).is_some_and(|capability| client.capabilities.get(capability).is_some());
        if !able {
            return Err(Unasked::Unable);
        }
        if outbox.has_room() { Ok(outbox) } else { Err(Unasked::Busy) }
    }
}

impl Face for Front {
    fn introduced(&self) -> Pending<'_, Value> {
        let mut client = self.0.client.subscribe();
        Box::pin(async move {
            match client.wait_for(Option::is_some).await {
                Ok(client) => {
                    // One that cannot be asked is not promised to anybody.
                    let asked = client.as_ref().filter(|client| client.outbox.is_some());
                    asked.map_or_else(|| json!({}), |client| client.capabilities.clone())
                }
                Err(_) => json!({}),
            }
        })
    }

    fn ask<'a>(
        &'a self,
        server: &'a str,
        method: &'a str,
        params: Option<Bytes>,
    ) -> Pending<'a, Result<Bytes, Unasked>> {
        Box::pin(async move {
            let outbox = self.asked_of(method)?;
            let (answer, answered) = oneshot::channel();
            let id = {
                let mut questions = self.questions();
                if !questions.has_room_for(server) {
                    return Err(Unasked::Busy);
                }
                questions.next += 1;
                let id = questions.next;
                questions.waiting.insert(id, Question { server: server.into(), answer });
                id
            };
            let mut asked = Asked { front: self, outbox, id, is_done: false };
            let params = signed(server, method, params.as_deref().unwrap_or(b"{}"));
            let frame = request::request(id, method, Some(&params), Meta::default());
            asked.outbox.push(frame);
            let outcome = timeout(ANSWER_WITHIN, answered).await;
            asked.is_done = matches!(outcome, Ok(Ok(_)));
            match outcome {
                Ok(Ok(answer)) => answer.map_err(Unasked::Refused),
                Ok(Err(_)) => Err(Unasked::NotThere),
                Err(_) => Err(Unasked::Busy),
            }
        })
    }

    fn tell(&self, method: &str, params: Option<Bytes>) {
        let outbox = self.0.client.borrow().as_ref().and_then(|client| client.outbox.clone());
        if let Some(outbox) = outbox.filter(Outbox::has_room) {
            outbox.push(request::notification(method, params.as_deref()));
        }
    }

    fn log_level(&self) -> Option<&'static str> {
        self.0.client.borrow().as_ref().and_then(|client| client.log_level)
    }
}

/// A question that says which server asks it: in `_meta`, and where people read it.
fn signed(server: &str, method: &str, params: &[u8]) -> Vec<u8> {
    let Some(members) = Members::of(params) else { return params.to_vec() };
    let name = json!(server).to_string();
    let own = members.get("_meta").and_then(|meta| Members::of(meta.get().as_bytes()));
    let meta = own.map_or_else(
        || json!({ ASKED_BY: server }).to_string().into_bytes(),
        |own| own.with(ASKED_BY, name.as_bytes()),
    );
    let signed = members.with("_meta", &meta);
    let message = members.get("message").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    match (method, message, Members::of(&signed)) {
        ("elicitation/create", Some(message), Some(members)) => {
            members.with("message", json!(format!("[{server}] {message}")).to_string().as_bytes())
        }
        _ => signed,
    }
}

/// A question on its way. Whoever leaves without its answer takes it back.
struct Asked<'a> {
    front: &'a Front,
    outbox: Outbox,
    id: u64,
    is_done: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.front.questions().waiting.remove(&self.id);
        if !self.is_done && self.outbox.has_room() {
            let params = json!({ "requestId": self.id, "reason": "the server no longer asks" }).to_string();
            self.outbox.push(request::notification("notifications/cancelled", Some(params.as_bytes())));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// PR-11: whoever is asked sees which server asks; everything else of the question stays as it was.
    #[test]
    fn a_question_says_whose_it_is() {
        let check = |method: &str, params: &str, expected: &str| {
            let signed = signed("notes", method, params.as_bytes());
            assert_eq!(String::from_utf8(signed).expect("UTF-8"), expected);
        };
        let (elicit, sample) = ("elicitation/create", "sampling/createMessage");
        check(
            elicit,
            r#"{"message":"[bank] Your PIN?","n":1.50}"#,
            r#"{"message":"[notes] [bank] Your PIN?","n":1.50,"_meta":{"colibri/server":"notes"}}"#,
        );
        check(
            elicit,
            r#"{"message":"a","message":"b","_meta":{"x":1.0,"colibri/server":"bank"}}"#,
            r#"{"message":"[notes] b","_meta":{"x":1.0,"colibri/server":"notes"}}"#,
        );
        check(elicit, r#"{"message":7}"#, r#"{"message":7,"_meta":{"colibri/server":"notes"}}"#);
        check(
            sample,
            r#"{"message":"m","_meta":null}"#,
            r#"{"message":"m","_meta":{"colibri/server":"notes"}}"#,
        );
        check("roots/list", "{}", r#"{"_meta":{"colibri/server":"notes"}}"#);
    }

    /// PR-11: a server that asks without end has its own questions refused, and no others'.
    #[tokio::test]
    async fn one_server_does_not_use_up_what_all_may_ask() {
        let (front, outbox) = (Front::default(), Outbox::new(1 << 20));
        front.introduce(json!({ "roots": {} }), Some(outbox.clone()));
        let ask = |server: &'static str| {
            let mut asked = Box::pin(front.ask(server, "roots/list", None));
            let now = (&mut asked).now_or_never();
            (asked, now)
        };
        let open: Vec<_> = (0..QUESTIONS_OF_ONE_MAX).map(|_| ask("greedy")).collect();
        assert!(open.iter().all(|(_, now)| now.is_none()), "they wait for answers");
        assert_eq!(ask("greedy").1, Some(Err(Unasked::Busy)));
        let (other, now) = ask("other");
        assert_eq!(now, None, "another server is heard");
        drop(open);
        assert_eq!(ask("greedy").1, None, "and so is this one, when it has taken its questions back");
        drop(other);
        assert!(front.questions().waiting.is_empty());
    }
}
