//! The bridge as the client that the official conformance suite drives: one run is one scenario.
//!
//! The suite tells the address as the last argument, and by the environment which scenario it is, and
//! what the scenario wants to be sent. `tests/conformance/run` starts it.
//!
//! ```console
//! $ MCP_CONFORMANCE_SCENARIO=tools_call cargo run --example conformance_client http://localhost:3000/mcp
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use colibri::Pending;
use colibri::app::SystemClock;
use colibri::bridge::{Bridge, CallOptions, ConnectOptions, Handler, Request, Tool};
use colibri::domain::grant::Secret;
use colibri::domain::log::Logger;
use colibri::fleet::link;
use colibri::fleet::oauth::{Flow, Identity, Loopback, MemoryVault, OAuth, Ports, Settings};
use colibri::fleet::web::Endpoint;
use serde_json::{Map, Value, json};

type Outcome = Result<(), Box<dyn Error>>;

/// Shorter than the suite's own, so that what hangs is told and not killed.
const DEADLINE: Duration = Duration::from_secs(20);

/// What the suite's authorization servers take for a description of the client.
const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

/// Where going on would be wrong: the server is not who it says, or refuses for ever.
const REFUSED: [&str; 7] = [
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
];

/// Does what the person would: accepts, with what each field has as its default.
struct Accepting;

impl Handler for Accepting {
    fn asked(
        &self,
        method: &str,
        params: Option<Bytes>,
    ) -> Pending<'_, Result<Bytes, colibri::mcp::error::Error>> {
        let refusal = colibri::mcp::error::Error::unknown_method(method);
        let params: Value = params.and_then(|raw| serde_json::from_slice(&raw).ok()).unwrap_or_default();
        let accepted = json!({ "action": "accept", "content": filled(&params["requestedSchema"]) });
        let answer = if method == "elicitation/create" { Ok(accepted) } else { Err(refusal) };
        Box::pin(std::future::ready(answer.map(|answer: Value| answer.to_string().into())))
    }
}

/// An object that a schema accepts: the defaults, and something of the right type elsewhere.
fn filled(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let value = |property: &Value| match (&property["default"], property["type"].as_str()) {
        (Value::Null, Some("number" | "integer")) => json!(2),
        (Value::Null, Some("boolean")) => json!(true),
        (Value::Null, _) => json!("text"),
        (default, _) => default.clone(),
    };
    properties.iter().map(|(name, property)| (name.clone(), value(property))).collect::<Map<_, _>>().into()
}

