//! The socket against a colibri of straw: bounds, strangers and slow readers.

use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use crate::domain::audit::Pending;
use crate::domain::merkle::Hash;
use crate::domain::operator::{Came, Coming, Feed, Told};

use super::*;

/// Answers with what it was asked; its stream is what a test sends.
struct Straw(Mutex<Option<mpsc::Receiver<Came>>>);

impl Coming for mpsc::Receiver<Came> {
    fn next(&mut self) -> Pending<'_, Option<Came>> {
        Box::pin(self.recv())
    }
}

fn told<'a>(value: Value) -> Pending<'a, Told> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Operator for Straw {
    fn status(&self) -> Pending<'_, Told> {
        told(json!("well"))
    }

    fn show<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        told(json!({ "show": server }))
    }

    fn restart<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        told(json!({ "restart": server }))
    }

    fn disable<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        told(json!({ "disable": server }))
    }

    fn enable<'a>(&'a self, server: &'a str) -> Pending<'a, Told> {
        told(json!({ "enable": server }))
    }

    fn test<'a>(&'a self, _: &'a str) -> Pending<'a, Told> {
        Box::pin(std::future::pending())
    }

    fn accept<'a>(
        &'a self,
        _: &'a str,
        tools: &'a [String],
        _: Hash,
    ) -> Pending<'a, Result<Vec<String>, String>> {
        Box::pin(std::future::ready(Ok(tools.to_vec())))
    }

    fn reload(&self) -> Pending<'_, Result<Vec<String>, String>> {
        Box::pin(std::future::ready(Err("not today".to_owned())))
    }

    fn logs(&self, _: &str) -> Result<Feed, String> {
        Err("no such server".to_owned())
    }

    fn events(&self, _: Option<&str>) -> Result<Feed, String> {
        let coming = self.0.lock().unwrap().take().unwrap_or_else(|| mpsc::channel(1).1);
        Ok(Feed { kept: vec![json!(1), json!(2)], coming: Box::new(coming) })
    }
}

/// A socket that is served, and what its stream is fed by.
struct Stage {
    folder: tempfile::TempDir,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
    feed: mpsc::Sender<Came>,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (feed, coming) = mpsc::channel(1 << 16);
        let bound = Bound::bind(&folder.path().join("1.sock")).unwrap();
        let stop = CancellationToken::new();
        let straw = Arc::new(Straw(Mutex::new(Some(coming))));
        let served = tokio::spawn(bound.serve(straw, stop.clone()));
        Self { folder, stop, served, feed }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("1.sock")
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.path()).await.unwrap())
    }

    async fn ask(&self, line: &str) -> Value {
        let mut stream = self.connect().await;
        // Whoever says too much may be cut off while it speaks; the answer is there all the same.
        let _ = stream.write_all(line.as_bytes()).await;
        next(&mut stream).await
    }
}

