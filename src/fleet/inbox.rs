//! Where a link puts what comes from its server: each frame is handed to whoever waits for it.
//!
//! Owns: what waits for which answer, and what is done with what nobody waits for. Works in the task of
//! the link that reads, so that an answer wakes its caller and nobody else. A link holds an [`Inbox`] and
//! does not see who is behind it: a connection's `Desk`, or in a worker the pipe that leads to one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use tokio::sync::{Semaphore, SetOnce, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::domain::audit::Pending;
use crate::domain::log::Logger;
use crate::mcp::envelope::{self, Frame, Id, Message};
use crate::mcp::error::Error;
use crate::mcp::listen;
use crate::mcp::{params, request};

use super::error::Cause;
use super::link::{About, Link, Outgoing};

/// Requests in flight on one connection. A caller beyond this is told so; nothing queues without end.
pub const IN_FLIGHT_MAX: usize = 1024;

/// Requests of the server's that are answered at the same time. A server that asks faster than it
/// reads its answers gets none for the rest.
const ANSWERING_MAX: usize = 16;

/// What a server may ask of us, and tell us without being asked. The default refuses politely.
pub trait Handler: Send + Sync + 'static {
    /// A request of the server's; the result is raw JSON. `ping` never comes here.
    fn asked(&self, method: &str, params: Option<Bytes>) -> Pending<'_, Result<Bytes, Error>> {
        let _ = params;
        let refusal = Error::unknown_method(method);
        Box::pin(std::future::ready(Err(refusal)))
    }

    /// A notification that belongs to no request of ours.
    fn told(&self, method: &str, params: Option<Bytes>) {
        let _ = (method, params);
    }

    /// What it wrote to its stderr, in whatever pieces it came. Must not wait.
    fn muttered(&self, words: &[u8]) {
        let _ = words;
    }
}

/// Refuses everything, politely.
pub struct Deaf;

impl Handler for Deaf {}

/// What a server says while it works on a request: progress, log messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Such as `notifications/progress`.
    pub method: String,
    /// Its params, raw.
    pub params: Option<Bytes>,
}

/// Who takes what comes from a server. None of this waits.
pub(super) trait Receive: Send + Sync {
    /// One frame; whether it answers the request whose own exchange carried it.
    fn frame(&self, frame: &Bytes, exchange: Option<u64>) -> bool;
    /// A frame passed the limit and was skipped.
    fn too_long(&self, exchange: Option<u64>);
    /// Nothing more will come.
    fn ended(&self, cause: &Cause);
    /// Something for people, that somebody should look at.
    fn warn(&self, what: &str);
    /// Something for people, at debug level.
    fn debug(&self, what: &str);
    /// What the server wrote to its stderr.
    fn muttered(&self, words: &[u8]);
}

/// A cheap handle. A link holds one; it does not keep the connection alive.
#[derive(Clone)]
pub struct Inbox(Arc<dyn Receive>);

impl Inbox {
    pub(super) fn new(receiver: Arc<dyn Receive>) -> Self {
        Self(receiver)
    }

    /// Takes one frame. `exchange` is the request whose own exchange carried it, where a link has
    /// those. Returns whether that request is now answered.
    pub fn frame(&self, frame: &Bytes, exchange: Option<u64>) -> bool {
        self.0.frame(frame, exchange)
    }

    /// A frame passed the limit and was skipped. Which answer it was cannot be read; it is known if
    /// it had an exchange of its own, or if only one request waits.
    pub fn too_long(&self, exchange: Option<u64>) {
        self.0.too_long(exchange);
    }

    /// Nothing more will come: fails everything that waits, and everything that would. The first
    /// reason stays.
    pub fn ended(&self, cause: &Cause) {
        self.0.ended(cause);
    }

    /// Says something to people that somebody should look at.
    pub fn warn(&self, what: &str) {
        self.0.warn(what);
    }

    /// Says something to people, at debug level.
    pub fn debug(&self, what: &str) {
        self.0.debug(what);
    }

    /// What the server wrote to its stderr, in whatever pieces it came.
    pub(super) fn muttered(&self, words: &[u8]) {
        self.0.muttered(words);
    }
}

