//! Staying signed in: renewal before the end and after a refusal, once for many, and never with somebody
//! else.

use std::sync::Arc;

use colibri::domain::audit::Pending;
use colibri::domain::grant::{Grant, Hold, Secret, Vault, VaultError};
use colibri::fleet::bridge::BridgeError;
use colibri::fleet::credentials::{Credentials, Refusal};
use colibri::fleet::error::Cause;
use colibri::fleet::link::Carrier;
use colibri::fleet::oauth::{Absent, OAuth};
use colibri::store::TokenFiles;
use tokio::sync::Semaphore;

use super::stage::{Stage, Token};
use super::{Side, call, connect, connect_by, greet, person, unauthorized};
use crate::bridge::support::worker;

/// Signs a side in, and forgets how it came to be.
async fn signed_in(stage: &Stage) -> Side {
    let side = Side::of(stage);
    side.credentials(person()).login(&[]).await.unwrap();
    stage.script().log.clear();
    side
}

/// A token is renewed before its end, by the process that needs it, and kept for the next.
#[tokio::test]
async fn a_token_that_ends_is_renewed() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    call(&stage, &credentials).await.unwrap();
    assert_eq!(stage.asked("a POST"), 0);
    let before = side.grant(&stage).await.unwrap();
    for _ in 0..3 {
        side.pass(3590);
        call(&stage, &credentials).await.unwrap();
    }
    assert_eq!(stage.asked("a POST /token refresh_token"), 3, "refresh tokens are used once each");
    assert_eq!(stage.asked("a GET /.well-known"), 1, "who renews is looked up once");
    assert_eq!(stage.asked("a GET /authorize"), 0);
    let after = side.grant(&stage).await.unwrap();
    assert_ne!(before.tokens, after.tokens);
    assert_eq!((before.client, before.scopes, before.issuer), (after.client, after.scopes, after.issuer));
}

/// A token that still holds is used while it cannot be renewed; one that does not is not sent.
#[tokio::test]
async fn a_renewal_that_fails_is_told_when_it_matters() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    stage.script().token = Token::Answers(503, "{}".to_owned());
    side.pass(3590);
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    assert!(side.said.lock().unwrap()[0].contains("cannot renew its token yet"));
    side.pass(20);
    let Err(BridgeError { source: Cause::Unreachable(words), retryable: true, .. }) =
        call(&stage, &credentials).await
    else {
        panic!("it may go better later")
    };
    assert!(words.contains("503"), "{words}");
    stage.script().token = Token::Gives;
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    assert!(!side.said.lock().unwrap().concat().contains("canary"));
}

/// A token that the server no longer takes is renewed; a grant that is over needs the person.
#[tokio::test]
async fn a_refused_token_is_renewed_while_that_is_possible() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    stage.revoke_access();
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    assert_eq!(stage.asked("a POST /token refresh_token"), 1);
    stage.revoke_everything();
    let words = unauthorized(call(&stage, &side.credentials(Absent)).await);
    assert!(words.contains("run `colibri auth login the-server`"), "{words}");
    let over = side.grant(&stage).await.unwrap();
    assert_eq!(over.tokens, None, "what is worth nothing is not kept");
    // A login elsewhere heals it.
    side.credentials(person()).login(&[]).await.unwrap();
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
}

/// SB-4: a worker process asks colibri for the token, and once more when it was refused: it is renewed by colibri, for a
/// call that is under way, and nothing of it is in the worker's command line or environment.
#[tokio::test]
async fn a_token_is_renewed_for_a_worker() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    let bridge = connect_by(&stage, &credentials, |endpoint| worker(endpoint, Carrier::Http)).await.unwrap();
    assert_eq!(greet(&bridge).await.unwrap(), "hello");
    stage.revoke_access();
    assert_eq!(greet(&bridge).await.unwrap(), "hello", "renewed in the middle of a call");
    assert_eq!(stage.asked("a POST /token refresh_token"), 1);
    let token = credentials.authorization().await.unwrap().expect("it is signed in");
    for place in ["cmdline", "environ"] {
        for process in crate::fleet::processes(colibri::fleet::link::worker::WORKER) {
            let shown = std::fs::read(process.join(place)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&shown).contains(&token), "{place}");
        }
    }
    stage.revoke_everything();
    let words = unauthorized(greet(&bridge).await);
    assert!(words.contains("run `colibri auth login the-server`"), "{words}");
    bridge.close().await;
}

