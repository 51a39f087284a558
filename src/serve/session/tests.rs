//! Conversations, message by message.

use serde_json::json;

use super::super::double::Double;
use super::*;
use crate::mcp::envelope::{Frame, read};

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
