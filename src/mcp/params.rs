//! What colibri reads out of a request's params. Everything else in them passes unread.
//!
//! A key given twice is refused where colibri reads it: whoever inspects a message must see what
//! whoever executes it sees.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::envelope::Id;
use super::error::Error;

/// A client's name in the record. Longer names help nobody and would fill the ledger.
pub const CLIENT_NAME_CHARS_MAX: usize = 128;

/// The `_meta` of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The revision the request is written in. Only the modern family says so.
    pub version: Option<String>,
    /// What the client can be asked, raw: a slice of the frame. Required with a version.
    pub capabilities: Option<Bytes>,
    /// What the client calls itself.
    pub client: Option<String>,
    /// How much of a log the client wants with this request.
    pub log_level: Option<LogLevel>,
    /// Under which the client wants to hear of progress.
    pub progress_token: Option<Id>,
}

/// The syslog severities, as MCP spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are RFC 5424's, and say all there is")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// As MCP spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// What `initialize` asks.
#[derive(Debug, PartialEq, Eq)]
pub struct Initialize {
    /// The revision the client would like.
    pub version: String,
    /// What the client calls itself.
    pub client: Option<String>,
    /// What it can be asked, raw: a slice of the frame.
    pub capabilities: Option<Bytes>,
}

/// What `tools/call` asks.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Which tool.
    pub name: String,
    /// Its arguments: a slice of the frame.
    pub arguments: Option<Bytes>,
    /// What the tool wanted to know in the round before: members of the params, raw.
    pub given: Option<Bytes>,
}

/// The `_meta` of any request.
pub fn meta(params: Option<&Bytes>) -> Result<Meta, Error> {
    let shell: Shell = object(text(params))?;
    let Some(meta) = shell.meta else { return Ok(Meta::default()) };
    let meta: MetaKeys = object(meta.get())?;
    if let Some(capabilities) = meta.capabilities {
        object::<Anything>(capabilities.get())?;
    }
    let progress_token = match meta.progress_token {
        Some(raw) => Some(Id::read(raw.get().as_bytes()).ok_or_else(|| {
            Error::invalid_params("invalid params: `progressToken` must be a string or an integer")
        })?),
        None => None,
    };
    Ok(Meta {
        version: meta.version.map(Cow::into_owned),
        capabilities: slice(params, meta.capabilities),
        client: client_name(meta.client)?,
        log_level: meta.log_level,
        progress_token,
    })
}

/// The params of `initialize`.
pub fn initialize(params: Option<&Bytes>) -> Result<Initialize, Error> {
    let keys: InitializeKeys = object(text(params))?;
    let capabilities = slice(params, keys.capabilities);
    Ok(Initialize { version: keys.version.into_owned(), client: client_name(keys.client)?, capabilities })
}

/// The cursor of a list.
pub fn cursor(params: Option<&Bytes>) -> Result<Option<String>, Error> {
    let keys: ListKeys = object(text(params))?;
    Ok(keys.cursor.map(Cow::into_owned))
}

/// The params of a method that reads skills or resources, and nothing else that stands beside them.
pub fn resource(params: Option<&Bytes>) -> Result<Bytes, Error> {
    let keys: ResourceKeys = object(text(params))?;
    Ok(serde_json::to_vec(&keys).expect("texts serialise").into())
}

/// The params of `prompts/get`, and nothing else that stands beside them.
pub fn prompt(params: Option<&Bytes>) -> Result<Bytes, Error> {
    let keys: PromptKeys = object(text(params))?;
    Ok(serde_json::to_vec(&keys).expect("texts and raw JSON serialise").into())
}

/// The params of `completion/complete`, and nothing else that stands beside them.
pub fn completion(params: Option<&Bytes>) -> Result<Bytes, Error> {
    let keys: CompletionKeys = object(text(params))?;
    Ok(serde_json::to_vec(&keys).expect("raw JSON serialises").into())
}

