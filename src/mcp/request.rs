//! Messages of colibri's own to a server, built as bytes: what a caller gave is never parsed.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::error::Error;
use super::revision::{Family, Revision};

/// Who asks: told once in `initialize`, or with every request of the modern family.
#[derive(Clone, Debug)]
pub struct Client {
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it can be asked, as MCP's client capabilities.
    pub capabilities: Value,
}

/// A request with our own id. `params` is a JSON object without `_meta`, or nothing.
pub fn request(id: u64, method: &str, params: Option<&[u8]>, meta: Option<&Value>) -> Bytes {
    let mut out = Vec::with_capacity(128 + params.map_or(0, <[u8]>::len));
    out.extend_from_slice(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"#).as_bytes());
    write(&mut out, &method);
    write_params(&mut out, params, meta);
    out.push(b'}');
    out.into()
}

/// A notification.
pub fn notification(method: &str, params: Option<&[u8]>, meta: Option<&Value>) -> Bytes {
    let mut out = br#"{"jsonrpc":"2.0","method":"#.to_vec();
    write(&mut out, &method);
    write_params(&mut out, params, meta);
    out.push(b'}');
    out.into()
}

/// The params of `tools/call`; the arguments cross as the bytes they are.
pub fn call_params(name: &str, arguments: &[u8]) -> Vec<u8> {
    let mut out = br#"{"name":"#.to_vec();
    write(&mut out, &name);
    out.extend_from_slice(br#","arguments":"#);
    out.extend_from_slice(arguments);
    out.push(b'}');
    out
}

/// The params of `initialize`.
pub fn initialize_params(revision: &Revision, client: &Client) -> Vec<u8> {
    let params = json!({
        "protocolVersion": revision.date,
        "capabilities": client.capabilities,
        "clientInfo": { "name": client.name, "version": client.version },
    });
    params.to_string().into_bytes()
}

/// The `_meta` of a request in that revision; nothing where there is nothing to say.
pub fn meta(revision: &Revision, client: &Client, progress_token: Option<u64>) -> Option<Value> {
    let mut meta = json!({});
    if revision.family == Family::Modern {
        meta["io.modelcontextprotocol/protocolVersion"] = revision.date.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = client.capabilities.clone();
        meta["io.modelcontextprotocol/clientInfo"] =
            json!({ "name": client.name, "version": client.version });
    }
    if let Some(token) = progress_token {
        meta["progressToken"] = token.into();
    }
    meta.as_object().is_some_and(|meta| !meta.is_empty()).then_some(meta)
}

/// An answer to a request of the server's, by its raw id.
pub fn answer(raw_id: &str, outcome: &Result<Value, Error>) -> Bytes {
    let (member, body) = match outcome {
        Ok(result) => ("result", serde_json::to_vec(result)),
        Err(error) => ("error", serde_json::to_vec(error)),
    };
    let body = body.expect("JSON values always serialise");
    let head = format!(r#"{{"jsonrpc":"2.0","id":{raw_id},"{member}":"#);
    [head.as_bytes(), &body, b"}"].concat().into()
}

fn write_params(out: &mut Vec<u8>, params: Option<&[u8]>, meta: Option<&Value>) {
    let inner = params.map(<[u8]>::trim_ascii).and_then(|params| params.strip_prefix(b"{"));
    let inner =
        inner.and_then(|params| params.strip_suffix(b"}")).map(<[u8]>::trim_ascii).unwrap_or_default();
    if params.is_none() && meta.is_none() {
        return;
    }
    out.extend_from_slice(br#","params":{"#);
    out.extend_from_slice(inner);
    if let Some(meta) = meta {
        if !inner.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(br#""_meta":"#);
        write(out, meta);
    }
    out.push(b'}');
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and JSON values always serialise");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::revision::{LEGACY, MODERN};

    fn client() -> Client {
        Client { name: "colibri".to_owned(), version: "1".to_owned(), capabilities: json!({}) }
    }

    #[track_caller]
    fn check(bytes: &Bytes, expected: &str) {
        assert_eq!(std::str::from_utf8(bytes).expect("UTF-8"), expected);
        serde_json::from_slice::<Value>(bytes).expect("JSON");
    }

    #[test]
    fn what_a_caller_gave_crosses_as_it_is() {
        check(&request(1, "ping", None, None), r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let params = call_params("a\"b", br#"{ "n" : 1.50e0 }"#);
        check(
            &request(2, "tools/call", Some(&params), None),
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a\"b","arguments":{ "n" : 1.50e0 }}}"#,
        );
        let token = meta(&LEGACY, &client(), Some(7));
        check(
            &request(3, "tools/list", Some(b" { } "), token.as_ref()),
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"progressToken":7}}}"#,
        );
        assert_eq!(meta(&LEGACY, &client(), None), None);
    }

    #[test]
    fn the_modern_family_introduces_itself_every_time() {
        let meta = meta(&MODERN, &client(), None).expect("it always has something to say");
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "colibri");
    }

    #[test]
    fn answers_repeat_the_servers_id() {
        check(&answer("\"x\"", &Ok(json!({}))), r#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
        let refused = answer("7", &Err(Error::unknown_method("roots/list")));
        check(
            &refused,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"unknown method: roots/list"}}"#,
        );
    }
}