#[tokio::main]
async fn main() -> Outcome {
    let scenario = told("MCP_CONFORMANCE_SCENARIO").ok_or("the suite says which scenario it is")?;
    let context = told("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|| "{}".to_owned());
    let context: Value = serde_json::from_str(&context)?;
    let url = std::env::args().next_back().ok_or("the suite says where its server is")?;

    let ended = connect_and_play(&url, &scenario, &context).await;
    let ended = match (REFUSED.contains(&scenario.as_str()), ended) {
        (true, Ok(())) => Err("this server must not be trusted, and was".into()),
        (true, Err(_)) => Ok(()),
        (false, ended) => ended,
    };
    // The suite runs many at once, and does not say which of them said what.
    ended.map_err(|error| format!("{scenario}: {error}").into())
}

async fn connect_and_play(url: &str, scenario: &str, context: &Value) -> Outcome {
    let mut options = ConnectOptions { timeout: Some(DEADLINE), ..ConnectOptions::default() };
    options.handler = Arc::new(Accepting);
    options.client.capabilities = json!({ "elicitation": {} });
    if scenario.starts_with("auth/") {
        let endpoint = Endpoint::new(url)?.with_credentials(Arc::new(credentials(url, scenario, context)?));
        options.transport = Some(link::for_endpoint(endpoint));
    }
    let bridge = Bridge::connect(url, options).await?;
    let played = play(&bridge, scenario, context).await;
    bridge.close().await;
    played
}

/// A person who says yes to everything, at a browser that follows where it is sent.
fn credentials(url: &str, scenario: &str, context: &Value) -> Result<OAuth, Box<dyn Error>> {
    let text = |name: &str| context[name].as_str().map(str::to_owned);
    let mut settings = Settings::new("the suite", url);
    settings.identity = Identity {
        client_id: text("client_id"),
        client_secret: text("client_secret").map(Secret::new),
        client_key: text("private_key_pem").map(Secret::new),
        client_metadata_url: Some(CLIENT_METADATA_URL.to_owned()),
    };
    if scenario.starts_with("auth/client-credentials") {
        settings.flow = Flow::ClientCredentials;
    }
    // Whoever was first has chosen; then that choice holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let browser = reqwest::Client::builder().build()?;
    let show = move |address: &str| {
        let visit = browser.get(address).send();
        tokio::spawn(async move { visit.await.map(drop) });
    };
    let ports = Ports {
        vault: Arc::new(MemoryVault::default()),
        person: Arc::new(Loopback::new(None, DEADLINE, show)),
        clock: Arc::new(SystemClock::start()),
        logger: Logger::silent(),
    };
    Ok(OAuth::new(settings, ports)?)
}

#[expect(clippy::disallowed_methods, reason = "the suite speaks by the environment")]
fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

async fn play(bridge: &Bridge, scenario: &str, context: &Value) -> Outcome {
    let listed = bridge.tools().await?.tools;
    match scenario {
        // Its server has nothing to call.
        "json-schema-ref-no-deref" => Ok(()),
        "http-standard-headers" => {
            call_all(bridge, &listed).await?;
            read_and_get(bridge).await
        }
        "http-custom-headers" => {
            for wanted in context["toolCalls"].as_array().into_iter().flatten() {
                let tool = wanted["name"].as_str().ok_or("a tool has a name")?;
                call(bridge, tool, &wanted["arguments"]).await?;
            }
            Ok(())
        }
        // All at once: nothing of one call may be found in another.
        "sep-2322-client-request-state" => {
            let call = |tool: &'static str| async move { call(bridge, tool, &json!({})).await };
            tokio::try_join!(
                call("test_mrtr_echo_state"),
                call("test_mrtr_no_state"),
                call("test_mrtr_unrelated"),
                call("test_mrtr_no_result_type"),
            )?;
            Ok(())
        }
        "json-schema-2020-12-preservation" => {
            let focal = listed.iter().find(|tool| tool.name == "json_schema_2020_12_tool");
            let schema = definition(focal.ok_or("the tool is listed")?)?["inputSchema"].take();
            call(bridge, "json_schema_echo", &json!({ "schema": schema })).await
        }
        _ => call_all(bridge, &listed).await,
    }
}

async fn call_all(bridge: &Bridge, tools: &[Tool]) -> Outcome {
    for tool in tools {
        call(bridge, &tool.name, &filled(&definition(tool)?["inputSchema"])).await?;
    }
    Ok(())
}

/// Once: an effect must not be repeated for a test.
async fn call(bridge: &Bridge, tool: &str, arguments: &Value) -> Outcome {
    bridge.call_tool(tool, arguments, CallOptions { max_attempts: 1, ..CallOptions::default() }).await?;
    Ok(())
}

fn definition(tool: &Tool) -> Result<Value, serde_json::Error> {
    serde_json::from_str(tool.definition.get())
}

/// Every resource and every prompt, by the session itself.
async fn read_and_get(bridge: &Bridge) -> Outcome {
    let kinds = [
        ("resources/list", "resources", "uri", "resources/read"),
        ("prompts/list", "prompts", "name", "prompts/get"),
    ];
    for (list, listed, key, fetch) in kinds {
        let page = bridge.client().request(list, Request::default(), DEADLINE).await?;
        let page: Value = serde_json::from_slice(&page)?;
        for item in page[listed].as_array().into_iter().flatten() {
            let name = item[key].as_str().ok_or("it has a name")?;
            let params = json!({ key: name }).to_string();
            let request = Request { params: Some(params.as_bytes()), name: Some(name), ..Request::default() };
            bridge.client().request(fetch, request, DEADLINE).await?;
        }
    }
    Ok(())
}
