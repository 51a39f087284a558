//! A person signs in: what is asked of whom, what is kept, and what comes of a no.

use std::sync::Arc;
use std::time::Duration;

use colibri::domain::audit::Pending;
use colibri::domain::grant::Secret;
use colibri::fleet::oauth::{Absent, Flow, Loopback, OAuthError, Person, Visit};
use reqwest::Url;
use serde_json::json;

use super::stage::{Redirect, Stage, Token};
use super::{Side, browse, call, connect, greet, person, sent_to, unauthorized, visit};

/// A server that asks who we are is answered by a person once, and from then on by what was kept.
#[tokio::test]
async fn a_person_signs_in_once() {
    let stage = Stage::set().await;
    let side = Side::of(&stage);
    assert_eq!(call(&stage, &side.credentials(person())).await.unwrap(), "hello");
    let grant = side.grant(&stage).await.expect("it is kept");
    assert_eq!(grant.issuer.as_deref(), Some(stage.issuers[0].as_str()));
    assert_eq!(grant.client.id, "registered");
    {
        let script = stage.script();
        assert_eq!(script.authorize["resource"], stage.url);
        assert_eq!(script.authorize["code_challenge_method"], "S256");
        assert!(!script.authorize.contains_key("scope"), "nothing is asked for that nobody demanded");
        assert!(script.authorize["redirect_uri"].starts_with("http://127.0.0.1:"));
        assert_eq!(script.registered["application_type"], "native");
        assert_eq!(script.registered["grant_types"], json!(["authorization_code", "refresh_token"]));
        assert_eq!(script.registered["client_name"], "colibri");
    }
    // Another process, with nobody beside it.
    assert_eq!(call(&stage, &side.credentials(Absent)).await.unwrap(), "hello");
    assert_eq!(stage.asked("a GET /authorize"), 1);
    assert_eq!(stage.asked("a POST /token"), 1);
}

/// Without a person the remedy is told, and nobody is asked anything.
#[tokio::test]
async fn nobody_is_there_to_sign_in() {
    let stage = Stage::set().await;
    let side = Side::of(&stage);
    let words = unauthorized(call(&stage, &side.credentials(Absent)).await);
    assert!(words.contains("run `colibri auth login the-server`"), "{words}");
    assert_eq!((stage.asked("a "), stage.asked("server server/discover")), (0, 1));
}

/// What is asked for: what is configured, else what the server demands, else what it publishes; and
/// `offline_access` only of an authorization server that has it.
#[tokio::test]
async fn scopes_come_from_where_they_should() {
    let asked =
        async |configured: &[&str], hint: Option<&'static str>, published: &[&str], offered: &[&str]| {
            let stage = Stage::set().await;
            {
                let mut script = stage.script();
                script.hint = hint;
                script.resource_metadata = json!({ "scopes_supported": published });
                script.metadata = json!({ "scopes_supported": offered });
            }
            let mut side = Side::of(&stage);
            side.settings.scopes = configured.iter().map(ToString::to_string).collect();
            call(&stage, &side.credentials(person())).await.unwrap();
            let asked = stage.script().authorize.get("scope").cloned().unwrap_or_default();
            assert_eq!(side.grant(&stage).await.unwrap().scopes.join(" "), asked);
            asked
        };
    assert_eq!(asked(&[], None, &[], &["x", "offline_access"]).await, "");
    assert_eq!(asked(&[], None, &["p", "q"], &[]).await, "p q");
    assert_eq!(asked(&[], Some("h"), &["p", "q"], &["offline_access"]).await, "h offline_access");
    assert_eq!(asked(&["c"], Some("h"), &["p"], &[]).await, "c");
    assert_eq!(asked(&["c"], Some("h"), &["p"], &["offline_access"]).await, "c offline_access");
}

/// Who colibri is: registered beforehand, described by a document, or registered now, in this order.
#[tokio::test]
async fn a_client_is_known_in_one_of_three_ways() {
    let stage = Stage::set().await;
    stage.script().metadata = json!({ "client_id_metadata_document_supported": true });
    let mut side = Side::of(&stage);
    side.settings.identity.client_metadata_url = Some("https://example.com/colibri.json".to_owned());
    call(&stage, &side.credentials(person())).await.unwrap();
    assert_eq!(stage.script().authorize["client_id"], "https://example.com/colibri.json");

    let mut side = Side::of(&stage);
    side.settings.identity.client_id = Some("beforehand".to_owned());
    side.settings.identity.client_secret = Some(Secret::new("canary-secret"));
    call(&stage, &side.credentials(person())).await.unwrap();
    assert_eq!(stage.script().form["basic"], "beforehand:canary-secret");
    stage.script().metadata = json!({ "token_endpoint_auth_methods_supported": ["client_secret_post"] });
    let side = Side { vault: Side::of(&stage).vault, ..side };
    call(&stage, &side.credentials(person())).await.unwrap();
    assert_eq!(stage.script().form["client_secret"], "canary-secret");
    assert_eq!(stage.asked("a POST /register"), 0);

    let mut side = Side::of(&stage);
    side.settings.identity.client_metadata_url = Some("https://example.com/colibri.json".to_owned());
    call(&stage, &side.credentials(person())).await.unwrap();
    assert_eq!(stage.script().authorize["client_id"], "registered", "it does not read documents");
}

