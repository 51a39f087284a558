//! A server that wants to know who asks, and two authorization servers, on loopback and by script.
//!
//! They check what a strict one checks (PKCE, `resource`, redirect, client), keep a log of who was asked
//! what, and call every secret they give `canary-…`, so that a story can look for it where it must not be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const BODY_BYTES_MAX: usize = 1 << 20;

/// How an authorization server sends the person back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    Plain,
    /// With this `iss`.
    Issuer(String),
    /// With an error.
    Denied,
    /// To where it should, but with another state.
    OtherState,
}

/// How a token endpoint answers.
#[derive(Clone, Debug)]
pub(crate) enum Token {
    Gives,
    Answers(u16, String),
    RedirectsTo(String),
}

/// What the three do, and what they were asked.
pub(crate) struct Script {
    /// Which authorization server the server believes.
    pub(crate) current: &'static str,
    /// Whether there is any metadata.
    pub(crate) is_published: bool,
    /// Put over the metadata of the server, and of an authorization server.
    pub(crate) resource_metadata: Value,
    pub(crate) metadata: Value,
    /// What the challenge of a 401 asks for.
    pub(crate) hint: Option<&'static str>,
    /// Whether a tool call fails, with what it was sent in the error.
    pub(crate) repeats: bool,
    /// What a tool call needs.
    pub(crate) demanded: Vec<&'static str>,
    pub(crate) redirect: Redirect,
    pub(crate) token: Token,
    pub(crate) registration: Option<(u16, Value)>,
    pub(crate) expires_in: Option<u64>,
    pub(crate) gives_refresh_token: bool,
    /// The scopes granted, whatever was asked for.
    pub(crate) grants: Option<&'static str>,
    /// Held up before a token is told, if set.
    pub(crate) gate: Option<Arc<Semaphore>>,
    /// `a POST /token refresh_token`, one a request.
    pub(crate) log: Vec<String>,
    /// The parameters of the last request to `/authorize` and to `/token`, and the last registration.
    pub(crate) authorize: HashMap<String, String>,
    pub(crate) form: HashMap<String, String>,
    pub(crate) registered: Value,
    books: Books,
}

/// What was given to whom.
#[derive(Default)]
struct Books {
    serial: usize,
    codes: HashMap<String, HashMap<String, String>>,
    access: HashMap<String, String>,
    refresh: HashMap<String, String>,
}

