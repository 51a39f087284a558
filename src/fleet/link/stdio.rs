//! A link to a child process: one line is one frame.

use std::sync::{Arc, Mutex as SyncMutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::coop::consume_budget;

use crate::domain::audit::Pending;
use crate::domain::end::End;
use crate::fleet::error::Cause;
use crate::fleet::inbox::Inbox;
use crate::mcp::lines::{Line, Lines};
use crate::sandbox::policy::Network;
use crate::sandbox::{self, Layer, Life, Policy, Spec};

use super::{Link, Opener, Outgoing};

/// One read of the child's stdout.
const CHUNK_BYTES: usize = 64 << 10;

/// A child that closed its stdout has ended, or is about to; its last words are worth this wait.
pub(super) const LAST_WORDS_WAIT: Duration = Duration::from_millis(300);

/// Starts the same child each time.
#[derive(Clone, Debug)]
pub struct Stdio {
    /// What to start.
    pub spec: Spec,
    /// What it may touch and use.
    pub policy: Policy,
    /// The longest frame of the server.
    pub frame_bytes_max: usize,
    /// Those that it started.
    pub children: Children,
}

/// The children that one opener has started and that may still live.
#[derive(Clone, Debug, Default)]
pub struct Children(Arc<SyncMutex<Vec<Life>>>);

impl Children {
    pub(super) fn add(&self, life: Life) {
        let mut lives = self.0.lock().expect("nothing panics while it holds the lives");
        lives.retain(|life| !life.has_ended());
        lives.push(life);
    }

    /// Returns when none of them lives.
    pub(super) async fn settled(&self) {
        let lives = self.0.lock().expect("nothing panics while it holds the lives").clone();
        for life in lives {
            life.ended().await;
        }
    }
}

impl Opener for Stdio {
    fn open(&self, inbox: Inbox) -> Pending<'_, Result<Arc<dyn Link>, Cause>> {
        Box::pin(async move {
            let program = self.spec.program.to_string_lossy().into_owned();
            let child = match sandbox::start_under(&self.spec, &self.policy) {
                Ok(child) => child,
                Err(error) => return Err(not_started(&program, &error)),
            };
            self.children.add(child.life.clone());
            watch(&child.life, &inbox, &self.policy, &program);
            let reader = Reader {
                lines: Lines::new(self.frame_bytes_max),
                inbox,
                life: child.life.clone(),
                program,
                output_bytes_max: self.policy.limits.output_bytes,
            };
            tokio::spawn(reader.run(child.stdout));
            let stdin = Arc::new(Mutex::new(Some(child.stdin)));
            Ok(Arc::new(ChildLink { stdin, life: child.life }) as Arc<dyn Link>)
        })
    }

    fn settled(&self) -> Pending<'_, ()> {
        Box::pin(self.children.settled())
    }

    fn transport(&self) -> &'static str {
        "stdio"
    }
}

/// What it means that nothing was started. A machine that has too much to do is no reason never to try again.
pub(super) fn not_started(program: &str, error: &std::io::Error) -> Cause {
    refused(program, error, sandbox::is_passing(error))
}

/// The same, of what ended before its program ran.
pub(super) fn never_ran(program: &str, end: &End) -> Option<Cause> {
    match end {
        End::NotStarted { is_passing, .. } => Some(refused(program, end, *is_passing)),
        end => (!end.ran()).then(|| refused(program, end, false)),
    }
}

fn refused(program: &str, why: impl std::fmt::Display, is_passing: bool) -> Cause {
    if is_passing {
        return Cause::Unreachable(format!("cannot start {program} now: {why}"));
    }
    Cause::Start { program: program.to_owned(), reason: why.to_string() }
}

struct ChildLink {
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    life: Life,
}

