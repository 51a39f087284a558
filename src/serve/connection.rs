//! One client, from its first byte to the last answer: wait, decide, act.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Notice, Reply};
use crate::domain::log::Logger;
use crate::domain::offer::Changes;
use crate::mcp::answer;
use crate::mcp::envelope::{self, Frame, Id, Message};
use crate::mcp::error::Error;
use crate::mcp::lines::{Line, Lines};
use crate::mcp::request::notification;

use super::front::Front;
use super::in_flight::{InFlight, Ticket, contain, still_running};
use super::listening::{Listen, Listening};
use super::outbox::Outbox;
use super::session::{Answering, Asked, Session, Step};
use super::{CallPath, Ended, Limits};

/// Asides of one call that are on their way to the client.
const NOTICES_AHEAD: usize = 32;

/// A connection.
pub(super) struct Connection<P> {
    session: Session,
    calls: P,
    input: Input,
    in_flight: InFlight,
    listening: Listening,
    outbox: Outbox,
    front: Front,
    /// Whether the servers know what this client can be asked.
    introduced: bool,
    limits: Limits,
    logger: Logger,
}

/// The client's bytes, line by line.
struct Input {
    chunks: mpsc::Receiver<Bytes>,
    lines: Lines,
    /// The last line, perhaps without its newline, has been taken.
    ended: bool,
}

/// What a connection waits for.
enum Event {
    Line(Line),
    ListChanged,
    End(Ended),
}

/// An answer, or the call that will make it; none if the client takes the call back.
enum Pending {
    Ready(Bytes),
    Call(Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>),
}

impl<P: CallPath> Connection<P> {
    pub(super) fn new(
        session: Session,
        calls: P,
        chunks: mpsc::Receiver<Bytes>,
        outbox: Outbox,
        front: Front,
        limits: Limits,
        logger: Logger,
    ) -> Self {
        let input = Input { chunks, lines: Lines::new(limits.frame_bytes_max), ended: false };
        let in_flight = InFlight::new(limits.calls_in_flight_max);
        let listening = Listening::default();
        Self { session, calls, input, in_flight, listening, outbox, front, introduced: false, limits, logger }
    }

    /// Serves until one side ends it, then lets the calls in flight end.
    pub(super) async fn run(mut self, stop: CancellationToken) -> Ended {
        let mut changes = self.calls.list_changes();
        let mut told = *changes.borrow_and_update();
        let ended = loop {
            let event = tokio::select! {
                biased;
                ended = ending(&self.outbox, &stop) => Event::End(ended),
                () = changed(&mut changes) => Event::ListChanged,
                event = next_event(&self.outbox, &mut self.input) => event,
            };
            match event {
                Event::Line(line) => self.take(line, &stop).await,
                Event::ListChanged => {
                    let before = std::mem::replace(&mut told, *changes.borrow_and_update());
                    told.since(before).for_each(|method| self.tell(method));
                }
                Event::End(ended) => break ended,
            }
        };
        if let Some(reason) = self.outbox.loss() {
            self.logger.warn(format_args!("[colibri] the client is gone: {reason}"));
        }
        // What a server still asks would not be answered.
        self.front.gone();
        self.wind_down().await;
        ended
    }

    /// A list has changed. A client that does not read what it was told is not told more.
    fn tell(&self, method: &str) {
        if !self.outbox.has_room() {
            return;
        }
        if self.session.hears_changes() {
            self.outbox.push(notification(method, None));
        }
        self.listening.told(method).for_each(|frame| self.outbox.push(frame));
    }

    async fn take(&mut self, line: Line, stop: &CancellationToken) {
        let frame = match line {
            Line::Frame(frame) => frame,
            Line::TooLong => {
                let limit = self.limits.frame_bytes_max;
                self.logger.debug(format_args!("[colibri] skipped a frame of more than {limit} bytes"));
                let error = Error::invalid_request(format!("the frame is longer than {limit} bytes"));
                return self.outbox.push(answer::failure(None, &error));
            }
        };
        match envelope::read(&frame) {
            Frame::Single(message) => self.single(message, frame.len(), stop).await,
            Frame::Batch(messages) if self.session.batching() => {
                let share = frame.len() / messages.len();
                self.batch(messages, share, stop).await;
            }
            Frame::Batch(_) => {
                let error = Error::invalid_request("batches belong to revision 2025-03-26 alone");
                self.outbox.push(answer::failure(None, &error));
            }
        }
    }

    async fn single(&mut self, message: Message, bytes: usize, stop: &CancellationToken) {
        match self.begin(message, bytes, stop).await {
            None => {}
            Some(Pending::Ready(answer)) => self.outbox.push(answer),
            Some(Pending::Call(call)) => {
                let outbox = self.outbox.clone();
                self.in_flight.spawn(async move {
                    if let Some(answer) = call.await {
                        outbox.push(answer);
                    }
                });
            }
        }
    }

