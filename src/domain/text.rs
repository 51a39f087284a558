//! A tool's result for consumers of plain text.
//!
//! Owns: what of a `CallToolResult` is text. The result itself is passed on elsewhere, unchanged.
//! Must not know: where the result came from.

use std::time::Duration;

use serde_json::Value;

use super::audit::CallId;
use super::ledger::clip;
use super::log::visible;
use super::provider::ProviderError;

/// How a proxied call ended, for a consumer of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOutcome {
    /// Whether it succeeded: neither colibri nor the tool said that it failed.
    pub ok: bool,
    /// What a model reads.
    pub text: String,
    /// The server's slug.
    pub server: String,
    /// The tool, as its server names it.
    pub tool: String,
    /// From the call's arrival to its end.
    pub latency: Duration,
    /// The arguments' bytes, as they were sent.
    pub bytes_in: usize,
    /// The result's bytes, as they came; 0 if none came.
    pub bytes_out: usize,
    /// The call's.
    pub correlation_id: CallId,
    /// The result as it came, if one came.
    pub raw: Option<String>,
}

/// Which call, for a [`TextOutcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The server's slug.
    pub server: String,
    /// The tool, as its server names it.
    pub tool: String,
    /// From the call's arrival to its end.
    pub latency: Duration,
    /// The arguments' bytes, as they were sent.
    pub bytes_in: usize,
    /// The call's.
    pub correlation_id: CallId,
}

/// What of a raw `CallToolResult` is text.
pub fn readable(result: &str) -> String {
    render(result).text
}

impl TextOutcome {
    /// Of a call that was answered: `result` is the raw `CallToolResult`.
    pub fn answered(called: Called, result: &str) -> Self {
        let Rendered { text, is_error } = render(result);
        Self::new(called, !is_error, text, Some(result.to_owned()))
    }

    /// Of a call that colibri failed.
    pub fn failed(called: Called, error: &ProviderError) -> Self {
        let text = error.text(&called.server);
        Self::new(called, false, text, None)
    }

    fn new(called: Called, ok: bool, text: String, raw: Option<String>) -> Self {
        let Called { server, tool, latency, bytes_in, correlation_id } = called;
        let bytes_out = raw.as_deref().map_or(0, str::len);
        Self { ok, text, server, tool, latency, bytes_in, bytes_out, correlation_id, raw }
    }
}

/// What of a result is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Its text parts, one after another, each on lines of its own. If there are none: its structured
    /// content, else a line for each part that says what it is. What has no parts stands as it is.
    pub text: String,
    /// Whether the tool said that it failed, or said nothing that is a result.
    pub is_error: bool,
}

/// What of a raw `CallToolResult` is text. Parts of unknown shape are named, not refused: whether the
/// tool failed must not be lost for them.
pub fn render(result: &str) -> Rendered {
    let Ok(Value::Object(parsed)) = serde_json::from_str::<Value>(result) else {
        return Rendered { text: result.to_owned(), is_error: true };
    };
    let parts = parsed.get("content").and_then(Value::as_array);
    let texts: Vec<&str> = parts.into_iter().flatten().filter_map(text_of).collect();
    let text = if !texts.is_empty() {
        texts.join("\n")
    } else if let Some(structured) = parsed.get("structuredContent") {
        structured.to_string()
    } else if let Some(parts) = parts {
        parts.iter().map(label).collect::<Vec<_>>().join("\n")
    } else {
        result.to_owned()
    };
    Rendered { text, is_error: parsed.get("isError") == Some(&Value::Bool(true)) }
}

/// The text of a part: its own, or that of the resource in it.
fn text_of(part: &Value) -> Option<&str> {
    part.get("text").or_else(|| part.get("resource")?.get("text")).and_then(Value::as_str)
}

/// What a part without text is: `[image image/png]`, `[resource_link file:///a]`.
fn label(part: &Value) -> String {
    let word = |value: Option<&Value>| value.and_then(Value::as_str).map(|text| visible(clip(text)));
    let kind = word(part.get("type")).unwrap_or_else(|| "unknown".to_owned());
    let about = part.get("resource").unwrap_or(part);
    let more = [about.get("mimeType"), about.get("uri")].into_iter().filter_map(word);
    let words: Vec<String> = std::iter::once(kind).chain(more).collect();
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// PR-14: text parts joined, `isError` respected, and nothing is lost for an odd part.
    #[test]
    fn results_as_text() {
        let check = |result: &str, text: &str, is_error: bool| {
            assert_eq!(render(result), Rendered { text: text.to_owned(), is_error }, "{result}");
        };
        let text = |parts: &str, rest: &str| format!(r#"{{"content":[{parts}]{rest}}}"#);
        let (one, two) = (r#"{"type":"text","text":"one"}"#, r#"{"type":"text","text":"two\n"}"#);
        check(&text(one, ""), "one", false);
        check(&text(&format!("{one},{two}"), r#","isError":false"#), "one\ntwo\n", false);
        check(&text(one, r#","isError":true"#), "one", true);
        check(&text(one, r#","structuredContent":{"a":1}"#), "one", false);
        check(&text("", r#","structuredContent":{"a":1}"#), r#"{"a":1}"#, false);
        let image = r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#;
        check(&text(&format!("{image},{one}"), ""), "one", false);
        check(&text(image, ""), "[image image/png]", false);
        let link = r#"{"type":"resource_link","uri":"file:///a","name":"a"}"#;
        check(&text(&format!("{image},{link}"), ""), "[image image/png]\n[resource_link file:///a]", false);
        let inside = r#"{"type":"resource","resource":{"uri":"file:///a","text":"inside"}}"#;
        check(&text(inside, ""), "inside", false);
        let blob = r#"{"type":"resource","resource":{"uri":"file:///a","blob":"AA"}}"#;
        check(&text(blob, ""), "[resource file:///a]", false);
        check(&text(r#"{"text":7},null"#, r#","isError":true"#), "[unknown]\n[unknown]", true);
        check(&text("", ""), "", false);
        check(r#"{"toolResult":"old"}"#, r#"{"toolResult":"old"}"#, false);
        check("[]", "[]", true);
        check(r#"{"type":"text""#, r#"{"type":"text""#, true);
        check(&text(r#"{"type":"\u001b[31m"}"#, ""), "[\\u{1b}[31m]", false);
    }

    /// PR-14: ok, text, server, tool, latency, sizes, correlation id, raw.
    #[test]
    fn outcomes() {
        let called = || Called {
            server: "fs".to_owned(),
            tool: "read".to_owned(),
            latency: Duration::from_millis(12),
            bytes_in: 5,
            correlation_id: CallId(Uuid::nil()),
        };
        let raw = r#"{"content":[{"type":"text","text":"no such file"}],"isError":true}"#;
        let told = TextOutcome::answered(called(), raw);
        assert_eq!((told.ok, told.text.as_str()), (false, "no such file"));
        assert_eq!((told.bytes_in, told.bytes_out, told.raw.as_deref()), (5, raw.len(), Some(raw)));
        assert_eq!((told.server.as_str(), told.tool.as_str(), told.latency.as_millis()), ("fs", "read", 12));
        let late = ProviderError::TimedOut { limit: Duration::from_secs(30), sent: true };
        let told = TextOutcome::failed(called(), &late);
        assert_eq!((told.ok, told.text.as_str()), (false, "(tool failed: timeout)"));
        assert_eq!((told.bytes_out, told.raw), (0, None));
    }
}
