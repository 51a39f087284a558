//! A server on the Rust SDK, with one tool for each thing that a story looks at. Both families; over
//! HTTP it lives in the test's own process, over stdio in a program of its own.
//!
//! Must not know: colibri. It is the other side.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    InputRequiredResult, JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

/// The server. Clones are one server: over HTTP each session gets a clone.
#[derive(Clone, Default)]
pub(crate) struct Host {
    /// Whether it knows nothing newer than the revisions that begin with `initialize`.
    pub legacy_only: bool,
    /// How many calls of `wait` their caller has taken back.
    taken_back: Arc<AtomicU64>,
}

impl Host {
    /// A server of both families, or one that is behind.
    pub(crate) fn new(legacy_only: bool) -> Self {
        Self { legacy_only, ..Self::default() }
    }

    async fn call(
        &self,
        name: &str,
        arguments: &Value,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let text = |text: String| CallToolResult::success(vec![ContentBlock::text(text)]);
        match name {
            "echo" => text(arguments["text"].as_str().unwrap_or_default().to_owned()),
            "fail" => CallToolResult::error(vec![ContentBlock::text("it failed, as asked")]),
            "big" => text("x".repeat(arguments["bytes"].as_u64().unwrap_or_default() as usize)),
            "bytes" => {
                let all: Vec<u8> = (0..=u8::MAX).collect();
                CallToolResult::success(vec![ContentBlock::image(BASE64.encode(all), "image/x-all-bytes")])
            }
            "steps" => {
                let steps =
                    arguments["steps"].as_u64().and_then(|steps| steps.try_into().ok()).unwrap_or_default();
                progress(&context, steps).await;
                text(format!("{steps} steps"))
            }
            "wait" => {
                context.ct.cancelled().await;
                self.taken_back.fetch_add(1, Ordering::Relaxed);
                text("nobody reads this".to_owned())
            }
            "taken_back" => text(self.taken_back.load(Ordering::Relaxed).to_string()),
            other => CallToolResult::error(vec![ContentBlock::text(format!("no tool {other}"))]),
        }
    }
}

/// Asks who is there before it answers, and knows the question again by its state alone.
fn ask(request: &CallToolRequestParams) -> CallToolResponse {
    // What JSON may hold and a careless client would change: spaces, escapes, a number that is no double.
    const STATE: &str = "{ \"n\": 9007199254740993, \"text\": \"\\u00e9\\/\" }";
    let Some(given) = request.input_responses.as_ref().and_then(|given| given.get("who")) else {
        let who = json!({ "who": { "method": "elicitation/create", "params": {
            "mode": "form", "message": "Who is there?",
            "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
        } } });
        let requests = serde_json::from_value(who).expect("it was written as the SDK reads it");
        return InputRequiredResult::new(Some(requests), Some(STATE.to_owned())).into();
    };
    if request.request_state.as_deref() != Some(STATE) {
        return CallToolResult::error(vec![ContentBlock::text("the state came back changed")]).into();
    }
    CallToolResult::success(vec![ContentBlock::text(given["content"]["name"].to_string())]).into()
}

async fn progress(context: &RequestContext<RoleServer>, steps: u32) {
    let Some(token) = context.meta.get_progress_token() else { return };
    for step in 1..=steps {
        let told =
            ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(f64::from(steps));
        let _ = context.peer.notify_progress(told).await;
    }
}

impl ServerHandler for Host {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("rmcp-host", "1.0.0"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        const LEGACY: &[ProtocolVersion] = &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25];
        const BOTH: &[ProtocolVersion] =
            &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];
        Cow::Borrowed(if self.legacy_only { LEGACY } else { BOTH })
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &'static str, argument: Option<(&str, &str)>| {
            let properties: JsonObject =
                argument.map(|(name, kind)| (name.to_owned(), json!({ "type": kind }))).into_iter().collect();
            let schema = json!({ "type": "object", "properties": properties });
            let Value::Object(schema) = schema else { unreachable!("it was written as an object") };
            Tool::new(name, "shows one thing", schema)
        };
        Ok(ListToolsResult::with_all_items(vec![
            tool("echo", Some(("text", "string"))),
            tool("fail", None),
            tool("big", Some(("bytes", "integer"))),
            tool("bytes", None),
            tool("steps", Some(("steps", "integer"))),
            tool("wait", None),
            tool("taken_back", None),
            tool("ask", None),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "ask" {
            return Ok(ask(&request));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        Ok(self.call(&request.name, &arguments, context).await.into())
    }
}
