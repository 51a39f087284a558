//! Stories of the core: a server is built, given tools, started, called and stopped.

#![expect(clippy::unwrap_used, reason = "a helper of a test is a test")]

mod arguments;
mod error_table;
mod examples;
mod handlers;
mod life;
mod program;
mod small_tool;
mod stages;
mod surface;
mod tools;
mod turns;

use std::io::{Read, empty, sink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colibri::app::{Builder, Server, StartError};
use colibri::domain::audit::Payloads;
use colibri::domain::log::Logger;
use colibri::domain::mode::Mode;
use colibri::serve::Transport;
use colibri::tools::ToolConfig;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::support::library::{StepClock, bench};
use tools::{Echo, Said, echo};

/// T-1, T-2, T-3, CO-1: every option has a default, and each can be given.
#[test]
fn a_server_is_built_from_defaults_and_overrides() {
    let plain = Server::builder().build();
    assert_eq!((plain.version(), plain.mode()), (env!("CARGO_PKG_VERSION"), Mode::Full));

    assert_eq!(Server::builder().version("9.9.9-test").build().version(), "9.9.9-test");
    for mode in Mode::ALL {
        assert_eq!(Server::builder().mode(mode).build().mode(), mode);
    }
}

/// T-4, T-19, CO-1: building connects nothing; starting does, and then the server is connected.
#[tokio::test]
async fn nothing_is_connected_before_the_start() {
    let connected = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&connected);
    let (client_in, _client_out) = std::io::pipe().unwrap();
    let connect = async move {
        noted.store(true, Ordering::SeqCst);
        Ok(Transport::new(client_in, sink()))
    };
    let mut server = quiet().transport_from(connect).build();
    tokio::task::yield_now().await;
    assert_eq!((connected.load(Ordering::SeqCst), server.is_connected()), (false, false));
    server.start().await.unwrap();
    assert_eq!((connected.load(Ordering::SeqCst), server.is_connected()), (true, true));
    server.stop().await;
    assert!(!server.is_connected());
}

/// Leaves the process's handlers and its stderr alone.
fn quiet() -> Builder {
    Server::builder().install_handlers(false).logger(Logger::silent())
}

/// T-4, CO-1: a transport that is given is not read before the start either.
#[test]
fn a_transport_is_not_read_before_the_start() {
    struct Untouchable;
    impl Read for Untouchable {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("nobody has started")
        }
    }
    drop(Server::builder().transport(Transport::new(Untouchable, sink())).build());
}

/// T-24, CO-12: neither building nor starting on another transport touches the process's stdout.
#[tokio::test]
async fn stdout_is_left_alone() {
    let whose = || rustix::fs::fstat(rustix::stdio::stdout()).map(|stat| (stat.st_dev, stat.st_ino)).unwrap();
    let before = whose();
    let mut server = quiet().transport(Transport::new(empty(), sink())).build();
    assert_eq!(whose(), before);
    server.start().await.unwrap();
    server.wait().await;
    assert_eq!(whose(), before);
}

/// T-7, CO-1: clock, boot instant, user and sink are the ones that were given.
#[tokio::test]
async fn the_parts_that_were_given_are_the_parts_that_work() {
    let (builder, mut bench) = bench();
    let clock = Arc::new(StepClock { step_ms: 0, ..StepClock::default() });
    let mut server = builder.clock(clock.clone()).boot(Duration::ZERO).version("9.9.9-test").build();
    bench.start(&mut server).await;
    let data = bench.client.envelope("server_ping", &json!({})).await;
    assert_eq!(
        data,
        json!({ "ok": true, "data": { "version": "9.9.9-test", "mode": "FULL", "uptime_ms": 0 } })
    );
    let enter = bench.sink.enters().remove(0);
    assert_eq!((&*enter.principal.user, &*enter.principal.client), ("ada", "a test"));
    assert_eq!((enter.revision, enter.at.wall.0), ("2025-11-25", crate::support::library::SOME_DAY));
    assert_eq!(bench.sink.briefs(), ["enter server_ping", "exit server_ping ok"]);
    assert_eq!(enter.call.0.get_version_num(), 7, "ids sort by time");
}

/// T-8, SU-1: the two tools of the server itself are there from the start, and others join them.
#[test]
fn a_registered_tool_is_there() {
    let mut server = Server::builder().install_handlers(false).build();
    server.register("echo", ToolConfig::default(), echo).unwrap();
    assert!(!server.is_connected());
    let names: Vec<String> =
        server.into_calls().unwrap().definitions().iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, ["echo", "server_health", "server_ping"]);
}

/// T-9, T-10, CO-2: names are unique and plain.
#[test]
fn a_name_is_refused_if_it_is_taken_or_odd() {
    let mut server = Server::builder().build();
    let mut refused = |name: &str| {
        let registered = server.register(name, ToolConfig::default(), echo);
        registered.map_or_else(|error| error.to_string(), |()| String::new())
    };
    assert_eq!(refused("echo"), "");
    assert_eq!(refused("echo"), "tool already registered: echo");
    assert_eq!(refused("server_ping"), "tool already registered: server_ping");
    for odd in ["server-ping", "", "Echo", "github__echo", "2_echo"] {
        assert_eq!(refused(odd), format!("invalid tool name: {odd}"));
    }
}

/// T-11, CO-2: arguments are an object with known keys, or the tool is none.
#[test]
fn arguments_that_are_no_object_are_refused() {
    fn refused<A: JsonSchema + serde::de::DeserializeOwned + Send + 'static>() -> String {
        let mut server = Server::builder().build();
        let tool = |_: A, _| std::future::ready(Ok(Said::default()));
        server.register("odd", ToolConfig::default(), tool).unwrap_err().to_string()
    }
    let expected = "the input schema of odd is not an object: take a struct with named fields";
    assert_eq!(refused::<String>(), expected);
    assert_eq!(refused::<Vec<String>>(), expected);
    assert_eq!(refused::<(u8, u8)>(), expected);
    assert_eq!(refused::<Payloads>(), expected);
    assert_eq!(refused::<Option<Echo>>(), expected);
    assert_eq!(refused::<serde_json::Value>(), expected);
    assert_eq!(refused::<std::collections::BTreeMap<String, String>>(), expected, "keys that nobody knows");
}

/// CO-2: a schema that means nothing is told when the server starts, with the tool's name.
#[tokio::test]
async fn a_schema_that_does_not_compile_fails_the_start() {
    #[derive(serde::Deserialize)]
    struct Odd {}
    impl JsonSchema for Odd {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Odd".into()
        }
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "object", "properties": { "x": { "type": "nonsense" } } })
        }
    }
    let (builder, _bench) = bench();
    let mut server = builder.build();
    let tool = |_: Odd, _| std::future::ready(Ok(Said::default()));
    server.register("odd", ToolConfig::default(), tool).unwrap();
    let error = server.start().await.unwrap_err();
    assert!(matches!(error, StartError::Tool(_)));
    let text = error.to_string();
    assert!(text.starts_with("the input schema of odd does not compile: "), "{text}");
}