/// A secret that comes with the registration is kept with the grant, for the next process to renew it.
#[tokio::test]
async fn a_registered_secret_outlives_the_process() {
    let stage = Stage::set().await;
    stage.script().registration =
        Some((201, json!({ "client_id": "given", "client_secret": "canary-given", "redirect_uris": [] })));
    let side = Side::of(&stage);
    call(&stage, &side.credentials(person())).await.unwrap();
    side.pass(3600);
    call(&stage, &side.credentials(Absent)).await.unwrap();
    assert_eq!(stage.script().form["grant_type"], "refresh_token");
    assert_eq!(stage.script().form["basic"], "given:canary-given");
}

/// A no is told as a no, and nothing is kept.
#[tokio::test]
async fn the_person_says_no() {
    let stage = Stage::set().await;
    stage.script().redirect = Redirect::Denied;
    let side = Side::of(&stage);
    let words = unauthorized(call(&stage, &side.credentials(person())).await);
    assert!(words.contains("access_denied") && words.contains("No."), "{words}");
    assert_eq!(stage.asked("a POST /token"), 0);
    assert_eq!(side.grant(&stage).await, None);
}

/// A redirect that does not belong to the login is turned away, and the login goes on.
#[tokio::test]
async fn a_stranger_cannot_end_a_login() {
    let stage = Stage::set().await;
    let side = Side::of(&stage);
    let person = Loopback::new(None, crate::support::library::PATIENCE, |address: &str| {
        let address = Url::parse(address).unwrap();
        let back = address.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
        tokio::spawn(async move {
            assert_eq!(visit(&format!("{back}?code=canary-evil&state=guess")).await, 400);
            assert_eq!(visit(&format!("{back}?error=access_denied")).await, 400);
            assert_eq!(visit(&back).await, 404);
            assert_eq!(visit(&back.replace("/callback", "/callback2?code=x")).await, 404);
            // A connection that says nothing, as browsers open them, stays open meanwhile.
            let port = Url::parse(&back).unwrap().port().unwrap();
            let silent = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            assert_eq!(visit(address.as_str()).await, 200);
            drop(silent);
        });
    });
    assert_eq!(call(&stage, &side.credentials(person)).await.unwrap(), "hello");
}

/// Brings back whatever it is given.
struct Gullible(String);

impl Person for Gullible {
    fn prepare(&self) -> Pending<'_, Result<Option<Box<dyn Visit>>, OAuthError>> {
        let visit = Box::new(Self(self.0.clone())) as Box<dyn Visit>;
        Box::pin(async { Ok(Some(visit)) })
    }
}

impl Visit for Gullible {
    fn redirect_uri(&self) -> String {
        "http://127.0.0.1:1/callback".to_owned()
    }

    fn authorize(self: Box<Self>, _: Url) -> Pending<'static, Result<String, OAuthError>> {
        Box::pin(async { Ok(self.0) })
    }
}

/// An authorization server that answers another question than ours gets no token request.
#[tokio::test]
async fn a_wrong_state_ends_in_nothing() {
    let stage = Stage::set().await;
    stage.script().redirect = Redirect::OtherState;
    let side = Side::of(&stage);
    let person = Loopback::new(None, Duration::from_secs(1), browse);
    let refused = side.credentials(person).login(&[]).await;
    assert!(matches!(refused, Err(OAuthError::NoAnswer { .. })), "{refused:?}");
    assert_eq!(stage.asked("a POST /token"), 0);

    let gullible = Gullible("http://127.0.0.1:1/callback?code=canary&state=other".to_owned());
    assert_eq!(side.credentials(gullible).login(&[]).await, Err(OAuthError::State));
    assert_eq!(stage.asked("a POST /token"), 0);
}

