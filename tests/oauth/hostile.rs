//! Servers and authorization servers that are broken, or that would like to be somewhere else.

use std::sync::Arc;

use colibri::fleet::oauth::{Loopback, OAuthError, filed_under};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::stage::{Stage, Token};
use super::{Side, browse, call, person, unauthorized};

/// Signs in, and gives the words in which that failed. Nothing may be kept, said or shown of a secret.
async fn failed(stage: &Stage) -> (OAuthError, String) {
    let side = Side::of(stage);
    let shown = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&shown);
    let person = Loopback::new(None, crate::support::library::PATIENCE, move |address: &str| {
        seen.lock().unwrap().push(address.to_owned());
        browse(address);
    });
    let error = side.credentials(person).login(&[]).await.expect_err("it cannot be signed in to");
    let words = error.to_string();
    let said = format!("{words} {error:?} {:?} {:?}", side.said.lock().unwrap(), shown.lock().unwrap());
    assert!(!said.contains("canary"), "{said}");
    assert_eq!(side.grant(stage).await, None);
    (error, words)
}

/// What a server says about itself, if it is not enough to go on.
#[tokio::test]
async fn metadata_that_cannot_be_used_is_named() {
    let check = async |server: Value, authority: Value, word: &str, is_asked: bool| {
        let stage = Stage::set().await;
        {
            let mut script = stage.script();
            (script.resource_metadata, script.metadata) = (server, authority);
        }
        let (error, words) = failed(&stage).await;
        assert!(words.contains(word), "{error:?}: {words} lacks {word}");
        assert!(!error.is_passing());
        assert_eq!(stage.asked("a POST") > 0, is_asked, "{words}");
        assert_eq!(stage.asked("a GET /authorize"), 0, "{words}");
    };
    let nothing = json!({});
    check(json!({ "resource": "https://evil.example/mcp" }), nothing.clone(), "mismatch", false).await;
    check(json!({ "resource": null }), nothing.clone(), "resource", false).await;
    check(json!({ "authorization_servers": ["https://10.0.0.1"] }), nothing.clone(), "10.0.0.1", false).await;
    let metadata = |name: &str, value: Value| json!({ name: value });
    check(nothing.clone(), metadata("code_challenge_methods_supported", json!(["plain"])), "PKCE", false)
        .await;
    check(nothing.clone(), metadata("registration_endpoint", Value::Null), "oauth.clientId", false).await;
    check(nothing.clone(), metadata("issuer", Value::Null), "none was named", false).await;
    for address in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "--help",
        "http://169.254.169.254/latest",
        "http://[::ffff:169.254.169.254]/",
        "http://10.0.0.1/authorize",
        "http://me:you@127.0.0.1/authorize",
        "https://metadata.google.internal/authorize",
    ] {
        for name in ["authorization_endpoint", "token_endpoint", "registration_endpoint"] {
            check(nothing.clone(), metadata(name, json!(address)), "address", false).await;
        }
    }
    let state = "http://127.0.0.1:1/authorize?state=mine";
    check(nothing, metadata("authorization_endpoint", json!(state)), "`state` of its own", true).await;
}

/// A server that asks for authorization and says nothing about it takes a fixed token, most likely.
#[tokio::test]
async fn no_metadata_is_told_with_the_remedy() {
    let stage = Stage::set().await;
    stage.script().is_published = false;
    let words = unauthorized(call(&stage, &Side::of(&stage).credentials(person())).await);
    assert!(words.contains("publishes no OAuth metadata") && words.contains("headers"), "{words}");
}

/// A client that is not registered is told why, in the authorization server's words, cut and harmless.
#[tokio::test]
async fn a_refused_registration_is_told() {
    let check = async |status: u16, answer: Value, word: &str, is_passing: bool| {
        let stage = Stage::set().await;
        stage.script().registration = Some((status, answer));
        let (error, words) = failed(&stage).await;
        assert!(words.contains(word), "{words} lacks {word}");
        assert_eq!(error.is_passing(), is_passing, "{words}");
        assert!(words.len() < 600, "{words}");
    };
    let refused = json!({ "error": "invalid_redirect_uri", "error_description": "only https\u{1b}[2J" });
    check(400, refused, "invalid_redirect_uri, only https\\u{1b}[2J", false).await;
    check(403, json!({ "error": "x".repeat(10_000) }), "it answered 403", false).await;
    check(403, json!({ "error_description": "y".repeat(100_000) }), "yyy", false).await;
    check(429, json!({}), "it answered 429", true).await;
    check(201, json!({ "no_client": 1 }), "refused to register", false).await;
}

