//! Conversations, message by message.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::super::double::Double;
use super::*;
use crate::mcp::envelope::{Frame, read};
use crate::mcp::revision::REVISIONS;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",
    "capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}"#;

fn session() -> Session {
    let identity = Identity {
        version: "1.2.3".to_owned(),
        instructions: "be kind".to_owned(),
        skills: false,
        servers: false,
    };
    Session::new(Arc::new(identity), "ada".to_owned())
}

fn begun() -> Session {
    let mut session = session();
    assert!(say(&mut session, INITIALIZE).starts_with("result"));
    session
}

/// What a frame leads to: `result …`, `CODE message`, `call TOOL ARGUMENTS CLIENT USER REVISION`,
/// `cancel ID`, or nothing.
fn say(session: &mut Session, frame: &str) -> String {
    let Frame::Single(message) = read(&Bytes::copy_from_slice(frame.as_bytes())) else { panic!("a batch") };
    match session.accept(message, &Double::new()) {
        // An answer is answered with nothing.
        Step::Silence | Step::Answered(..) => String::new(),
        Step::Cancel(id) => format!("cancel {}", id.raw()),
        Step::Tell(method) => format!("tell {method}"),
        Step::Listen(listen) => format!("listen {} {:?}", listen.id.raw(), listen.filter),
        Step::LogLevel(_, answer) => {
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            format!("result {}", answer["result"])
        }
        Step::Call(asked) => {
            let arguments = asked.arguments.unwrap_or_default();
            let Principal { client, user } = &*asked.caller.principal;
            let revision = asked.caller.revision;
            format!("call {} {} {client} {user} {revision}", asked.tool, String::from_utf8_lossy(&arguments))
        }
        Step::Answer(answer) => {
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            match answer.get("error") {
                Some(error) => format!("{} {}", error["code"], error["message"].as_str().unwrap()),
                None => format!("result {}", answer["result"]),
            }
        }
    }
}

fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// The same, with the `_meta` of a modern request.
fn modern(method: &str, params: &Value) -> String {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "new", "version": "2" },
    });
    request(method, &params)
}