/// The server refuses what a request would be sent with now.
async fn refusal(credentials: &OAuth) -> Refusal {
    let sent = credentials.authorization().await.unwrap().map(Secret::new);
    Refusal { status: 401, challenge: None, sent }
}

/// A server that refuses what it was just given does not make us renew for ever.
#[tokio::test]
async fn a_fresh_token_that_is_refused_is_not_renewed_again() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    credentials.refused(refusal(&credentials).await).await.unwrap();
    for _ in 0..3 {
        let again = credentials.refused(refusal(&credentials).await).await;
        assert!(matches!(again, Err(Cause::Unauthorized(_))), "{again:?}");
    }
    assert_eq!(stage.asked("a POST /token"), 1);
}

/// Many requests that are refused together need one new token.
#[tokio::test]
async fn many_refusals_are_one_renewal() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    let bridge = Arc::new(connect(&stage, &credentials).await.unwrap());
    stage.revoke_access();
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let bridge = Arc::clone(&bridge);
            tokio::spawn(async move { greet(&bridge).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "hello");
    }
    assert_eq!(stage.asked("a POST /token"), 1);
    bridge.close().await;
}

/// A refusal of the token before the current one changes nothing.
#[tokio::test]
async fn old_news_is_passed_over() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    let first = refusal(&credentials).await;
    assert!(!format!("{first:?}").contains("canary"));
    credentials.refused(first.clone()).await.unwrap();
    assert_ne!(refusal(&credentials).await, first);
    credentials.refused(first).await.unwrap();
    credentials.refused(Refusal { status: 401, challenge: None, sent: None }).await.unwrap();
    assert_eq!(stage.asked("a POST /token"), 1);
}

/// Processes that share the files renew once between them: one renews, the others take over.
#[tokio::test]
async fn processes_renew_once_between_them() {
    let stage = Stage::set().await;
    let home = tempfile::tempdir().unwrap();
    let side = Side { vault: Arc::new(TokenFiles::below(home.path())), ..Side::of(&stage) };
    side.credentials(person()).login(&[]).await.unwrap();
    side.pass(3600);
    let processes: Vec<_> = (0..4)
        .map(|_| {
            let vault: Arc<dyn Vault> = Arc::new(TokenFiles::below(home.path()));
            let process = Side { vault, clock: Arc::clone(&side.clock), ..Side::of(&stage) };
            let (stage, credentials) = (stage.clone(), process.credentials(Absent));
            tokio::spawn(async move { call(&stage, &credentials).await })
        })
        .collect();
    for process in processes {
        assert_eq!(process.await.unwrap().unwrap(), "hello");
    }
    assert_eq!(stage.asked("a POST /token refresh_token"), 1);
}

/// A caller that gives up in the middle of a renewal does not lose what was bought.
#[tokio::test]
async fn a_renewal_outlives_its_caller() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    let credentials = side.credentials(Absent);
    let gate = Arc::new(Semaphore::new(0));
    stage.script().gate = Some(Arc::clone(&gate));
    side.pass(3600);
    let caller = credentials.clone();
    let call_given_up = tokio::spawn(async move { caller.authorization().await.is_ok() });
    while stage.asked("a POST /token refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    call_given_up.abort();
    assert!(call_given_up.await.unwrap_err().is_cancelled());
    gate.add_permits(1000);
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    assert_eq!(stage.asked("a POST /token refresh_token"), 1);
    assert_eq!(call(&stage, &side.credentials(Absent)).await.unwrap(), "hello");
}

