//! Stories of stage 2: arguments that do not fit are told apart, each with its place.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use colibri::app::Server;
use colibri::tools::{Context, ToolConfig};

use super::tools::{Nothing, Said};
use crate::support::library::{Bench, bench};

#[derive(Deserialize, JsonSchema)]
struct Form {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "age")]
    _age: Option<u8>,
    #[serde(default, rename = "tags")]
    _tags: Vec<String>,
    #[serde(rename = "address")]
    _address: Option<Address>,
    #[serde(rename = "speed")]
    _speed: Option<Speed>,
    #[serde(rename = "floor")]
    _floor: Option<i32>,
    #[serde(rename = "contact")]
    _contact: Option<Contact>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Address {
    #[serde(rename = "street")]
    _street: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Speed {
    Slow,
    Fast,
}

/// One of two shapes.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Contact {
    Phone(#[expect(dead_code, reason = "only its shape counts")] u64),
    Mail(#[expect(dead_code, reason = "only its shape counts")] String),
}

async fn served() -> (Bench, Server) {
    let (builder, mut bench) = bench();
    let mut server = builder.build();
    let done = || std::future::ready(Ok(Said::default()));
    server.register("form", ToolConfig::default(), move |_: Form, _: Context| done()).unwrap();
    server.register("nothing", ToolConfig::default(), move |_: Nothing, _: Context| done()).unwrap();
    bench.start(&mut server).await;
    (bench, server)
}

/// `ok`, or the issues, each as `path: message`; without the column of a text that is no JSON.
async fn issues(bench: &mut Bench, tool: &str, arguments: &str) -> Vec<String> {
    let params = format!(r#"{{"name":"{tool}"{arguments}}}"#);
    let id = bench.client.begin_raw("tools/call", &params);
    let result = crate::support::library::result(&bench.client.answer(id).await);
    let envelope = &result["structuredContent"];
    if envelope["ok"] == true {
        return vec!["ok".to_owned()];
    }
    assert_eq!((&envelope["error"]["code"], &result["isError"]), (&json!("INVALID_PARAMS"), &json!(true)));
    let issues = envelope["error"]["details"]["issues"].as_array().expect("a list of issues");
    issues.iter().map(|issue| format!("{}: {}", text(issue, "path"), text(issue, "message"))).collect()
}

fn text<'a>(issue: &'a Value, key: &str) -> &'a str {
    let text = issue[key].as_str().expect("text");
    text.split(" at line 1 column ").next().unwrap_or(text)
}

/// CO-5: each mistake is one issue, at its path.
#[tokio::test]
async fn every_mistake_is_told_at_its_place() {
    let (mut bench, _server) = served().await;
    let table: &[(&str, &[&str])] = &[
        (r#"{"name":"Ada"}"#, &["ok"]),
        (r#"{"name":"Ada","age":36,"tags":["x"],"address":{"street":"a"}}"#, &["ok"]),
        (r#"{"name":"Ada","floor":-1,"contact":7}"#, &["ok"]),
        // Absent arguments are an empty object; so is null.
        ("", &[r#": "name" is a required property"#]),
        ("null", &[r#": "name" is a required property"#]),
        ("{}", &[r#": "name" is a required property"#]),
        // Not an object.
        ("[]", &[r#": [] is not of type "object""#]),
        ("7", &[r#": 7 is not of type "object""#]),
        (r#""name""#, &[r#": "name" is not of type "object""#]),
        // Wrong types, all at once and deep inside.
        (
            r#"{"name":1,"tags":["x",2]}"#,
            &[r#"/name: 1 is not of type "string""#, r#"/tags/1: 2 is not of type "string""#],
        ),
        (r#"{"name":"Ada","age":256}"#, &["/age: 256 is greater than the maximum of 255"]),
        // An integer by the schema, and yet none that fits the type.
        (r#"{"name":"Ada","age":36.0}"#, &[": invalid type: floating point `36.0`, expected u8"]),
        // Unknown keys.
        (r#"{"name":"Ada","tasg":[]}"#, &["/tasg: unknown key `tasg`: did you mean `tags`?"]),
        (r#"{"name":"Ada","colour":1}"#, &["/colour: unknown key `colour`"]),
        (r#"{"name":"Ada","a/b~c":1}"#, &["/a~1b~0c: unknown key `a/b~c`"]),
        (r#"{"name":"Ada","address":{"street":"a","steet":1}}"#, &["/address/steet: unknown key `steet`"]),
        // An optional argument is told what is wrong with it, not that it is neither this nor null.
        (r#"{"name":"Ada","speed":"fats"}"#, &[r#"/speed: "fats" is not one of "slow" or "fast""#]),
        (r#"{"name":"Ada","address":7}"#, &[r#"/address: 7 is not of type "object""#]),
        (
            r#"{"name":"Ada","contact":true}"#,
            &["/contact: true is not valid under any of the schemas listed in the 'anyOf' keyword"],
        ),
        (r#"{"name":"Ada","speed":null,"address":null}"#, &["ok"]),
        // What two readers could read differently.
        (r#"{"name":"Ada","name":"Bob"}"#, &[": the key `name` appears twice"]),
        (r#"{"name":"Ada","address":{"street":"a","street":"b"}}"#, &[": the key `street` appears twice"]),
        (r#"{"name":"\ud800"}"#, &[": unexpected end of hex escape"]),
        (r#"{"name":"\udc00 "}"#, &[": lone leading surrogate in hex escape"]),
        (r#"{"name":"Ada","age":1e400}"#, &[": number out of range"]),
    ];
    for (arguments, expected) in table {
        let member =
            if arguments.is_empty() { String::new() } else { format!(r#","arguments":{arguments}"#) };
        assert_eq!(issues(&mut bench, "form", &member).await, *expected, "{arguments}");
    }
    let unknown = issues(&mut bench, "nothing", r#","arguments":{"a":true}"#).await;
    assert_eq!(unknown, ["/a: unknown key `a`: this tool takes no arguments"]);
}

/// CO-5, CO-6: the handler never runs, and every refused call is on record with what was sent.
#[tokio::test]
async fn a_refused_call_is_on_record_as_it_was_sent() {
    let (mut bench, _server) = served().await;
    for arguments in ["[]", r#"{"name":"\ud800"}"#, r#"{"a":1,"a":2}"#] {
        issues(&mut bench, "form", &format!(r#","arguments":{arguments}"#)).await;
        let seen = bench.sink.seen();
        let Some(crate::support::library::Seen::Rejected(enter, exit)) = seen.last() else {
            panic!("{seen:?}")
        };
        assert_eq!(&*enter.arguments, arguments.as_bytes());
        assert_eq!(enter.call, exit.call);
    }
}

/// CO-5: at most twenty issues are told, and their number is said.
#[tokio::test]
async fn no_more_than_twenty_issues_are_told() {
    let (mut bench, _server) = served().await;
    for count in [20, 21, 500] {
        let wrong = json!({ "name": "Ada", "tags": (0..count).collect::<Vec<_>>() });
        let told = issues(&mut bench, "form", &format!(r#","arguments":{wrong}"#)).await;
        assert_eq!(told.len(), 20, "{count} wrong values");

        let unknown: Value = (0..count).map(|n| (format!("stranger_{n:03}"), json!(n))).collect();
        let told = issues(&mut bench, "nothing", &format!(r#","arguments":{unknown}"#)).await;
        assert_eq!(told.len(), 20, "{count} unknown keys");
    }
    let envelope = bench.client.envelope("form", &json!({ "name": 1, "age": "x" })).await;
    assert_eq!(envelope["error"]["message"], "invalid arguments: 2 issues, listed in details.issues");
}
