//! Servers that want to know who asks: signing in, staying signed in, and being turned away, with real
//! sockets on loopback and a browser that follows an address.
#![expect(clippy::unwrap_used, reason = "a story ends at the first surprise")]

mod cli;
mod flow;
mod hostile;
mod renewal;
mod stage;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use colibri::domain::clock::{Clock, Moment, Timestamp};
use colibri::domain::grant::{Grant, Vault};
use colibri::domain::log::{Level, Logger};
use colibri::fleet::bridge::{Bridge, BridgeError, CallOptions, ConnectOptions};
use colibri::fleet::error::Cause;
use colibri::fleet::link::{Opener, for_endpoint};
use colibri::fleet::oauth::{Loopback, MemoryVault, OAuth, Person, Ports, Settings};
use colibri::fleet::web::Endpoint;
use serde_json::{Value, json};

use crate::support::library::{PATIENCE, SOME_DAY};
use stage::Stage;

/// One process's side of a story.
struct Side {
    vault: Arc<dyn Vault>,
    clock: Arc<Hand>,
    /// Everything that was said to people.
    said: Arc<Mutex<Vec<String>>>,
    settings: Settings,
}

/// A clock that is moved by hand.
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Moment {
        Moment { wall: Timestamp(self.0.load(Ordering::SeqCst)), since_boot: Duration::ZERO }
    }
}

impl Side {
    fn of(stage: &Stage) -> Self {
        Self {
            vault: Arc::new(MemoryVault::default()),
            clock: Arc::new(Hand(AtomicU64::new(SOME_DAY))),
            said: Arc::default(),
            settings: Settings::new("the-server", &stage.url),
        }
    }

    fn pass(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    fn credentials(&self, person: impl Person + 'static) -> OAuth {
        let said = Arc::clone(&self.said);
        let logger = Logger::new(Level::Trace, move |_, line| said.lock().unwrap().push(line.to_owned()));
        let (vault, clock) = (Arc::clone(&self.vault), Arc::clone(&self.clock) as Arc<dyn Clock>);
        OAuth::new(self.settings.clone(), Ports { vault, person: Arc::new(person), clock, logger }).unwrap()
    }

    async fn grant(&self, stage: &Stage) -> Option<Grant> {
        self.vault.load(&stage.url).await.unwrap()
    }
}

/// A person whose browser goes where it is sent, as far as it is sent.
fn person() -> Loopback {
    Loopback::new(None, PATIENCE, browse)
}

fn browse(address: &str) {
    let address = address.to_owned();
    tokio::spawn(async move { visit(&address).await });
}

/// Follows an address; gives the status of the page at its end.
async fn visit(address: &str) -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::Client::new().get(address).send().await.unwrap();
    let status = answer.status().as_u16();
    let page = answer.text().await.unwrap();
    assert!(!page.contains("canary"), "{page}");
    status
}

/// Goes to an address; gives where it is sent from there.
async fn sent_to(address: &str) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let answer = browser.get(address).send().await.unwrap();
    answer.headers()["location"].to_str().unwrap().to_owned()
}

/// Connects as who we are.
async fn connect(stage: &Stage, credentials: &OAuth) -> Result<Bridge, BridgeError> {
    connect_by(stage, credentials, for_endpoint).await
}

/// The same, by a link of one's choice.
async fn connect_by(
    stage: &Stage,
    credentials: &OAuth,
    link: fn(Endpoint) -> Box<dyn Opener>,
) -> Result<Bridge, BridgeError> {
    let endpoint = Endpoint::new(&stage.url).unwrap().with_credentials(Arc::new(credentials.clone()));
    let options = ConnectOptions {
        timeout: Some(PATIENCE),
        transport: Some(link(endpoint)),
        logger: Logger::silent(),
        ..ConnectOptions::default()
    };
    Bridge::connect(&stage.url, options).await
}

/// Connects, calls a tool once, and leaves.
async fn call(stage: &Stage, credentials: &OAuth) -> Result<String, BridgeError> {
    let bridge = connect(stage, credentials).await?;
    let called = greet(&bridge).await;
    bridge.close().await;
    called
}

async fn greet(bridge: &Bridge) -> Result<String, BridgeError> {
    let once = CallOptions { max_attempts: 1, ..CallOptions::default() };
    let result = bridge.call_tool("greet", &json!({}), once).await?;
    let result: Value = serde_json::from_slice(&result).unwrap();
    Ok(result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
}

/// The words of a refusal that only a person can mend; no secret is among them.
#[track_caller]
fn unauthorized<T>(result: Result<T, BridgeError>) -> String {
    match result {
        Err(BridgeError { source: Cause::Unauthorized(words), retryable: false, .. }) => {
            assert!(!words.contains("canary"), "{words}");
            words
        }
        Err(error) => panic!("not a refusal: {error:?}"),
        Ok(_) => panic!("it was not refused"),
    }
}