#[test]
fn a_legacy_session_begins_with_initialize() {
    let mut session = session();
    for early in ["tools/list", "tools/call", "logging/setLevel", "server/discover", "no/such"] {
        assert_eq!(say(&mut session, &request(early, &json!({}))), format!("-32602 {NOT_BEGUN}"));
    }
    assert_eq!(say(&mut session, &request("ping", &json!({}))), "result {}");
    assert!(
        say(&mut session, &request("initialize", &json!({})))
            .starts_with("-32602 invalid params: missing field")
    );
    assert!(say(&mut session, INITIALIZE).contains(r#""protocolVersion":"2025-11-25""#));
    assert_eq!(say(&mut session, INITIALIZE), "-32600 the session has already begun");
    assert_eq!(say(&mut session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), "");
    assert!(say(&mut session, &request("tools/list", &json!({}))).contains(r#""name":"echo""#));
}

#[test]
fn a_legacy_session_answers_its_methods_and_no_others() {
    let mut session = begun();
    let mut check = |method: &str, params: Value, expected: &str| {
        let said = say(&mut session, &request(method, &params));
        assert!(said.starts_with(expected), "{method} {params}: {said}");
    };
    check("ping", json!({}), "result {}");
    check("logging/setLevel", json!({ "level": "warning" }), "result {}");
    check("logging/setLevel", json!({ "level": "loud" }), "-32602 invalid params: unknown variant `loud`");
    check("tools/list", json!({ "cursor": "nonsense" }), "-32602 invalid cursor");
    check("tools/call", json!({ "name": "echo" }), "call echo  tester ada 2025-11-25");
    check("tools/call", json!({}), "-32602 invalid params: missing field `name`");
    check("tools/call", json!([]), "-32602 invalid params: an object was expected");
    check("tools/call", json!({ "name": "x", "_meta": [] }), "-32602 invalid params: an object was expected");
    check("server/discover", json!({}), "-32601 unknown method: server/discover");
    check("resources/list", json!({}), "-32601 unknown method: resources/list");
}

#[test]
fn a_modern_request_stands_for_itself() {
    // Before any session, and in the middle of a legacy one.
    for session in [&mut session(), &mut begun()] {
        let discovered = say(session, &modern("server/discover", &json!({})));
        assert!(discovered.contains(r#""supportedVersions":["2026-07-28"]"#), "{discovered}");
        let listed = say(session, &modern("tools/list", &json!({})));
        assert!(listed.contains(r#""resultType":"complete""#) && listed.contains("ttlMs"), "{listed}");
        let call = modern("tools/call", &json!({ "name": "echo", "arguments": { "a": 1 } }));
        assert_eq!(say(session, &call), r#"call echo {"a":1} new ada 2026-07-28"#);
        for gone in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
            assert_eq!(say(session, &modern(gone, &json!({}))), format!("-32601 unknown method: {gone}"));
        }
    }
}

/// SU-12: the methods of skills become calls of hidden tools, with nothing of the request's own `_meta`.
#[test]
fn skills_are_read_by_calls_where_they_are_offered() {
    let identity =
        Identity { version: "1".to_owned(), instructions: String::new(), skills: true, servers: false };
    let mut session = Session::new(Arc::new(identity), "ada".to_owned());
    let read = json!({ "uri": "skill://a/b", "other": [1] });
    assert_eq!(
        say(&mut session, &modern("resources/read", &read)),
        r#"call resources/read {"uri":"skill://a/b"} new ada 2026-07-28"#
    );
    assert_eq!(say(&mut session, &request("skills/list", &json!({}))), format!("-32602 {NOT_BEGUN}"));
    assert!(say(&mut session, INITIALIZE).contains("io.modelcontextprotocol/skills"));
    let listed = say(&mut session, &request("skills/list", &json!({ "cursor": "x" })));
    assert_eq!(listed, r#"call skills/list {"cursor":"x"} tester ada 2025-11-25"#);
    let wrong = say(&mut session, &request("skills/get", &json!({ "uri": 7 })));
    assert!(wrong.starts_with("-32602 invalid params: invalid type"), "{wrong}");
    assert!(say(&mut session, &request("resources/templates/list", &json!({}))).starts_with("result"));
    assert_eq!(
        say(&mut session, &request("resources/subscribe", &json!({}))),
        "-32601 unknown method: resources/subscribe"
    );
}

/// PR-12, PR-13: with servers both families list and ask for what those offer; each is told what it may ask, and what
/// there is to know.
#[test]
fn what_servers_offer_is_listed_and_asked_for() {
    let identity = |skills| Identity {
        version: "1".to_owned(),
        instructions: "be kind".to_owned(),
        skills,
        servers: true,
    };
    let mut session = Session::new(Arc::new(identity(false)), "ada".to_owned());
    let said = say(&mut session, INITIALIZE);
    assert!(said.contains(r#""instructions":"be kind\n\n#### MCP Server: s""#), "{said}");
    for capability in [
        r#""completions":{}"#,
        r#""prompts":{"listChanged":true}"#,
        r#""resources":{"listChanged":true,"subscribe":true}"#,
    ] {
        assert!(said.contains(capability), "{said}");
    }
    let discovered = say(&mut session, &modern("server/discover", &json!({})));
    let listed =
        r#""prompts":{"listChanged":true},"resources":{"listChanged":true},"tools":{"listChanged":true}"#;
    assert!(discovered.contains(listed), "{discovered}");

    let argument = json!({ "name": "n", "value": 1.5 });
    for (method, params, expected) in [
        ("resources/list", json!({}), r#"result {"resources":[{"name":"a","uri":"file:///a","x":1.5}]"#),
        ("resources/templates/list", json!({}), r#"result {"resourceTemplates":[{"name":"a","uriTemplate":"#),
        ("prompts/list", json!({}), r#"result {"prompts":[{"name":"s__p"}]"#),
        ("prompts/list", json!({ "cursor": "x" }), "-32602 invalid cursor"),
        ("resources/read", json!({ "uri": "a", "b": 1 }), r#"call resources/read {"uri":"a"} "#),
        (
            "prompts/get",
            json!({ "name": "p", "arguments": { "a": "b" } }),
            r#"call prompts/get {"name":"p","arguments":{"a":"b"}} "#,
        ),
        ("prompts/get", json!({}), "-32602 invalid params: missing field `name`"),
        (
            "completion/complete",
            json!({ "ref": {}, "argument": argument }),
            r#"call completion/complete {"ref":{},"argument":{"name":"n","value":1.5}} "#,
        ),
        ("completion/complete", json!({ "ref": {} }), "-32602 invalid params: missing field `argument`"),
        ("skills/list", json!({}), "-32601 unknown method"),
    ] {
        for said in
            [say(&mut session, &request(method, &params)), say(&mut session, &modern(method, &params))]
        {
            let said = said.replacen(r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"colibri","title":"Colibri","version":"1"}},"cacheScope":"private","#, "{", 1);
            assert!(said.starts_with(expected), "{method} {params}: {said}");
        }
    }
    let subscribe = say(&mut session, &request("resources/subscribe", &json!({ "uri": "a" })));
    assert!(subscribe.starts_with(r#"call resources/subscribe {"uri":"a"} "#), "{subscribe}");

    // Colibri's own resources come first, by a call; a cursor of the servers' goes to the servers'.
    let mut session = Session::new(Arc::new(identity(true)), "ada".to_owned());
    assert_eq!(
        say(&mut session, &modern("resources/list", &json!({}))),
        "call resources/list {} new ada 2026-07-28"
    );
    let cursor = URL_SAFE_NO_PAD.encode("after:s file:///");
    let said = say(&mut session, &modern("resources/list", &json!({ "cursor": cursor })));
    assert!(said.contains("file:///a"), "{said}");
}

/// PR-12, CO-9: what a server answers to a method carries the call's id, and what the revision requires; what colibri
/// fails is an error with the code for machines; what nobody has is the protocol's own error.
#[test]
fn a_method_is_answered_in_the_words_of_its_revision() {
    let identity = Arc::new(Identity {
        version: "1".to_owned(),
        instructions: String::new(),
        skills: true,
        servers: true,
    });
    let answering = |method, revision| Answering {
        identity: Arc::clone(&identity),
        revision,
        method: Some(method),
        behind: Some(Double::new().entries(Kind::Resources)),
        arguments: Some(Bytes::from_static(br#"{"uri":"a"}"#)),
    };
    let (old, new) = (&REVISIONS[3], &REVISIONS[4]);
    let id = Id::read(b"1").unwrap();
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let read = Bytes::from_static(br#"{"contents":[],"n":1.50}"#);
    assert_eq!(
        text(answering("resources/read", old).result(&id, &read, "c", None)),
        r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[],"n":1.50,"_meta":{"colibri/correlationId":"c"}}}"#
    );
    let hints = r#""resultType":"complete","ttlMs":0,"cacheScope":"private","_meta""#;
    assert!(text(answering("resources/read", new).result(&id, &read, "c", None)).contains(hints));
    let cached = Bytes::from_static(br#"{"contents":[],"ttlMs":5,"_meta":{"a":1}}"#);
    assert_eq!(
        text(answering("resources/read", new).result(&id, &cached, "c", None)),
        r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[],"ttlMs":5,"_meta":{"a":1,"colibri/correlationId":"c"},"resultType":"complete","cacheScope":"private"}}"#
    );
    for (method, revision, code) in [
        ("resources/read", old, -32_002),
        ("resources/read", new, -32_602),
        ("prompts/get", old, -32_602),
        ("completion/complete", new, -32_602),
    ] {
        let error = text(answering(method, revision).unknown(&id, "no".to_owned()));
        let data = if method == "resources/read" { r#","data":{"uri":"a"}"# } else { "" };
        assert!(error.contains(&format!(r#"{{"code":{code},"message":"no"{data}}}"#)), "{error}");
    }
    let failed = br#"{"ok":false,"error":{"code":"PROVIDER_TIMEOUT","message":"late","details":{"retryable":true,"executed":"unknown"}}}"#;
    let error: Value =
        serde_json::from_slice(&answering("prompts/get", old).envelope(&id, failed, true, "c")).unwrap();
    assert_eq!(
        error["error"]["data"],
        json!({ "code": "PROVIDER_TIMEOUT", "retryable": true, "executed": "unknown" })
    );
    assert_eq!((&error["error"]["code"], &error["error"]["message"]), (&json!(-32_603), &json!("late")));

    // Own resources, and behind the last page of them those of servers.
    let own = br#"{"ok":true,"data":{"resources":[{"uri":"skill://x"}]}}"#;
    let listed = text(answering("resources/list", old).envelope(&id, own, false, "c"));
    let expected = r#""resources":[{"uri":"skill://x"},{ "uri":"file:///a", "name":"a", "x":1.50 }],"_meta""#;
    assert!(listed.contains(expected), "{listed}");
    let more = br#"{"ok":true,"data":{"resources":[],"nextCursor":"skill://x"}}"#;
    let listed = text(answering("resources/list", old).envelope(&id, more, false, "c"));
    assert!(!listed.contains("file:///a") && listed.contains(r#""nextCursor":"skill://x""#), "{listed}");
}

/// PR-12: a client of the newer family asks to be told, and is told at most what can change.
#[test]
fn a_modern_client_listens_for_what_can_change() {
    let listening = |servers, params: &Value| {
        let identity =
            Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers };
        say(&mut Session::new(Arc::new(identity), "ada".to_owned()), &modern("subscriptions/listen", params))
    };
    let asked =
        json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["file:///a"] } });
    assert_eq!(listening(true, &asked), "listen 1 Filter { tools: true, prompts: false, resources: false }");
    assert_eq!(
        listening(false, &asked),
        "listen 1 Filter { tools: false, prompts: false, resources: false }"
    );
    assert!(listening(true, &json!({})).starts_with("-32602 invalid params: missing field `notifications`"));
    // The older family is told without asking, and has no such method.
    let legacy = say(&mut begun(), &request("subscriptions/listen", &asked));
    assert_eq!(legacy, "-32601 unknown method: subscriptions/listen");
}

#[test]
fn a_modern_request_says_what_it_speaks_and_what_it_can() {
    let with = |meta: Value| say(&mut session(), &request("tools/list", &json!({ "_meta": meta })));
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    assert_eq!(with(json!({ version: "2026-07-28" })), format!("-32602 {NO_CAPABILITIES}"));
    for unknown in ["2025-11-25", "2099-01-01", ""] {
        let expected = format!("-32022 unsupported protocol version: {unknown}");
        assert_eq!(with(json!({ version: unknown, capabilities: {} })), expected);
    }
    assert!(with(json!({ version: 7, capabilities: {} })).starts_with("-32602 invalid params"));
    assert_eq!(with(json!({ capabilities: {} })), format!("-32602 {NOT_BEGUN}"));
    let nameless = json!({ "name": "who", "_meta": { version: "2026-07-28", capabilities: {} } });
    assert_eq!(say(&mut session(), &request("tools/call", &nameless)), "call who  unknown ada 2026-07-28");
}

#[test]
fn notifications_and_responses_are_never_answered() {
    let mut session = begun();
    for (frame, expected) in [
        (
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#,
            r#"cancel "a""#,
        ),
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, ""),
        (r#"{"jsonrpc":"2.0","method":"notifications/nonsense","params":7}"#, ""),
        (r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#, ""),
        (r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, ""),
        (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, ""),
    ] {
        assert_eq!(say(&mut session, frame), expected, "{frame}");
    }
}