/// Whose answer it is: the request it names, or, of an error about a message that the server could not read, which
/// has no id, the one whose exchange carried it.
fn addressee(id: Option<&Id>, exchange: Option<u64>) -> Option<u64> {
    id.map_or(exchange, |id| id.raw().parse().ok())
}

/// Whether a frame answers the request whose own exchange carried it.
pub(super) fn answers(frame: &Bytes, exchange: u64) -> bool {
    let is_answer = |message: &Message| matches!(message, Message::Response { id, .. } if addressee(id.as_ref(), Some(exchange)) == Some(exchange));
    match envelope::read(frame) {
        Frame::Single(message) => is_answer(&message),
        Frame::Batch(messages) => messages.iter().any(is_answer),
    }
}

/// A cheap handle to what waits on one connection; the connection has it.
#[derive(Clone)]
pub(super) struct Desk(Arc<State>);

struct State {
    waiting: Mutex<Waiting>,
    answering: Arc<Semaphore>,
    handler: Arc<dyn Handler>,
    logger: Logger,
    /// Questions of the server's that are not answered yet, under its ids.
    questions: Mutex<HashMap<Id, CancellationToken>>,
    /// Where our answers go, once the link is open.
    link: SetOnce<Weak<dyn Link>>,
    /// Cancelled when nothing more will come: nobody waits for our answers then.
    ended: CancellationToken,
}

impl State {
    fn questions(&self) -> MutexGuard<'_, HashMap<Id, CancellationToken>> {
        self.questions.lock().expect("nothing panics while it holds the questions")
    }
}

#[derive(Default)]
struct Waiting {
    answers: HashMap<u64, Waiter>,
    /// The request that stays open: no call, and not counted as one.
    listening: Option<Listening>,
    /// Why nothing more will be answered, once that is so.
    gone: Option<Cause>,
}

struct Waiter {
    answer: oneshot::Sender<Result<Bytes, Cause>>,
    notices: Option<mpsc::Sender<Notice>>,
}

struct Listening {
    id: u64,
    end: oneshot::Sender<Result<Bytes, Cause>>,
    /// Where what the server agrees to tell goes; taken with the first word of it.
    acknowledged: Option<oneshot::Sender<Bytes>>,
}

impl Waiting {
    /// The end of the request that stays open, if it is this one.
    fn end_of_listening(&mut self, id: u64) -> Option<oneshot::Sender<Result<Bytes, Cause>>> {
        self.listening.take_if(|listening| listening.id == id).map(|listening| listening.end)
    }

    /// Who waits for the end of this request, whatever it is.
    fn remove(&mut self, id: u64) -> Option<oneshot::Sender<Result<Bytes, Cause>>> {
        self.answers.remove(&id).map(|waiter| waiter.answer).or_else(|| self.end_of_listening(id))
    }
}

impl Desk {
    pub(super) fn new(handler: Arc<dyn Handler>, logger: Logger) -> Self {
        Self(Arc::new(State {
            waiting: Mutex::default(),
            answering: Arc::new(Semaphore::new(ANSWERING_MAX)),
            handler,
            logger,
            questions: Mutex::default(),
            link: SetOnce::new(),
            ended: CancellationToken::new(),
        }))
    }

    /// Where a link puts what comes.
    pub(super) fn inbox(&self) -> Inbox {
        Inbox::new(Arc::new(self.clone()))
    }

    pub(super) fn answers_go_to(&self, link: &Arc<dyn Link>) {
        let _ = self.0.link.set(Arc::downgrade(link));
    }

    /// Nothing more will come: fails everything that waits, and everything that would. The first
    /// reason stays.
    pub(super) fn ended(&self, cause: &Cause) {
        let mut waiting = self.waiting();
        let cause = waiting.gone.get_or_insert_with(|| cause.clone()).clone();
        for (_, waiter) in waiting.answers.drain() {
            let _ = waiter.answer.send(Err(cause.clone()));
        }
        if let Some(listening) = waiting.listening.take() {
            let _ = listening.end.send(Err(cause));
        }
        drop(waiting);
        self.0.ended.cancel();
    }

    /// Waits until nothing more will come, and says why.
    pub(super) async fn gone(&self) -> Cause {
        self.0.ended.cancelled().await;
        self.waiting().gone.clone().unwrap_or(Cause::Closed)
    }