/// The issuer must be the one that was asked, in its metadata and in the redirect, to the letter.
#[tokio::test]
async fn a_wrong_issuer_gets_nothing() {
    let check = async |advertised: bool, redirect: fn(&Stage) -> Redirect, is_accepted: bool| {
        let stage = Stage::set().await;
        let back = redirect(&stage);
        stage.script().redirect = back.clone();
        if advertised {
            stage.script().metadata = json!({ "authorization_response_iss_parameter_supported": true });
        }
        let done = call(&stage, &Side::of(&stage).credentials(person())).await;
        assert_eq!(done.is_ok(), is_accepted, "{back:?}, advertised: {advertised}: {done:?}");
        assert_eq!(stage.asked("a POST /token"), usize::from(is_accepted));
        if !is_accepted {
            let words = unauthorized(done);
            assert!(words.contains("issuer"), "{words}");
        }
    };
    let right = |stage: &Stage| Redirect::Issuer(stage.issuers[0].clone());
    let slash = |stage: &Stage| Redirect::Issuer(format!("{}/", stage.issuers[0]));
    let other = |stage: &Stage| Redirect::Issuer(stage.issuers[1].clone());
    check(true, right, true).await;
    check(false, right, true).await;
    check(false, |_| Redirect::Plain, true).await;
    check(true, |_| Redirect::Plain, false).await;
    check(true, slash, false).await;
    check(false, slash, false).await;
    check(false, other, false).await;

    let stage = Stage::set().await;
    stage.script().metadata = json!({ "issuer": "https://somebody.else" });
    let words = unauthorized(call(&stage, &Side::of(&stage).credentials(person())).await);
    assert!(words.contains("https://somebody.else"), "{words}");
    assert_eq!(stage.asked("a POST") + stage.asked("a GET /authorize"), 0);
}

/// More is demanded than was granted: the person is asked for all of it, once.
#[tokio::test]
async fn a_call_that_needs_more_is_stepped_up() {
    let stage = Stage::set().await;
    {
        let mut script = stage.script();
        script.hint = Some("read");
        script.demanded = vec!["write"];
    }
    let side = Side::of(&stage);
    let credentials = side.credentials(person());
    let bridge = connect(&stage, &credentials).await.unwrap();
    assert_eq!(stage.script().authorize["scope"], "read");
    assert_eq!(greet(&bridge).await.unwrap(), "hello");
    assert_eq!(stage.script().authorize["scope"], "read write");
    assert_eq!(stage.asked("a GET /authorize"), 2);
    assert_eq!(stage.asked("a POST /register"), 1, "who we are has not changed");
    stage.script().demanded = vec!["admin"];
    assert_eq!(greet(&bridge).await.unwrap(), "hello");
    let mut granted = side.grant(&stage).await.unwrap().scopes;
    granted.sort();
    assert_eq!(granted, ["admin", "read", "write"]);
    bridge.close().await;
}

/// One request may find out both: that it needs a token, and that it needs a better one.
#[tokio::test]
async fn a_first_call_may_need_both() {
    let stage = Stage::set().await;
    let side = Side::of(&stage);
    let credentials = side.credentials(person());
    let bridge = connect(&stage, &credentials).await.unwrap();
    stage.script().demanded = vec!["write"];
    stage.revoke_everything();
    assert_eq!(greet(&bridge).await.unwrap(), "hello");
    assert_eq!(stage.script().authorize["scope"], "write");
    bridge.close().await;
}

/// A server that never has enough is asked about once.
#[tokio::test]
async fn stepping_up_ends() {
    let stage = Stage::set().await;
    {
        let mut script = stage.script();
        script.demanded = vec!["write"];
        script.grants = Some("read");
    }
    let side = Side::of(&stage);
    let credentials = side.credentials(person());
    let bridge = connect(&stage, &credentials).await.unwrap();
    for _ in 0..5 {
        unauthorized(greet(&bridge).await);
    }
    let words = unauthorized(greet(&bridge).await);
    assert!(words.contains("`write`") && words.contains("not granted"), "{words}");
    assert_eq!(stage.asked("a GET /authorize"), 2, "one login, one step up");
    bridge.close().await;
}