/// The three servers.
#[derive(Clone)]
pub(crate) struct Stage {
    /// The address of the server.
    pub(crate) url: String,
    /// The issuers of the authorization servers `a` and `b`.
    pub(crate) issuers: [String; 2],
    script: Arc<Mutex<Script>>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let origin = |at: usize| format!("http://{}", listeners[at].local_addr().unwrap());
        let stage = Self {
            url: format!("{}/mcp", origin(0)),
            issuers: [origin(1), origin(2)],
            script: Arc::new(Mutex::new(Script::new())),
        };
        for (listener, who) in listeners.into_iter().zip(["server", "a", "b"]) {
            let stage = stage.clone();
            let router = Router::new().fallback(move |request: Request| stage.clone().answer(who, request));
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
        stage
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// How often something that begins so was asked.
    pub(crate) fn asked(&self, what: &str) -> usize {
        self.script().log.iter().filter(|line| line.starts_with(what)).count()
    }

    /// Makes every access token worthless.
    pub(crate) fn revoke_access(&self) {
        self.script().books.access.clear();
    }

    /// Makes every refresh token worthless, too.
    pub(crate) fn revoke_everything(&self) {
        self.revoke_access();
        self.script().books.refresh.clear();
    }

    async fn answer(self, who: &'static str, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
        let url = Url::parse(&format!("http://stage{}", parts.uri)).unwrap();
        let header = |name: &str| {
            parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let authorization = header("authorization");
        let is_get = parts.method == Method::GET;
        if who == "server" {
            return self.server(&url, is_get, &authorization, &body);
        }
        let form = pairs(&String::from_utf8_lossy(&body));
        let kind = form.get("grant_type").map(|kind| format!(" {kind}")).unwrap_or_default();
        self.script().log.push(format!("{who} {} {}{kind}", parts.method, url.path()));
        match url.path() {
            "/.well-known/oauth-authorization-server" if self.script().is_published => self.metadata(who),
            "/register" => self.register(&body),
            "/authorize" => self.authorize(&url, who),
            "/token" => self.token(form, &authorization).await,
            _ => plain(StatusCode::NOT_FOUND),
        }
    }

    fn server(&self, url: &Url, is_get: bool, authorization: &str, body: &[u8]) -> Response {
        let mut script = self.script();
        if url.path().starts_with("/.well-known/") {
            script.log.push(format!("server GET {}", url.path()));
            if !script.is_published || url.path() != "/.well-known/oauth-protected-resource/mcp" {
                return plain(StatusCode::NOT_FOUND);
            }
            let issuer = &self.issuers[usize::from(script.current == "b")];
            let told = json!({ "resource": self.url, "authorization_servers": [issuer] });
            return told_over(told, &script.resource_metadata);
        }
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let method = asked["method"].as_str().unwrap_or_default();
        script.log.push(if is_get { "server GET /mcp".to_owned() } else { format!("server {method}") });
        let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
        let is_current = token.contains(&format!("-{}-", script.current));
        let Some(scopes) = script.books.access.get(token).filter(|_| is_current) else {
            let metadata = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp");
            let place = script.is_published.then(|| format!("resource_metadata=\"{metadata}\""));
            let scope = script.hint.map(|hint| format!("scope=\"{hint}\""));
            let said = ["Bearer error=\"invalid_token\"".to_owned()].into_iter().chain(place).chain(scope);
            let challenge = said.collect::<Vec<_>>().join(", ");
            return refused(StatusCode::UNAUTHORIZED, &challenge);
        };
        let has = |scope: &&&str| !scopes.split(' ').any(|granted| granted == **scope);
        let missing: Vec<&str> = script.demanded.iter().filter(has).copied().collect();
        if method == "tools/call" && !missing.is_empty() {
            let scope = missing.join(" ");
            let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
            return refused(StatusCode::FORBIDDEN, &challenge);
        }
        if method == "tools/call" && script.repeats {
            let body = format!("{authorization} is a strange token: {token}");
            return answered(StatusCode::BAD_REQUEST, "text/plain", &body);
        }
        let result = match method {
            "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }),
            "tools/list" => json!({ "tools": [{ "name": "greet", "inputSchema": { "type": "object" } }] }),
            _ => json!({ "content": [{ "type": "text", "text": "hello" }] }),
        };
        told(StatusCode::OK, &json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }))
    }

    fn metadata(&self, who: &str) -> Response {
        let issuer = &self.issuers[usize::from(who == "b")];
        let metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        });
        told_over(metadata, &self.script().metadata)
    }

    fn register(&self, body: &[u8]) -> Response {
        let mut script = self.script();
        script.registered = serde_json::from_slice(body).unwrap();
        if let Some((status, answer)) = &script.registration {
            return told(StatusCode::from_u16(*status).unwrap(), answer);
        }
        let redirects = script.registered["redirect_uris"].clone();
        let client = json!({ "client_id": "registered", "redirect_uris": redirects });
        told(StatusCode::CREATED, &client)
    }

    fn authorize(&self, url: &Url, who: &str) -> Response {
        let mut script = self.script();
        let asked = pairs(url.query().unwrap_or_default());
        script.authorize.clone_from(&asked);
        script.books.serial += 1;
        let code = format!("canary-code-{who}-{}", script.books.serial);
        let mut back = Url::parse(&asked["redirect_uri"]).unwrap();
        let state = match &script.redirect {
            Redirect::OtherState => "somebody-else",
            _ => &asked["state"],
        };
        back.query_pairs_mut().append_pair("state", state);
        match &script.redirect {
            Redirect::Denied => {
                back.query_pairs_mut()
                    .append_pair("error", "access_denied")
                    .append_pair("error_description", "No.");
            }
            Redirect::Issuer(issuer) => {
                back.query_pairs_mut().append_pair("code", &code).append_pair("iss", issuer);
            }
            Redirect::Plain | Redirect::OtherState => {
                back.query_pairs_mut().append_pair("code", &code);
            }
        }
        script.books.codes.insert(code, asked);
        Response::builder().status(302).header("location", back.as_str()).body(Body::empty()).unwrap()
    }

    async fn token(self, form: HashMap<String, String>, authorization: &str) -> Response {
        let (answer, gate) = {
            let mut script = self.script();
            script.form = form;
            if let Some(basic) = authorization.strip_prefix("Basic ") {
                let basic = String::from_utf8(STANDARD.decode(basic).unwrap()).unwrap();
                script.form.insert("basic".to_owned(), basic);
            }
            (script.give(&self.url), script.gate.clone())
        };
        if let Some(gate) = gate {
            drop(gate.acquire().await.unwrap());
        }
        answer
    }
}