    pub(super) fn expect(
        &self,
        id: u64,
        notices: Option<mpsc::Sender<Notice>>,
    ) -> Result<oneshot::Receiver<Result<Bytes, Cause>>, Cause> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting();
        if let Some(cause) = &waiting.gone {
            return Err(cause.clone());
        }
        if waiting.answers.len() >= IN_FLIGHT_MAX {
            return Err(Cause::Busy(IN_FLIGHT_MAX));
        }
        waiting.answers.insert(id, Waiter { answer, notices });
        Ok(answered)
    }

    /// The same for the one request that stays open; the one before it, if any, is over.
    pub(super) fn expect_listening(
        &self,
        id: u64,
        acknowledged: oneshot::Sender<Bytes>,
    ) -> Result<oneshot::Receiver<Result<Bytes, Cause>>, Cause> {
        let (end, ended) = oneshot::channel();
        let mut waiting = self.waiting();
        if let Some(cause) = &waiting.gone {
            return Err(cause.clone());
        }
        waiting.listening = Some(Listening { id, end, acknowledged: Some(acknowledged) });
        Ok(ended)
    }

    pub(super) fn forget(&self, id: u64) {
        self.waiting().remove(id);
    }

    /// Whether nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.waiting().answers.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().expect("nothing panics while it holds the waiting")
    }

    fn take(&self, message: Message, exchange: Option<u64>) -> bool {
        match message {
            Message::Response { id, outcome } => {
                let id = addressee(id.as_ref(), exchange);
                self.answered(id, outcome);
                id.is_some() && id == exchange
            }
            Message::Notification { method, params } => {
                self.told(method, params, exchange);
                false
            }
            Message::Request { id, method, params } => {
                self.asked(id, method, params);
                false
            }
            // Servers print to stdout. It is no message, and nothing waits for it.
            Message::Refused { error, .. } => {
                self.debug(&format!("not a message: {error}"));
                false
            }
        }
    }

    fn answered(&self, id: Option<u64>, outcome: Result<Bytes, Bytes>) {
        let waiter = id.and_then(|id| self.waiting().remove(id));
        // An answer to nothing: late, doubled or made up. It changes nothing.
        let Some(waiter) = waiter else { return };
        let _ = waiter.send(outcome.map_err(|error| Cause::answered(&error)));
    }

    /// What belongs to a request goes to its caller, if the caller listens; the rest to the handler.
    /// A listener that does not keep up misses some; nothing waits for it.
    fn told(&self, method: String, params: Option<Bytes>, exchange: Option<u64>) {
        if self.told_of_listening(&method, params.as_ref(), exchange) {
            return;
        }
        let progress = method == "notifications/progress";
        let message = method == "notifications/message";
        let of =
            if progress { params.as_ref().and_then(progress_token) } else { exchange.filter(|_| message) };
        let listener = of.and_then(|id| self.waiting().answers.get(&id).map(|waiter| waiter.notices.clone()));
        match listener {
            Some(Some(listener)) => {
                let _ = listener.try_send(Notice { method, params });
            }
            // Progress that nobody asked for, or that came too late.
            _ if progress => {}
            Some(None) | None => self.0.handler.told(&method, params),
        }
    }

    /// Whether it is about the request that stays open itself; the changes told on it are for the handler.
    fn told_of_listening(&self, method: &str, params: Option<&Bytes>, exchange: Option<u64>) -> bool {
        match (method, params) {
            (listen::ACKNOWLEDGED, Some(params)) => {
                let id = listen::subscription(params).or(exchange);
                let mut waiting = self.waiting();
                let listening = waiting.listening.as_mut().filter(|listening| Some(listening.id) == id);
                if let Some(acknowledged) = listening.and_then(|listening| listening.acknowledged.take()) {
                    let _ = acknowledged.send(params.clone());
                }
                true
            }
            ("notifications/cancelled", Some(params)) if self.taken_back(params) => true,
            // Some end it this way; the specification has both.
            ("notifications/cancelled", Some(params)) => {
                let end = listen::cancelled(params).and_then(|id| self.waiting().end_of_listening(id));
                end.is_some_and(|end| end.send(Ok(Bytes::from_static(b"{}"))).is_ok())
            }
            _ => false,
        }
    }

    /// Whether the server has taken back a question of its own.
    fn taken_back(&self, params: &Bytes) -> bool {
        let question = params::cancelled(Some(params)).and_then(|id| self.0.questions().remove(&id));
        question.inspect(CancellationToken::cancel).is_some()
    }

    fn asked(&self, id: Id, method: String, params: Option<Bytes>) {
        let Ok(place) = Arc::clone(&self.0.answering).try_acquire_owned() else {
            return self.debug("the server asks faster than it reads");
        };
        let desk = Arc::clone(&self.0);
        let question = desk.ended.child_token();
        desk.questions().insert(id.clone(), question.clone());
        tokio::spawn(async move {
            let _place = place;
            let answer = async {
                let outcome = match method.as_str() {
                    "ping" => Ok(Bytes::from_static(b"{}")),
                    method => desk.handler.asked(method, params).await,
                };
                let Some(link) = desk.link.wait().await.upgrade() else { return };
                let frame = request::answer(id.raw(), outcome);
                let _ = link.send(Outgoing { frame, about: About::Answer }).await;
            };
            // A server that does not read would hold the answer, and the answer the link; one that takes its question
            // back wants none.
            question.run_until_cancelled(answer).await;
            desk.questions().remove(&id);
        });
    }
}