/// Without a person the demand is told and remembered; the next login asks for it.
#[tokio::test]
async fn a_demand_waits_for_the_person() {
    let stage = Stage::set().await;
    stage.script().hint = Some("read");
    let side = Side::of(&stage);
    side.credentials(person()).login(&[]).await.unwrap();
    stage.script().demanded = vec!["write"];
    let alone = side.credentials(Absent);
    let words = unauthorized(call(&stage, &alone).await);
    assert!(words.contains("the scope `write`") && words.contains("auth login the-server"), "{words}");
    assert_eq!(side.grant(&stage).await.unwrap().wanted, ["write"]);
    side.credentials(person()).login(&["more".to_owned()]).await.unwrap();
    assert_eq!(stage.script().authorize["scope"], "read more write");
    // The process that serves finds it without being told.
    assert_eq!(call(&stage, &alone).await.unwrap(), "hello");
    assert_eq!(side.grant(&stage).await.unwrap().wanted, [""; 0]);
}

/// Nobody is asked at all where the client has a grant of its own.
#[tokio::test]
async fn a_client_may_act_for_itself() {
    for (methods, is_basic) in
        [(json!(["client_secret_basic"]), true), (json!(["client_secret_post"]), false)]
    {
        let stage = Stage::set().await;
        {
            let mut script = stage.script();
            script.hint = Some("read");
            script.gives_refresh_token = false;
            script.metadata = json!({ "token_endpoint_auth_methods_supported": methods });
        }
        let mut side = Side::of(&stage);
        side.settings.flow = Flow::ClientCredentials;
        side.settings.identity.client_id = Some("itself".to_owned());
        side.settings.identity.client_secret = Some(Secret::new("canary-secret"));
        let credentials = side.credentials(Absent);
        assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
        {
            let script = stage.script();
            assert_eq!(script.form.contains_key("basic"), is_basic);
            assert_eq!(script.form.contains_key("client_secret"), !is_basic);
            assert_eq!(script.form["scope"], "read");
        }
        side.pass(3600);
        assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
        stage.script().demanded = vec!["write"];
        assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
        assert_eq!(stage.script().form["scope"], "read write");
        assert_eq!(stage.asked("a POST /token client_credentials"), 3);
        stage.script().token = Token::Answers(401, json!({ "error": "invalid_client" }).to_string());
        stage.revoke_everything();
        let words = unauthorized(
            call(&stage, &Side { vault: Side::of(&stage).vault, ..side }.credentials(Absent)).await,
        );
        assert!(words.contains("invalid_client"), "{words}");
    }
}

/// The same with a key in place of a secret: the statement is signed anew each time, and the key stays here.
#[tokio::test]
async fn a_client_may_prove_itself_with_a_key() {
    let stage = Stage::set().await;
    stage.script().metadata = json!({
        "token_endpoint_auth_methods_supported": ["private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": ["ES256", "EdDSA"],
    });
    let mut side = Side::of(&stage);
    side.settings.flow = Flow::ClientCredentials;
    side.settings.identity.client_id = Some("itself".to_owned());
    // RFC 8410 §10.3, which is nobody's key.
    let key = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC";
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    side.settings.identity.client_key = Some(Secret::new(pem));
    let credentials = side.credentials(Absent);
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    let first = stage.script().form["client_assertion"].clone();
    assert_eq!(first.split('.').count(), 3);
    assert!(!stage.script().form.contains_key("client_secret"));
    side.pass(3600);
    assert_eq!(call(&stage, &credentials).await.unwrap(), "hello");
    assert_ne!(stage.script().form["client_assertion"], first);
    stage.script().token = Token::Answers(401, json!({ "error": "invalid_client" }).to_string());
    stage.revoke_everything();
    let other = Side { vault: Side::of(&stage).vault, ..side };
    let words = unauthorized(call(&stage, &other.credentials(Absent)).await);
    assert!(words.contains("invalid_client") && !words.contains(key), "{words}");
}

/// A login on another machine: the address that the browser was sent back to is pasted.
#[tokio::test]
async fn a_redirect_can_be_pasted() {
    let stage = Stage::set().await;
    let side = Side::of(&stage);
    let (paste, lines) = tokio::sync::mpsc::channel(4);
    let shown = Arc::new(tokio::sync::Notify::new());
    let tell = Arc::clone(&shown);
    let person = Loopback::new(None, crate::support::library::PATIENCE, move |address: &str| {
        let (address, paste) = (address.to_owned(), paste.clone());
        tokio::spawn(async move {
            let location = sent_to(&address).await;
            paste.send("what is this?".to_owned()).await.unwrap();
            paste.send(" http://127.0.0.1:1/callback?code=canary&state=other ".to_owned()).await.unwrap();
            paste.send(format!("  {location}\n")).await.unwrap();
        });
        tell.notify_one();
    });
    side.credentials(person.or_pasted(lines)).login(&[]).await.unwrap();
    shown.notified().await;
    assert_eq!(call(&stage, &side.credentials(Absent)).await.unwrap(), "hello");
}