impl Script {
    fn new() -> Self {
        Self {
            current: "a",
            is_published: true,
            resource_metadata: json!({}),
            metadata: json!({}),
            hint: None,
            repeats: false,
            demanded: Vec::new(),
            redirect: Redirect::Plain,
            token: Token::Gives,
            registration: None,
            expires_in: Some(3600),
            gives_refresh_token: true,
            grants: None,
            gate: None,
            log: Vec::new(),
            authorize: HashMap::new(),
            form: HashMap::new(),
            registered: Value::Null,
            books: Books::default(),
        }
    }

    fn give(&mut self, resource: &str) -> Response {
        match &self.token {
            Token::Gives => {}
            Token::Answers(status, body) => {
                return answered(StatusCode::from_u16(*status).unwrap(), "application/json", body);
            }
            Token::RedirectsTo(elsewhere) => {
                let response = Response::builder().status(307).header("location", elsewhere);
                return response.body(Body::empty()).unwrap();
            }
        }
        let form = &self.form;
        let get = |name: &str| form.get(name).cloned().unwrap_or_default();
        let who = self.current;
        let invalid = |error: &str| {
            told(StatusCode::BAD_REQUEST, &json!({ "error": error, "error_description": "canary" }))
        };
        if get("resource") != resource {
            return invalid("invalid_target");
        }
        let asked_for = match get("grant_type").as_str() {
            "authorization_code" => {
                let Some(asked) = self.books.codes.remove(&get("code")) else {
                    return invalid("invalid_grant");
                };
                let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
                let is_proved = asked["code_challenge_method"] == "S256" && asked["code_challenge"] == proof;
                let is_same = asked["redirect_uri"] == get("redirect_uri") && asked["resource"] == resource;
                if !is_proved || !is_same {
                    return invalid("invalid_grant");
                }
                asked.get("scope").cloned().unwrap_or_default()
            }
            // Used once, like those of a careful authorization server.
            "refresh_token" => match self.books.refresh.remove(&get("refresh_token")) {
                Some(scopes) => scopes,
                None => return invalid("invalid_grant"),
            },
            "client_credentials" => get("scope"),
            _ => return invalid("unsupported_grant_type"),
        };
        let scopes = self.grants.map_or(asked_for, ToOwned::to_owned);
        self.books.serial += 1;
        let (access, refresh) = (
            format!("canary-access-{who}-{}", self.books.serial),
            format!("canary-refresh-{who}-{}", self.books.serial),
        );
        self.books.access.insert(access.clone(), scopes.clone());
        let mut given = json!({ "access_token": access, "token_type": "Bearer" });
        if self.grants.is_some() {
            given["scope"] = json!(scopes);
        }
        if let Some(seconds) = self.expires_in {
            given["expires_in"] = json!(seconds);
        }
        if self.gives_refresh_token {
            self.books.refresh.insert(refresh.clone(), scopes);
            given["refresh_token"] = json!(refresh);
        }
        told(StatusCode::OK, &given)
    }
}

fn pairs(query: &str) -> HashMap<String, String> {
    let url = Url::parse(&format!("http://stage/?{query}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn told_over(mut value: Value, over: &Value) -> Response {
    for (name, other) in over.as_object().unwrap() {
        value[name] = other.clone();
    }
    told(StatusCode::OK, &value)
}

fn told(status: StatusCode, value: &Value) -> Response {
    answered(status, "application/json", &value.to_string())
}

fn answered(status: StatusCode, kind: &str, body: &str) -> Response {
    let response = Response::builder().status(status).header("content-type", kind);
    response.body(Body::from(body.to_owned())).unwrap()
}

fn refused(status: StatusCode, challenge: &str) -> Response {
    let response = Response::builder().status(status).header("www-authenticate", challenge);
    response.body(Body::from("{\"error\":\"refused\"}")).unwrap()
}

fn plain(status: StatusCode) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}
