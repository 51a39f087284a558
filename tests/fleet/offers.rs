//! Resources, templates, prompts and completions of servers: named, listed, asked for, and put on record.

use std::sync::Arc;

use bytes::Bytes;
use colibri::app::Server;
use colibri::call::{Caller, Calls, Reply};
use colibri::domain::audit::Principal;
use colibri::domain::filter::Filter;
use colibri::domain::offer::Kind;
use colibri::fleet::roster::{Fleet, Member, Start, ToolSettings};
use colibri::fleet::seek::Named;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Menu, Scripted, Watched, fleet, member, secs};
use crate::support::library::{Recorder, Seen};

fn resource(uri: &str) -> String {
    format!(r#"{{ "uri":"{uri}", "name":"n", "x-odd":1.50 }}"#)
}

fn template(template: &str) -> String {
    format!(r#"{{ "uriTemplate":"{template}", "name":"n" }}"#)
}

fn prompt(name: &str) -> String {
    format!(r#"{{ "name":"{name}", "description":"Does {name}.", "x-odd":1.50 }}"#)
}

/// A server with one tool, and all of these.
fn server(resources: &[&str], templates: &[&str], prompts: &[&str]) -> Scripted {
    let server = Scripted::new(&["t"]);
    server.with(|menu| {
        *menu = Menu {
            capabilities: json!({ "resources": { "subscribe": true }, "prompts": {}, "completions": {} }),
            resources: resources.iter().map(|uri| resource(uri)).collect(),
            templates: templates.iter().map(|text| template(text)).collect(),
            prompts: prompts.iter().map(|name| prompt(name)).collect(),
            ..Menu::default()
        }
    });
    server
}

fn keys(fleet: &Fleet, kind: Kind) -> Vec<String> {
    fleet.catalog().borrow().entries(kind).iter().map(|entry| entry.key.to_string()).collect()
}

/// Whose it is: `server own`.
async fn place(fleet: &Watched, named: Named<'_>) -> String {
    match fleet.fleet.seek(named).await {
        Ok(Some(place)) => format!("{} {}", place.server, place.own),
        Ok(None) => fleet.fleet.nearest_to(named).map_or("nobody".to_owned(), |near| format!("near {near}")),
        Err(failed) => failed.error.code().to_owned(),
    }
}

/// PR-12, PR-3, SB-1: through all pages, URIs as they are, the first in the order of the configuration keeps one that
/// two have; both forms lead to its server; definitions whole but for what names them; filters are for tools.
#[tokio::test(start_paused = true)]
async fn resources_and_prompts_are_named_and_found() {
    let b = server(&["file:///z", "file:///a", "file:///b"], &["db://{table}"], &["review", "long.name"]);
    let a =
        server(&["file:///a", "skill://posing/SKILL.md"], &["file:///{+path}", "db://{table}"], &["review"]);
    b.with(|menu| menu.page = 1);
    let mut denied = member("b", &b);
    denied.terms.filter = Filter::new(&["nothing"], &["*"]).expect("short patterns");
    let fleet = fleet(vec![denied, member("a", &a)]);
    fleet.listed(1).await;
    fleet.state_is("b", "ready").await;
    let mut catalog = fleet.fleet.catalog();
    catalog.wait_for(|catalog| catalog.entries(Kind::Prompts).len() == 3).await.expect("it is there");
    drop(catalog);

    let alias = "colibri://a/file%3A%2F%2F%2Fa";
    let posing = "colibri://a/skill%3A%2F%2Fposing%2FSKILL.md";
    assert_eq!(keys(&fleet.fleet, Kind::Resources), ["file:///a", "file:///b", "file:///z", alias, posing]);
    assert_eq!(keys(&fleet.fleet, Kind::Templates), ["db://{table}", "file:///{+path}"]);
    let hashed = keys(&fleet.fleet, Kind::Prompts);
    assert_eq!((hashed.len(), &*hashed[1], &*hashed[2]), (3, "b__review", "a__review"));
    assert!(hashed[0].starts_with("b__long_name_"), "{hashed:?}");

    let catalog = Arc::clone(&fleet.fleet.catalog().borrow());
    let definition = |kind, place: usize| {
        String::from_utf8(catalog.entries(kind)[place].definition.to_vec()).expect("UTF-8")
    };
    assert_eq!(definition(Kind::Resources, 0), resource("file:///a"));
    assert_eq!(definition(Kind::Resources, 3), format!(r#"{{"uri":"{alias}","name":"n","x-odd":1.50}}"#));
    assert_eq!(
        definition(Kind::Prompts, 2),
        r#"{"name":"a__review","description":"Does review.","x-odd":1.50}"#
    );
    assert_eq!(catalog.problems.len(), 1, "{:?}", catalog.problems);

    for (named, expected) in [
        (Named::Resource("file:///a"), "b file:///a"),
        (Named::Resource(alias), "a file:///a"),
        (Named::Resource("colibri://b/file%3A%2F%2F%2Fa"), "b file:///a"),
        (Named::Resource(posing), "a skill://posing/SKILL.md"),
        (Named::Resource("file:///deep/down"), "a file:///deep/down"), // Made from a template.
        (Named::Resource("db://birds"), "b db://birds"),
        (Named::Resource("colibri://a/db%3A%2F%2Fbirds"), "a db://birds"),
        (Named::Resource("colibri://nobody/x"), "nobody"),
        (Named::Resource("db://"), "nobody"),
        (Named::Template("db://{table}"), "b db://{table}"),
        (Named::Template("file:///z"), "b file:///z"),
        (Named::Prompt("b__review"), "b review"),
        (Named::Prompt(&hashed[0]), "b long.name"),
        (Named::Prompt("a__reviev"), "near a__review"),
        (Named::Prompt("review"), "nobody"),
    ] {
        assert_eq!(place(&fleet, named).await, expected, "{named:?}");
    }
}

/// PR-12: a template that any URI could be made from takes none of the others' and none that nobody has; of two that fit,
/// the one that says more of the URI, wherever its server stands.
#[tokio::test(start_paused = true)]
async fn a_greedy_template_takes_nothing() {
    let greedy = server(&[], &["{+x}", "{x}", "file:{+x}"], &[]);
    let modest = server(&[], &["file:///{+path}", "db://{table}"], &[]);
    let fleet = fleet(vec![member("greedy", &greedy), member("modest", &modest)]);
    fleet.listed(2).await;
    for (uri, expected) in [
        ("file:///secret", "modest file:///secret"),
        ("db://birds", "modest db://birds"),
        ("file:x", "greedy file:x"),
        ("mem://anything", "nobody"),
        ("anything", "nobody"),
        ("colibri://greedy/mem%3A%2F%2Fanything", "greedy mem://anything"), // Who asks it by name may.
    ] {
        assert_eq!(place(&fleet, Named::Resource(uri)).await, expected, "{uri}");
    }
}

/// PR-12: who is told of a change is told which list it is; a catalog that lists the same is no change.
#[tokio::test(start_paused = true)]
async fn a_change_is_told_by_its_kind() {
    let (quiet, server) = (server(&["file:///q"], &[], &["q"]), server(&["file:///a"], &[], &["p"]));
    let fleet = fleet(vec![member("quiet", &quiet), member("s", &server)]);
    fleet.listed(2).await;
    let entry = |kind| Arc::clone(&fleet.fleet.catalog().borrow().entries(kind)[0]);
    let kept = (entry(Kind::Resources), entry(Kind::Prompts));
    let mut changes = fleet.fleet.changes();
    let mut expected = *changes.borrow_and_update();
    server.with(|menu| menu.prompts = vec![prompt("q")]);
    server.tell("notifications/prompts/list_changed").await;
    changes.changed().await.expect("the fleet is there");
    expected.prompts += 1;
    assert_eq!(*changes.borrow_and_update(), expected);
    server.with(|menu| menu.templates = vec![template("x://{y}")]);
    server.tell("notifications/resources/list_changed").await;
    changes.changed().await.expect("the fleet is there");
    let before = std::mem::replace(&mut expected, *changes.borrow_and_update());
    let told: Vec<_> = expected.since(before).collect();
    assert_eq!(told, ["notifications/resources/list_changed"]);
    assert_eq!(place(&fleet, Named::Prompt("s__p")).await, "near s__q");
    // New words for models make a new catalog, and change no list.
    server.with(|menu| menu.instructions = Some("Be brief.".to_owned()));
    server.cut();
    let mut catalog = fleet.fleet.catalog();
    catalog.wait_for(|catalog| catalog.instructions().contains("Be brief.")).await.expect("it is there");
    assert!(!changes.has_changed().expect("the fleet is there"));
    let same = Arc::ptr_eq(&kept.0, &entry(Kind::Resources)) && Arc::ptr_eq(&kept.1, &entry(Kind::Prompts));
    assert!(same, "who did not change keeps its entries");
}

/// SB-1: only what is announced is listed; a list that fails costs its own entries and nothing else, an entry
/// that is unusable costs itself, and one that hangs does not keep the server from being ready.
#[tokio::test(start_paused = true)]
async fn a_bad_list_costs_only_itself() {
    let silent = Scripted::new(&["t"]);
    silent.with(|menu| menu.resources = vec![resource("file:///a")]);
    let failing = server(&["file:///b"], &["x://{y}"], &["p"]);
    failing.with(|menu| menu.fails = Some(("resources/list", Some(-32_603))));
    let hanging = server(&["file:///c"], &[], &["p"]);
    hanging.with(|menu| menu.fails = Some(("resources/list", None)));
    let odd = server(&["file:///d"], &[], &[]);
    odd.with(|menu| {
        menu.resources.extend([r#"{"uri":"file:///e"}"#, "7", r#"{"uri":"","name":"n"}"#].map(str::to_owned));
        menu.resources.push(resource("file:///d"));
    });
    let begun = tokio::time::Instant::now();
    let fleet = fleet(vec![
        member("silent", &silent),
        member("failing", &failing),
        member("hanging", &hanging),
        member("odd", &odd),
    ]);
    fleet.listed(4).await;
    assert_eq!(begun.elapsed(), secs(15), "half of the time to connect, and no more");
    assert!(!silent.heard("resources/list") && !silent.heard("prompts/list"));
    assert_eq!(keys(&fleet.fleet, Kind::Resources), ["file:///d"]);
    assert_eq!(keys(&fleet.fleet, Kind::Templates), ["x://{y}"]);
    assert_eq!(keys(&fleet.fleet, Kind::Prompts), ["failing__p", "hanging__p"]);
}

/// PR-13: what clients are told of the servers, in the order of the configuration; both families introduce themselves.
#[tokio::test(start_paused = true)]
async fn instructions_are_put_together() {
    let (a, b) = (server(&[], &[], &["review"]), Scripted::new(&["t"]));
    b.with(|menu| (menu.instructions, menu.is_modern) = (Some("Be brief.".to_owned()), true));
    let mut spoken = member("a", &a);
    let words = ToolSettings { instructions: Some("Only once.".to_owned()), ..ToolSettings::default() };
    spoken.terms.tools.insert("t".to_owned(), words);
    let fleet = fleet(vec![spoken, member("b", &b)]);
    fleet.listed(2).await;
    let expected = "#### MCP Server: a\na__review: Does review.\n\n##### Tool: a__t\nOnly once.\n\n\
        #### MCP Server: b\nBe brief.";
    assert_eq!(&**fleet.fleet.catalog().borrow().instructions(), expected);
}

/// A call path over these servers, and what it puts on record.
fn path(members: Vec<Member>) -> (Calls, Recorder) {
    path_of(&fleet(members))
}

/// The path of calls to a fleet, and what it puts on record.
pub(super) fn path_of(watched: &Watched) -> (Calls, Recorder) {
    let sink = Recorder::default();
    let builder = Server::builder().audit_sink(sink.clone()).clock(Arc::clone(&watched.clock));
    let fleet = watched.fleet.clone();
    let server = builder.servers(move |_| Some(fleet)).build();
    (server.into_calls().expect("sound schemas"), sink)
}

pub(super) fn caller() -> Caller {
    let principal = Arc::new(Principal { client: "c".to_owned(), user: "u".to_owned() });
    Caller { principal, revision: "2025-11-25", session: colibri::domain::face::SessionId::default() }
}

async fn ask(calls: &Calls, method: &str, params: &Value) -> Reply {
    let caller = caller();
    let arguments = Bytes::from(params.to_string());
    calls.run(calls.arrival(method, Some(arguments), caller, CancellationToken::new()).of_method()).await
}

/// `result …`, `error CODE`, `failed CODE`, `unknown …`.
fn brief(reply: Reply) -> String {
    let parsed = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).expect("JSON");
    match reply {
        Reply::Result { body, .. } => format!("result {}", parsed(&body)),
        Reply::Error { raw } => format!("error {}", parsed(&raw)["code"]),
        Reply::Envelope { body, .. } => {
            format!("failed {}", parsed(&body)["error"]["code"].as_str().expect("a code"))
        }
        Reply::UnknownTool { message } => message,
        Reply::Cancelled => "cancelled".to_owned(),
    }
}

/// PR-12, CO-3, CO-9: reading a resource, getting a prompt and completing are on record like calls, with what was
/// asked; the server is asked under its own names; what it answers, and its errors, are passed on.
#[tokio::test(start_paused = true)]
async fn what_is_asked_is_on_record() {
    let (a, b) = (server(&["file:///a"], &["x://{y}"], &["p"]), server(&["file:///a"], &[], &[]));
    let (calls, sink) = path(vec![member("a", &a), member("b", &b)]);
    let alias = "colibri://b/file%3A%2F%2F%2Fa";
    let reference = json!({ "type": "ref/prompt", "name": "a__p", "title": "kept" });
    let argument = json!({ "name": "n", "value": "v" });
    for (method, params, expected, recorded) in [
        (
            "prompts/get",
            json!({ "name": "a__p", "arguments": { "n": "v" } }),
            r#"result {"description":"p","messages":[]}"#,
            "ok",
        ),
        (
            "resources/read",
            json!({ "uri": alias }),
            r#"result {"contents":[{"text":"read","uri":"file:///a"}]}"#,
            "ok",
        ),
        ("resources/read", json!({ "uri": "x://gone" }), "error -32002", "error PROVIDER_EXECUTE_FAILED"),
        (
            "completion/complete",
            json!({ "ref": reference, "argument": argument }),
            r#"result {"completion":{"values":["v"]}}"#,
            "ok",
        ),
        ("resources/subscribe", json!({ "uri": alias }), "result {}", "ok"),
    ] {
        assert_eq!(brief(ask(&calls, method, &params).await), expected, "{method}");
        let seen = sink.seen();
        let [.., Seen::Enter(enter), Seen::Exit(exit)] = seen.as_slice() else {
            panic!("{:?}", sink.briefs())
        };
        assert_eq!((&*enter.tool, enter.call), (method, exit.call));
        assert_eq!(serde_json::from_slice::<Value>(&enter.arguments).expect("JSON"), params);
        assert!(
            sink.briefs().last().is_some_and(|last| *last == format!("exit {method} {recorded}")),
            "{:?}",
            sink.briefs()
        );
    }
    assert_eq!(a.asked("prompts/get"), json!({ "name": "p", "arguments": { "n": "v" } }));
    assert_eq!(b.asked("resources/read"), json!({ "uri": "file:///a" }));
    let reference = json!({ "type": "ref/prompt", "name": "p", "title": "kept" });
    assert_eq!(a.asked("completion/complete"), json!({ "ref": reference, "argument": argument }));
    assert_eq!(b.asked("resources/subscribe"), json!({ "uri": "file:///a" }));
}

/// PR-12, CO-9: what nobody has, what has no sense and what a server cannot do now is refused, and on record.
#[tokio::test(start_paused = true)]
async fn what_is_refused_is_on_record() {
    let (a, lazy) = (server(&["file:///a"], &[], &["p"]), server(&["file:///z"], &[], &["q"]));
    let plain = Scripted::new(&[]);
    plain.with(|menu| {
        menu.capabilities = json!({ "resources": {} });
        menu.resources.push(resource("file:///plain"));
    });
    a.with(|menu| menu.fails = Some(("prompts/get", None)));
    let mut on_use = member("lazy", &lazy);
    on_use.terms.start = Start::OnUse;
    let (calls, sink) = path(vec![member("a", &a), on_use, member("plain", &plain)]);
    // Asked for by its name, the server is started.
    let got = brief(ask(&calls, "prompts/get", &json!({ "name": "lazy__q" })).await);
    assert!(got.starts_with("result"), "{got}");
    while calls.entries(Kind::Resources).len() < 3 {
        tokio::task::yield_now().await;
    }
    for (method, params, expected, recorded) in [
        (
            "resources/read",
            json!({ "uri": "file:///b" }),
            "unknown resource `file:///b`; did you mean `file:///a`?",
            "UNKNOWN_RESOURCE",
        ),
        (
            "prompts/get",
            json!({ "name": "a__o" }),
            "unknown prompt `a__o`; did you mean `a__p`?",
            "UNKNOWN_PROMPT",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "n", "value": "" } }),
            "unknown prompt `x`",
            "UNKNOWN_PROMPT",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/odd" }, "argument": { "name": "n", "value": "" } }),
            "failed INVALID_PARAMS",
            "INVALID_PARAMS",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "a__p" }, "argument": {} }),
            "failed INVALID_PARAMS",
            "INVALID_PARAMS",
        ),
        (
            "prompts/get",
            json!({ "name": "a__p", "arguments": [] }),
            "failed INVALID_PARAMS",
            "INVALID_PARAMS",
        ),
        ("resources/subscribe", json!({ "uri": "file:///plain" }), "failed INVALID_PARAMS", "INVALID_PARAMS"),
    ] {
        assert_eq!(brief(ask(&calls, method, &params).await), expected, "{method} {params}");
        let recorded = format!("rejected {method} rejected {recorded}");
        assert_eq!(sink.briefs().last(), Some(&recorded), "{params}");
    }
    let failed = brief(ask(&calls, "prompts/get", &json!({ "name": "a__p" })).await);
    assert_eq!(failed, "failed PROVIDER_TIMEOUT");
    assert_eq!(sink.briefs().last().map(String::as_str), Some("exit prompts/get timeout PROVIDER_TIMEOUT"));
}