/// The params of `tools/call`.
pub fn tool_call(params: Option<&Bytes>) -> Result<ToolCall, Error> {
    let keys: CallKeys = object(text(params))?;
    let rounds = [("inputResponses", keys.input_responses), ("requestState", keys.request_state)];
    let given = rounds.into_iter().filter_map(|(name, raw)| Some(format!("\"{name}\":{}", raw?.get())));
    let given = given.collect::<Vec<_>>().join(",");
    let given = (!given.is_empty()).then(|| given.into());
    Ok(ToolCall { name: keys.name.into_owned(), arguments: slice(params, keys.arguments), given })
}

/// Raw JSON, as the part of the frame that it is.
fn slice(params: Option<&Bytes>, raw: Option<&RawValue>) -> Option<Bytes> {
    Some(params?.slice_ref(raw?.get().as_bytes()))
}

/// The request that `notifications/cancelled` takes back; the reason is for people and not read.
pub fn cancelled(params: Option<&Bytes>) -> Option<Id> {
    let keys: CancelledKeys = object(text(params)).ok()?;
    Id::read(keys.request.get().as_bytes())
}

/// The level of `logging/setLevel`.
pub fn level(params: Option<&Bytes>) -> Result<LogLevel, Error> {
    let keys: LevelKeys = object(text(params))?;
    Ok(keys.level)
}

#[derive(Deserialize)]
struct Shell<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MetaKeys<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    client: Option<&'a RawValue>,
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<LogLevel>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct InitializeKeys<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    version: Cow<'a, str>,
    #[serde(borrow, rename = "clientInfo")]
    client: Option<&'a RawValue>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ClientKeys<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ListKeys<'a> {
    #[serde(borrow)]
    cursor: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Serialize)]
struct ResourceKeys<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    cursor: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Serialize)]
struct PromptKeys<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize, Serialize)]
struct CompletionKeys<'a> {
    #[serde(borrow, rename = "ref")]
    reference: &'a RawValue,
    #[serde(borrow)]
    argument: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    context: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallKeys<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputResponses")]
    input_responses: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestState")]
    request_state: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CancelledKeys<'a> {
    #[serde(borrow, rename = "requestId")]
    request: &'a RawValue,
}

#[derive(Deserialize)]
struct LevelKeys {
    level: LogLevel,
}

#[derive(Deserialize)]
struct Anything {}

/// The scanner has already found the frame to be UTF-8.
fn text(params: Option<&Bytes>) -> &str {
    params.map_or("{}", |params| std::str::from_utf8(params).unwrap_or_default())
}

fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    // A derived struct would also be read from an array, key by key in the order of its source code.
    if !text.starts_with('{') {
        return Err(Error::invalid_params("invalid params: an object was expected"));
    }
    serde_json::from_str(text).map_err(|error| Error::invalid_params(format!("invalid params: {error}")))
}