async fn next(stream: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

/// One request, one answer; what is no request is refused with the words that are known.
#[tokio::test]
async fn one_request_one_answer() {
    let stage = Stage::new();
    let accepted =
        format!(r#"{{"v":1,"verb":"accept","server":"git","tools":["a"],"digest":"{}"}}"#, Hash::ZERO);
    for (request, answer) in [
        (r#"{"v":1,"verb":"status"}"#, json!({ "v": 1, "ok": "well" })),
        (r#"{"v":1,"verb":"show","server":"git"}"#, json!({ "v": 1, "ok": { "show": "git" } })),
        (&*accepted, json!({ "v": 1, "ok": { "accepted": ["a"] } })),
        (
            r#"{"v":1,"verb":"reload"}"#,
            json!({ "v": 1, "error": { "code": "refused", "message": "not today" } }),
        ),
    ] {
        assert_eq!(stage.ask(&format!("{request}\n")).await, answer, "{request}");
    }
    let long = format!("{{\"v\":1,\"verb\":\"show\",\"server\":\"{}\"}}\n", "x".repeat(1 << 20));
    for (request, why) in [
        (r#"{"v":1,"verb":"dance"}"#, "expected one of `status`"),
        (r#"{"v":2,"verb":"status"}"#, "this is version 1"),
        (r#"{"v":1,"verb":"show"}"#, "missing field `server`"),
        // What nobody has looked at is not accepted.
        (r#"{"v":1,"verb":"accept","server":"git"}"#, "missing field `digest`"),
        ("hello", "no request"),
        ("\u{0}\u{7f}", "no request"),
        (&long, "at most 65536 bytes"),
    ] {
        let answer = stage.ask(&format!("{request}\n")).await;
        assert_eq!(answer["error"]["code"], "bad_request", "{answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|told| told.contains(why)), "{answer}");
    }
}

/// Sixteen who say nothing take all places, a seventeenth is told so, and after a while there is room again.
#[tokio::test]
async fn silence_holds_a_place_for_a_while_and_no_longer() {
    let stage = Stage::new();
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        silent.push(stage.connect().await);
    }
    let refused = stage.ask("{\"v\":1,\"verb\":\"status\"}\n").await;
    assert_eq!(refused["error"]["code"], "busy", "{refused}");
    let told = next(&mut silent[0]).await;
    assert!(told["error"]["message"].as_str().is_some_and(|told| told.contains("within 5 s")), "{told}");
    let answered = async {
        while stage.ask("{\"v\":1,\"verb\":\"status\"}\n").await["ok"].is_null() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), answered).await.expect("there is room again");
}

/// SB-7: who follows gets what was, what comes, and how much it missed; its end frees its place.
#[tokio::test]
async fn a_stream_tells_what_was_what_comes_and_what_was_missed() {
    let stage = Stage::new();
    let mut stream = stage.connect().await;
    stream.write_all(b"{\"v\":1,\"verb\":\"events\",\"follow\":true}\n").await.unwrap();
    for expected in [json!({ "v": 1, "one": 1 }), json!({ "v": 1, "one": 2 }), json!({ "v": 1, "kept": 2 })] {
        assert_eq!(next(&mut stream).await, expected);
    }
    stage.feed.send(Came::One(json!(3))).await.unwrap();
    stage.feed.send(Came::Missed(9)).await.unwrap();
    assert_eq!(next(&mut stream).await, json!({ "v": 1, "one": 3 }));
    assert_eq!(next(&mut stream).await, json!({ "v": 1, "missed": 9 }));
    drop(stream);
    // Its end is seen though nothing comes.
    tokio::time::timeout(Duration::from_secs(5), stage.feed.closed()).await.expect("the stream was let go");
    let refused = stage.ask("{\"v\":1,\"verb\":\"logs\",\"server\":\"x\"}\n").await;
    assert_eq!(refused["error"]["message"], "no such server");
}

/// The file is private from its first moment, and goes with its owner; another's is left alone.
#[tokio::test]
async fn the_file_is_private_and_goes_with_its_owner() {
    let stage = Stage::new();
    let mode = std::fs::symlink_metadata(stage.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let waiting = stage.connect().await;
    stage.stop.cancel();
    stage.served.await.unwrap();
    assert!(!stage.folder.path().join("1.sock").exists());
    drop(waiting);
    let path = stage.folder.path().join("2.sock");
    let first = Bound::bind(&path).unwrap();
    let second = Bound::bind(&path).unwrap();
    drop(first);
    assert!(path.exists(), "it is the second one's");
    drop(second);
    assert!(!path.exists());
    let long = stage.folder.path().join("x".repeat(120));
    let Err(error) = Bound::bind(&long) else { panic!("it is too long") };
    assert!(error.to_string().contains("XDG_RUNTIME_DIR"), "{error}");
}

#[test]
fn only_the_owner_and_root_may_speak() {
    assert!(may_speak(1000, 1000) && may_speak(0, 1000));
    assert!(!may_speak(1001, 1000) && !may_speak(65534, 0));
}