    /// Begins all that a batch asks, and answers when all of it is done.
    async fn batch(&mut self, messages: Vec<Message>, share: usize, stop: &CancellationToken) {
        let mut tasks = Vec::with_capacity(messages.len());
        for message in messages {
            if let Some(pending) = self.begin(message, share, stop).await {
                // At once: the next member may wait for the place that this one holds.
                tasks.push(self.in_flight.spawn(pending.held(self.outbox.clone())));
            }
        }
        let outbox = self.outbox.clone();
        self.in_flight.spawn(async move {
            let mut answers = Vec::with_capacity(tasks.len());
            for task in tasks {
                // Panics are contained inside, and nobody aborts these tasks.
                answers.extend(task.await.unwrap_or_default());
            }
            if !answers.is_empty() {
                outbox.push(answer::batch(&answers));
            }
            outbox.release(answers.iter().map(Bytes::len).sum());
        });
    }

    /// Does what a message asks, as far as it is done at once. `bytes` is what it keeps in memory: its
    /// arguments are a slice of the frame, so all of the frame.
    async fn begin(&mut self, message: Message, bytes: usize, stop: &CancellationToken) -> Option<Pending> {
        let next = self.session.accept(message, &self.calls);
        self.introduce(&next);
        match next {
            Step::Silence => None,
            Step::Answer(answer) => Some(Pending::Ready(answer)),
            Step::Cancel(id) => {
                self.listening.cancel(&id);
                self.in_flight.cancel(&id);
                None
            }
            Step::Listen(listen) => self.listen(listen),
            Step::Call(asked) => Some(self.call(*asked, bytes, stop).await),
            Step::Answered(id, outcome) => {
                self.front.answered(&id, outcome);
                None
            }
            Step::Tell(method) => {
                self.calls.tell_servers(method);
                None
            }
            Step::LogLevel(level, answer) => {
                self.front.set_log_level(level);
                self.calls.log_level(level);
                Some(Pending::Ready(answer))
            }
        }
    }

    /// Begins to tell of changes, or refuses to. That it has begun is no answer: a batch does not hold it back.
    fn listen(&mut self, listen: Listen) -> Option<Pending> {
        let id = listen.id.clone();
        let is_running = self.in_flight.has(&id) || self.listening.has(&id);
        let opened = if is_running { Err(still_running(&id)) } else { self.listening.open(listen) };
        match opened {
            Ok(acknowledged) => {
                self.outbox.push(acknowledged);
                None
            }
            Err(error) => Some(Pending::Ready(answer::failure(Some(&id), &error))),
        }
    }

    /// Servers wait to know whether somebody is there whom they can ask: a client that has begun a session, or,
    /// never, one of the newer family.
    fn introduce(&mut self, step: &Step) {
        if self.introduced {
            return;
        }
        if let Some(abilities) = self.session.abilities() {
            let abilities = serde_json::from_slice(&abilities).unwrap_or_default();
            self.front.introduce(abilities, Some(self.outbox.clone()));
            self.introduced = true;
        } else if matches!(step, Step::Call(_) | Step::Listen(_) | Step::Answer(_)) {
            self.front.introduce(serde_json::Value::Null, None);
        }
    }

    /// Enters a call and lets it go its own way. Reading waits only here, where yet another call finds
    /// as many waiting as may run; until then whatever else the client says is heard, a cancellation
    /// above all.
    async fn call(&self, asked: Asked, bytes: usize, stop: &CancellationToken) -> Pending {
        let Asked { id, tool, arguments, caller, progress, rounds, answer } = asked;
        let entered = tokio::select! {
            biased;
            _ = ending(&self.outbox, stop) => Err(Error::internal("colibri is stopping: the call was not begun")),
            () = self.in_flight.room() => if self.listening.has(&id) {
                Err(still_running(&id))
            } else {
                let cancel = self.in_flight.token();
                self.in_flight.enter(id.clone(), cancel.clone(), bytes).map(|ticket| (ticket, cancel))
            }
        };
        match entered {
            Err(error) => Pending::Ready(answer::failure(Some(&id), &error)),
            Ok((ticket, cancel)) => {
                let call =
                    answer.call(self.calls.arrival(&tool, arguments, caller, cancel).with_rounds(rounds));
                let (call, asides) = match progress {
                    Some(token) => {
                        let (teller, noticed) = mpsc::channel(NOTICES_AHEAD);
                        (
                            call.with_notices(teller),
                            Some(Asides { noticed, token, outbox: self.outbox.clone() }),
                        )
                    }
                    None => (call, None),
                };
                let running =
                    run_call(self.calls.clone(), call, asides, ticket, id, answer, self.logger.clone());
                Pending::Call(Box::pin(running))
            }
        }
    }