/// A name fit for a log line and a record.
fn client_name(info: Option<&RawValue>) -> Result<Option<String>, Error> {
    let Some(info) = info else { return Ok(None) };
    let keys: ClientKeys = object(info.get())?;
    let plain =
        |name: Cow<'_, str>| name.chars().filter(|c| !c.is_control()).take(CLIENT_NAME_CHARS_MAX).collect();
    Ok(keys.name.map(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn arguments_are_a_slice_of_the_frame() {
        let params = bytes(r#"{"x":[],"name":"server\u005fping","arguments": {"a": 1.50, "a":2} }"#);
        let call = tool_call(Some(&params)).unwrap();
        assert_eq!(call.name, "server_ping");
        let arguments = call.arguments.unwrap();
        assert_eq!(arguments, r#"{"a": 1.50, "a":2}"#);
        assert!(params.as_ptr_range().contains(&arguments.as_ptr()));

        for absent in [r#"{"name":"x"}"#, r#"{"name":"x","arguments":null}"#] {
            assert_eq!(tool_call(Some(&bytes(absent))).unwrap().arguments, None);
        }
    }

    #[test]
    fn the_meta_of_a_modern_request_is_read_whole() {
        let params = bytes(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"traceparent":"00",
            "io.modelcontextprotocol/clientInfo":{"name":"te\u0007st\n","version":"1"},
            "io.modelcontextprotocol/logLevel":"notice","progressToken":"p"}}"#,
        );
        let expected = Meta {
            version: Some("2026-07-28".to_owned()),
            capabilities: Some(Bytes::from_static(br#"{"sampling":{}}"#)),
            client: Some("test".to_owned()),
            log_level: Some(LogLevel::Notice),
            progress_token: Id::read(b"\"p\""),
        };
        assert_eq!(meta(Some(&params)), Ok(expected));
        assert_eq!(meta(None), Ok(Meta::default()));
        assert_eq!(meta(Some(&bytes(r#"{"_meta":null}"#))), Ok(Meta::default()));
    }

    #[test]
    fn a_clients_name_is_cut_to_its_bound() {
        let long = format!(r#"{{"protocolVersion":"x","clientInfo":{{"name":"{}"}}}}"#, "é".repeat(1000));
        let read = initialize(Some(&bytes(&long))).unwrap();
        assert_eq!(read.client, Some("é".repeat(CLIENT_NAME_CHARS_MAX)));
    }

    /// Bad input on stdio: a key twice, a list where an object belongs, a value of the wrong type.
    #[test]
    fn params_that_do_not_fit_are_minus_32602() {
        fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
            let error = result.unwrap_err();
            assert_eq!(error.code, -32602);
            error.message.into_owned()
        }
        let call = |text| refused(tool_call(Some(&bytes(text))));
        assert!(call(r#"{"name":"a","name":"b"}"#).contains("duplicate field `name`"));
        assert!(
            call(r#"{"name":"a","arguments":{},"arguments":{}}"#).contains("duplicate field `arguments`")
        );
        assert!(call(r#"{"arguments":{}}"#).contains("missing field `name`"));
        assert!(call(r#"{"name":7}"#).contains("invalid type"));
        assert!(call(r#"{"name":"\ud800"}"#).contains("escape"));
        assert!(call(r#"["a",{}]"#).contains("an object was expected"));
        assert!(refused(tool_call(None)).contains("missing field `name`"));

        let meta = |text| refused(meta(Some(&bytes(text))));
        assert!(meta(r#"{"_meta":{},"_meta":{}}"#).contains("duplicate field `_meta`"));
        assert!(meta(r#"{"_meta":["2026-07-28",{}]}"#).contains("an object was expected"));
        assert!(meta(r#"{"_meta":{"progressToken":1,"progressToken":1}}"#).contains("duplicate"));
        assert!(meta(r#"{"_meta":{"progressToken":1.5}}"#).contains("progressToken"));
        assert!(meta(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}"#).contains("invalid type"));
        assert!(meta(r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":[]}}"#).contains("object"));
        assert!(meta(r#"{"_meta":{"io.modelcontextprotocol/logLevel":"loud"}}"#).contains("unknown variant"));

        assert!(refused(initialize(Some(&bytes(r#"{"clientInfo":{}}"#)))).contains("protocolVersion"));
        assert!(refused(level(Some(&bytes(r#"{"level":"loud"}"#)))).contains("unknown variant"));
        assert!(refused(cursor(Some(&bytes(r#"{"cursor":1}"#)))).contains("invalid type"));
    }

    #[test]
    fn a_cancellation_that_names_nothing_is_none() {
        let read = |text| cancelled(Some(&bytes(text)));
        assert_eq!(read(r#"{"requestId":7,"reason":"bored"}"#), Id::read(b"7"));
        for nothing in ["{}", "[7]", r#"{"requestId":null}"#, r#"{"requestId":7,"requestId":8}"#] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }
}
