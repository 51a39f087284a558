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
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    CompletionInfo, ContentBlock, GetPromptRequestParams, GetPromptResponse, GetPromptResult, Implementation,
    InputRequiredResult, JsonObject, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, Prompt, PromptArgument,
    PromptMessage, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate, Role, ServerCapabilities, ServerConfig, Tool,
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
                progress(&context, 1).await;
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

/// Asks for a person's words, a model's and the roots, all in one round, and tells what it was answered.
fn ask_all(request: &CallToolRequestParams) -> CallToolResponse {
    if let Some(given) = &request.input_responses {
        let given = serde_json::to_string(given).expect("answers are JSON");
        return CallToolResult::success(vec![ContentBlock::text(given)]).into();
    }
    let said = json!({ "type": "text", "text": "Say something." });
    let wants = json!({
        "person": { "method": "elicitation/create", "params": {
            "mode": "form", "message": "Who is there?",
            "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
        } },
        "model": { "method": "sampling/createMessage", "params": {
            "messages": [{ "role": "user", "content": said }], "maxTokens": 10,
        } },
        "roots": { "method": "roots/list", "params": {} },
    });
    let requests = serde_json::from_value(wants).expect("it was written as the SDK reads it");
    InputRequiredResult::new(Some(requests), None).into()
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
        let abilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .build();
        ServerConfig::new(abilities)
            .with_server_info(Implementation::new("rmcp-host", "1.0.0"))
            .with_instructions("Ask it who is there.")
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
            tool("ask_all", None),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match request.name.as_ref() {
            "ask" => return Ok(ask(&request)),
            "ask_all" => return Ok(ask_all(&request)),
            _ => {}
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        Ok(self.call(&request.name, &arguments, context).await.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new("note://one", "one")]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![ResourceTemplate::new("note://{name}", "notes")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = format!("the note {}", request.uri);
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let name = PromptArgument::new("name").with_required(true);
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new("greet", Some("Greets."), Some(vec![name]))]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let name = arguments.get("name").and_then(Value::as_str).unwrap_or_default();
        let greeting = format!("Greet {name}.");
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, greeting)]).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let known = ["Ada", "Alan", "Grace"].into_iter();
        let values =
            known.filter(|name| name.starts_with(&request.argument.value)).map(str::to_owned).collect();
        let values = CompletionInfo::with_all_values(values).expect("three are few");
        Ok(CompleteResult::new(values))
    }
}