impl Link for ChildLink {
    fn send<'a>(&'a self, outgoing: Outgoing<'a>) -> Pending<'a, Result<(), Cause>> {
        Box::pin(async move {
            let frame: Bytes = outgoing.frame;
            let pipe = Arc::clone(&self.stdin).lock_owned().await;
            if pipe.is_none() {
                return Err(Cause::Gone("the connection was closed".to_owned()));
            }
            let mut line = BytesMut::with_capacity(frame.len() + 1);
            line.extend_from_slice(&frame);
            // What a caller gave may have line ends between its values; here they would end the frame.
            for place in memchr::memchr2_iter(b'\n', b'\r', &frame) {
                line[place] = b' ';
            }
            line.extend_from_slice(b"\n");
            let mut writing = Writing { pipe: Some(pipe), line: line.freeze(), written: 0, is_left: false };
            let wrote = writing.write().await;
            wrote.map_err(|error| Cause::Gone(format!("the server does not read: {error}")))
        })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            // Somebody may be writing to a child that does not read; ending the child ends the write.
            if let Ok(mut stdin) = tokio::time::timeout(LAST_WORDS_WAIT, self.stdin.lock()).await {
                drop(stdin.take());
            }
            self.life.end().await;
        })
    }

    fn last_words(&self) -> Option<String> {
        Some(self.life.last_words()).filter(|words| !words.is_empty())
    }

    fn end(&self) -> Option<End> {
        self.life.known_end()
    }

    fn degraded(&self) -> Vec<&'static str> {
        self.life.lacking().into_iter().map(Layer::name).collect()
    }

    fn pid(&self) -> Option<u32> {
        Some(self.life.pid)
    }
}

/// One line on its way. Half a line would spoil the next one, so a line that was begun is written to its end, also
/// when whoever sent it has left.
struct Writing {
    /// Held until the line is written. The pipe in it is gone once a write has failed.
    pipe: Option<OwnedMutexGuard<Option<ChildStdin>>>,
    line: Bytes,
    written: usize,
    /// Whether whoever sent it has left. If this one is given up too, nothing finishes it.
    is_left: bool,
}

impl Writing {
    async fn write(&mut self) -> std::io::Result<()> {
        while self.written < self.line.len() {
            let Some(pipe) = self.pipe.as_mut().and_then(|pipe| pipe.as_mut()) else { break };
            match pipe.write(&self.line[self.written..]).await {
                Ok(length @ 1..) => self.written += length,
                failed => {
                    self.written = self.line.len();
                    self.pipe.take().map(|mut pipe| pipe.take());
                    return failed.and(Err(std::io::ErrorKind::WriteZero.into()));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let is_half = 0 < self.written && self.written < self.line.len();
        let Some(mut pipe) = self.pipe.take().filter(|_| is_half) else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !self.is_left => {
                let (line, written) = (self.line.clone(), self.written);
                let mut rest = Self { pipe: Some(pipe), line, written, is_left: true };
                // Ends with the child at the latest.
                runtime.spawn(async move { rest.write().await });
            }
            _ => drop(pipe.take()),
        }
    }
}

impl Drop for ChildLink {
    fn drop(&mut self) {
        // A safety net: closing is awaited by whoever owns the connection.
        let life = self.life.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { life.end().await });
        }
    }
}

/// Lets people know what a child says to them, and what its sandbox has to say about it.
pub(super) fn watch(life: &Life, inbox: &Inbox, policy: &Policy, program: &str) {
    let ear = inbox.clone();
    life.overhear(move |words| ear.muttered(words));
    if !policy.allow_degraded.is_empty() {
        tokio::spawn(tell_what_is_lacking(life.clone(), inbox.clone(), program.to_owned()));
    }
    if matches!(policy.network(), Network::Hosts(_)) {
        tokio::spawn(tell_what_is_refused(life.clone(), inbox.clone(), program.to_owned()));
    }
}

/// A layer that the policy lets be missing is never missing in silence.
async fn tell_what_is_lacking(life: Life, inbox: Inbox, program: String) {
    let lacking = life.started().await.unwrap_or_default();
    if !lacking.is_empty() {
        let names: Vec<&str> = lacking.iter().map(|layer| layer.name()).collect();
        inbox.warn(&format!("{program} runs without these layers of its sandbox: {}", names.join(", ")));
    }
}

/// A host that a child may not reach is told once, so that its owner can name it.
async fn tell_what_is_refused(life: Life, inbox: Inbox, program: String) {
    while let Some(refused) = life.next_refused().await {
        inbox.warn(&format!("{program}: {refused}"));
    }
}

/// The receiving side.
struct Reader {
    lines: Lines,
    inbox: Inbox,
    life: Life,
    program: String,
    /// What the child may say without ending a line. A frame that is too long is skipped; this is for one
    /// that does not end.
    output_bytes_max: Option<u64>,
}