/// A token endpoint that gives none is told by the code alone: its words may repeat what we sent.
#[tokio::test]
async fn a_token_endpoint_that_fails_is_told_without_its_words() {
    let check = async |status: u16, body: &str, word: &str, is_passing: bool| {
        let stage = Stage::set().await;
        stage.script().token = Token::Answers(status, body.to_owned());
        let (error, words) = failed(&stage).await;
        assert!(words.contains(word), "{words} lacks {word}");
        assert_eq!(error.is_passing(), is_passing, "{words}");
    };
    check(
        400,
        r#"{"error":"invalid_grant","error_description":"canary-code is bad"}"#,
        "invalid_grant",
        false,
    )
    .await;
    check(401, r#"{"error":"canary is no code"}"#, "it answered 401", false).await;
    check(503, "canary", "it answered 503", true).await;
    check(200, r#"{"access_token":"canary"}"#, "cannot be read", false).await;
    check(200, r#"{"access_token":"canary","token_type":"mac"}"#, "not a bearer token", false).await;
    check(
        200,
        r#"{"access_token":"canary\r\nX: y","token_type":"bearer"}"#,
        "cannot stand in a header",
        false,
    )
    .await;
    check(200, r#"{"access_token":"","token_type":"bearer"}"#, "cannot stand in a header", false).await;
    check(200, "canary", "cannot be read", false).await;
    check(200, &"canary".repeat(1 << 18), "longer than", true).await;
}

/// What carries a secret is not sent on, wherever the authorization server would like it.
#[tokio::test]
async fn nothing_is_redirected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}/token", listener.local_addr().unwrap());
    let stage = Stage::set().await;
    stage.script().token = Token::RedirectsTo(elsewhere);
    let (_, words) = failed(&stage).await;
    assert!(words.contains("307"), "{words}");
    let nobody = tokio::select! {
        biased;
        _ = listener.accept() => false,
        () = std::future::ready(()) => true,
    };
    assert!(nobody, "nobody went there");
}

/// Metadata that leads from place to place is not followed for ever.
#[tokio::test]
async fn metadata_leads_only_so_far() {
    let stage = Stage::set().await;
    let places: Vec<String> = (0..1000).map(|number| stage.url.replace("mcp", &number.to_string())).collect();
    stage.script().resource_metadata = json!({ "authorization_servers": places });
    let (_, words) = failed(&stage).await;
    assert!(words.contains("too many places"), "{words}");
    assert!(stage.asked("server GET") <= 32);
}

/// An authorization server that is not there may come back.
#[tokio::test]
async fn an_authorization_server_that_is_down_is_passing() {
    let stage = Stage::set().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    stage.script().resource_metadata = json!({ "authorization_servers": [nowhere] });
    let (error, words) = failed(&stage).await;
    assert!(error.is_passing(), "{words}");
    assert!(words.contains("refused"), "{words}");
}

/// An address that may hold a secret is not repeated.
#[tokio::test]
async fn a_key_in_the_address_is_not_shown() {
    let stage = Stage::set().await;
    stage.script().resource_metadata = json!({ "resource": "https://evil.example/" });
    let mut side = Side::of(&stage);
    side.settings.url = format!("{}?key=canary", stage.url);
    side.settings.name = side.settings.url.clone();
    let error = side.credentials(person()).login(&[]).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    let words = unauthorized(call(&stage, &side.credentials(colibri::fleet::oauth::Absent)).await);
    assert!(words.contains("run `colibri auth login` with its address"), "{words}");
    assert!(filed_under(&side.settings.url).unwrap().contains("canary"), "filed under the whole address");
}

/// A server that repeats what it was sent does not put it into an error.
#[tokio::test]
async fn a_token_that_is_repeated_is_not_shown() {
    let stage = Stage::set().await;
    stage.script().repeats = true;
    let failed = call(&stage, &Side::of(&stage).credentials(person())).await.unwrap_err();
    let words = format!("{failed} {failed:?}");
    assert!(words.contains("is a strange token") && !words.contains("canary"), "{words}");
}