    /// Calls in flight may end, then must; what they answered is written. Never longer than the limit.
    async fn wind_down(mut self) {
        let begun = Instant::now();
        self.listening.end().for_each(|frame| self.outbox.push(frame));
        let limits = &self.limits;
        if timeout_at(begun + limits.calls_grace, self.in_flight.idle()).await.is_err() {
            self.in_flight.cancel_all();
            let deadline = begun + limits.calls_grace + limits.calls_cancel;
            if timeout_at(deadline, self.in_flight.idle()).await.is_err() {
                let count = self.in_flight.count();
                self.logger
                    .warn(format_args!("[colibri] {count} calls did not end when they were cancelled"));
            }
        }
        self.outbox.close();
        if timeout_at(begun + limits.stop_within, self.outbox.ended()).await.is_err() {
            let bytes = self.outbox.bytes();
            self.logger.warn(format_args!("[colibri] the client did not read the last {bytes} bytes"));
        }
    }
}

impl Pending {
    /// The answer, counted in the outbox until its batch is done: a slow member holds back the answers
    /// of all others, and they take memory as if the client did not read them.
    fn held(self, outbox: Outbox) -> impl Future<Output = Option<Bytes>> + Send + 'static {
        if let Self::Ready(answer) = &self {
            outbox.hold(answer.len()); // Before the next frame is read.
        }
        async move {
            match self {
                Self::Ready(answer) => Some(answer),
                Self::Call(call) => call.await.inspect(|answer| outbox.hold(answer.len())),
            }
        }
    }
}

/// Returns when nothing new may be begun.
async fn ending(outbox: &Outbox, stop: &CancellationToken) -> Ended {
    tokio::select! {
        () = stop.cancelled() => Ended::Stopped,
        () = outbox.lost() => Ended::ClientGone,
    }
}

/// Returns when a list has changed; never, once it cannot change any more.
async fn changed(changes: &mut watch::Receiver<Changes>) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The next line, once there is room for an answer to it.
async fn next_event(outbox: &Outbox, input: &mut Input) -> Event {
    outbox.room().await;
    input.next().await.map_or(Event::End(Ended::EndOfInput), Event::Line)
}

impl Input {
    async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            let Some(chunk) = self.chunks.recv().await else {
                self.ended = true;
                return self.lines.finish();
            };
            self.lines.feed(chunk);
        }
    }
}

/// What a server says while it works on a call, on its way to the client.
struct Asides {
    noticed: mpsc::Receiver<Notice>,
    /// The client's own.
    token: Id,
    outbox: Outbox,
}

impl Asides {
    /// Passes them on until the call has ended, and all of them before its answer.
    async fn pass_on_until<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                Some(notice) = self.noticed.recv() => self.pass_on(&notice),
                ended = &mut call => {
                    while let Ok(notice) = self.noticed.try_recv() {
                        self.pass_on(&notice);
                    }
                    return ended;
                }
            }
        }
    }

    /// A client that does not read its answers gets no asides on top of them.
    fn pass_on(&self, Notice { method, params }: &Notice) {
        if self.outbox.has_room() {
            self.outbox.push(answer::noticed(method, params.as_ref(), &self.token));
        }
    }
}

/// One call, from its arrival to its answer. `None` if the client took it back.
async fn run_call(
    calls: impl CallPath,
    call: Call,
    asides: Option<Asides>,
    mut ticket: Ticket,
    id: Id,
    answering: Answering,
    logger: Logger,
) -> Option<Bytes> {
    let (correlation_id, tool) = (call.id.to_string(), Arc::clone(&call.tool));
    // Cancelled or not, it goes down the path: what was asked is on record.
    ticket.place(&call.cancel).await;
    let reply = match asides {
        Some(asides) => asides.pass_on_until(contain(calls.run(call))).await,
        None => contain(calls.run(call)).await,
    };
    let wanted = ticket.close();
    if let Err(panic) = &reply {
        logger.error(format_args!("[colibri] the call {correlation_id} of {tool:?} panicked: {panic}"));
    }
    if !wanted {
        return None;
    }
    let failure = |error| answer::failure(Some(&id), &error);
    Some(match reply {
        Ok(Reply::Envelope { body, is_error }) => answering.envelope(&id, &body, is_error, &correlation_id),
        Ok(Reply::Result { body, note }) => answering.result(&id, &body, &correlation_id, note.as_deref()),
        Ok(Reply::Error { raw }) => answer::relayed(&id, &raw),
        Ok(Reply::UnknownTool { message }) => answering.unknown(&id, message),
        // Not by the client, or nothing would be wanted.
        Ok(Reply::Cancelled) => failure(Error::internal("colibri is stopping: the call was cancelled")),
        Err(_) => failure(Error::internal(format!("the call failed inside colibri: {correlation_id}"))),
    })
}

#[cfg(test)]
mod tests;