impl Reader {
    /// Reads lines until the child's stdout ends, then tells how the child ended.
    async fn run(mut self, stdout: ChildStdout) {
        let life = self.life.clone();
        let is_sound = heard_out(&life, self.read(stdout)).await.unwrap_or(true);
        if !is_sound {
            life.end_because(End::Output).await;
        } else if let Some(line) = self.lines.finish() {
            take(&self.inbox, line);
        }
        let ended = tokio::time::timeout(LAST_WORDS_WAIT, life.how_it_ended()).await;
        if let Some(cause) = ended.as_ref().ok().and_then(|end| never_ran(&self.program, end)) {
            return self.inbox.ended(&cause);
        }
        let how = ended.map_or_else(
            |_| "the server closed its stdout".to_owned(),
            |end| how_it_ended("the server", &end),
        );
        let words = life.last_words();
        let last = words.trim_end().lines().last();
        let words = last.map(|line| format!("; its last words: {line}")).unwrap_or_default();
        self.inbox.ended(&Cause::Gone(format!("{how}{words}")));
    }

    /// Reads until the child's stdout ends. False if it said more than it may without ending a line.
    async fn read(&mut self, mut stdout: ChildStdout) -> bool {
        let mut chunk = BytesMut::new();
        let mut open_bytes = 0;
        loop {
            chunk.reserve(CHUNK_BYTES);
            match stdout.read_buf(&mut chunk).await {
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
            open_bytes = open_line(open_bytes, &chunk);
            if self.output_bytes_max.is_some_and(|most| open_bytes > most) {
                return false;
            }
            self.lines.feed(chunk.split().freeze());
            while let Some(line) = self.lines.next_line() {
                take(&self.inbox, line);
                // One read may hold thousands of lines, and they must not hold up whoever else has work.
                consume_budget().await;
            }
        }
    }
}

/// What came of hearing a child, or nothing if it has ended: what left its group may hold the pipe open for longer than
/// the child lives, and that is not waited for.
pub(super) async fn heard_out<T>(life: &Life, hearing: impl Future<Output = T>) -> Option<T> {
    // Before it runs it says nothing; from here on what it runs without is known.
    life.started().await;
    let ended = async {
        life.ended().await;
        tokio::time::sleep(LAST_WORDS_WAIT).await;
    };
    tokio::select! {
        heard = hearing => Some(heard),
        () = ended => None,
    }
}

/// How long the line is that is still open after this chunk, given how long it was before.
fn open_line(before: u64, chunk: &[u8]) -> u64 {
    match memchr::memrchr(b'\n', chunk) {
        Some(last) => (chunk.len() - last - 1) as u64,
        None => before + chunk.len() as u64,
    }
}

fn take(inbox: &Inbox, line: Line) {
    match line {
        Line::Frame(frame) => {
            inbox.frame(&frame, None);
        }
        Line::TooLong => inbox.too_long(None),
    }
}

pub(super) fn how_it_ended(who: &str, end: &End) -> String {
    match end {
        End::Exited { code } => format!("{who} exited with code {code}"),
        End::Crashed { signal } => format!("{who} was killed by signal {signal}"),
        end => format!("{who} was ended: {end}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use rustix::io::Errno;

    use super::*;
    use crate::fleet::error::Verdict;

    /// PR-9: a program that is not there waits for a change; a machine that has too much to do is tried again.
    #[test]
    fn only_what_lasts_is_lasting() {
        let verdict = |error: Error| not_started("x", &error).verdict();
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            assert_eq!(verdict(errno.into()), Verdict::Transient, "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC] {
            assert_eq!(verdict(errno.into()), Verdict::Final, "{errno}");
        }
        assert_eq!(verdict(ErrorKind::NotFound.into()), Verdict::Final);
        // Nothing lasting: the supervisor goes on with its delays.
        let passing = not_started("x", &Errno::MFILE.into());
        assert!(matches!(passing, Cause::Unreachable(_)), "{passing}");
        // The same of what its sandbox could not start.
        let end = |is_passing| End::NotStarted { cause: "no".to_owned(), is_passing };
        let verdict = |end: &End| never_ran("x", end).map(|cause| cause.verdict());
        assert_eq!(verdict(&end(true)), Some(Verdict::Transient));
        assert_eq!(verdict(&end(false)), Some(Verdict::Final));
        let (layer, cause, remedy) = Default::default();
        assert_eq!(verdict(&End::Policy { layer, cause, remedy }), Some(Verdict::Final));
        assert_eq!(verdict(&End::Memory), None);
    }
}