impl Receive for Desk {
    fn frame(&self, frame: &Bytes, exchange: Option<u64>) -> bool {
        match envelope::read(frame) {
            Frame::Single(message) => self.take(message, exchange),
            // Only 2025-03-26 has them, and its receivers must accept them.
            Frame::Batch(messages) => {
                messages.into_iter().fold(false, |answered, message| self.take(message, exchange) | answered)
            }
        }
    }

    fn too_long(&self, exchange: Option<u64>) {
        self.0.logger.warn(format_args!("[mcp-bridge] skipped a frame that is longer than the limit"));
        let mut waiting = self.waiting();
        let only = (waiting.answers.len() == 1).then(|| waiting.answers.keys().next().copied()).flatten();
        if let Some(answer) = exchange.or(only).and_then(|id| waiting.remove(id)) {
            let cause = Cause::Protocol("the answer is longer than the frame limit".to_owned());
            let _ = answer.send(Err(cause));
        }
    }

    fn ended(&self, cause: &Cause) {
        Self::ended(self, cause);
    }

    fn warn(&self, what: &str) {
        self.0.logger.warn(format_args!("[mcp-bridge] {what}"));
    }

    fn debug(&self, what: &str) {
        self.0.logger.debug(format_args!("[mcp-bridge] {what}"));
    }

    fn muttered(&self, words: &[u8]) {
        self.0.handler.muttered(words);
    }
}

fn progress_token(params: &Bytes) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Progress {
        #[serde(rename = "progressToken")]
        token: u64,
    }
    serde_json::from_slice::<Progress>(params).ok().map(|progress| progress.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that stays open is not counted, and does not make it doubtful which answer was too long.
    #[test]
    fn listening_is_no_request_in_flight() {
        let inbox = Desk::new(Arc::new(Deaf), Logger::silent());
        let (agree, mut agreed) = oneshot::channel();
        let mut ended = inbox.expect_listening(1, agree).expect("it is open");
        assert_eq!(inbox.in_flight(), 0);
        inbox.too_long(None);
        assert!(ended.try_recv().is_err(), "it goes on");

        let mut answered = inbox.expect(2, None).expect("it is open");
        assert_eq!(inbox.in_flight(), 1);
        inbox.too_long(None);
        assert!(matches!(answered.try_recv(), Ok(Err(Cause::Protocol(_)))));

        let frame = |text: &'static str| inbox.frame(&Bytes::from_static(text.as_bytes()), None);
        let word = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#;
        frame(word);
        assert!(agreed.try_recv().is_err(), "it is another's");
        inbox.frame(&Bytes::from(word.replace(":7}", ":1}")), None);
        assert!(agreed.try_recv().is_ok());
        frame(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
        assert!(ended.try_recv().is_err());
        frame(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(matches!(ended.try_recv(), Ok(Ok(_))));
    }
}