/// A server that has moved to another authorization server: neither sees what is the other's.
#[tokio::test]
async fn a_new_issuer_sees_nothing_of_the_old() {
    let stage = Stage::set().await;
    let side = signed_in(&stage).await;
    stage.script().current = "b";
    let words = unauthorized(call(&stage, &side.credentials(Absent)).await);
    assert!(words.contains("auth login"), "{words}");
    assert_eq!(stage.asked("b POST"), 0);
    assert_eq!(call(&stage, &side.credentials(person())).await.unwrap(), "hello");
    assert_eq!((stage.asked("b POST /register"), stage.asked("b POST /token authorization_code")), (1, 1));
    assert_eq!(stage.asked("a POST"), 0);
    assert_eq!(side.grant(&stage).await.unwrap().issuer.as_ref(), Some(&stage.issuers[1]));
}

/// The same while connected: the person is asked again, and the call goes through.
#[tokio::test]
async fn a_server_may_move_under_a_connection() {
    let stage = Stage::set().await;
    let side = Side::of(&stage);
    let credentials = side.credentials(person());
    let bridge = connect(&stage, &credentials).await.unwrap();
    stage.script().current = "b";
    assert_eq!(greet(&bridge).await.unwrap(), "hello");
    assert_eq!(stage.asked("b POST /token"), 1);
    assert_eq!(stage.asked("b POST /token refresh_token"), 0);
    bridge.close().await;
}

/// What was granted to one client is not renewed by another.
#[tokio::test]
async fn a_changed_client_signs_in_anew() {
    let stage = Stage::set().await;
    let mut side = signed_in(&stage).await;
    side.settings.identity.client_id = Some("another".to_owned());
    side.pass(3600);
    unauthorized(call(&stage, &side.credentials(Absent)).await);
    assert_eq!(stage.asked("a POST"), 0);
    assert_eq!(stage.asked("server server/discover"), 1, "nor is it used: it was not granted to this one");
}

/// A disk that takes nothing costs the next process a login, and this one nothing; but a login is told.
#[tokio::test]
async fn a_vault_that_takes_nothing_is_told() {
    let stage = Stage::set().await;
    let side = Side { vault: Arc::new(Full), ..Side::of(&stage) };
    let credentials = side.credentials(person());
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    side.pass(3600);
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    assert_eq!((stage.asked("a GET /authorize"), stage.asked("a POST /token refresh_token")), (1, 1));
    assert!(side.said.lock().unwrap()[0].contains("kept in memory only: the disk is full"));
    let told = side.credentials(person()).login(&[]).await.unwrap_err();
    assert!(told.to_string().contains("could not be written"), "{told}");
    assert!(!side.said.lock().unwrap().concat().contains("canary"));
}

/// A vault on a full disk.
struct Full;

impl Vault for Full {
    fn load<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Option<Grant>, VaultError>> {
        Box::pin(async { Ok(None) })
    }

    fn save(&self, _: Grant) -> Pending<'_, Result<(), VaultError>> {
        Box::pin(async { Err(VaultError("the disk is full".to_owned())) })
    }

    fn forget<'a>(&'a self, _: &'a str) -> Pending<'a, Result<bool, VaultError>> {
        Box::pin(async { Ok(false) })
    }

    fn hold<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Hold, VaultError>> {
        Box::pin(async { Ok(Hold::new(())) })
    }
}

/// A token without an end and without renewal is used until it is refused.
#[tokio::test]
async fn a_token_may_have_no_end() {
    let stage = Stage::set().await;
    {
        let mut script = stage.script();
        (script.expires_in, script.gives_refresh_token) = (None, false);
    }
    let side = signed_in(&stage).await;
    side.pass(10_000_000);
    assert_eq!(call(&stage, &side.credentials(Absent)).await.unwrap(), "hello");
    stage.revoke_access();
    unauthorized(call(&stage, &side.credentials(Absent)).await);
    assert_eq!(stage.asked("a POST"), 0);
}
