//! Messages of colibri's own to a server, built as bytes: what a caller gave is never parsed.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::error::Error;
use super::raw::Members;
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

/// The `_meta` of one request: members as raw JSON (`"a":1,"b":2`), and where progress goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta<'a> {
    /// Members without their braces.
    pub members: &'a [u8],
    /// `progressToken`, if progress is wanted.
    pub progress_token: Option<u64>,
}

/// A request with our own id. `params` is a JSON object without `_meta`, or nothing.
pub fn request(id: u64, method: &str, params: Option<&[u8]>, meta: Meta<'_>) -> Bytes {
    let room = 128 + method.len() + params.map_or(0, <[u8]>::len) + meta.members.len();
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    write(&mut out, &id);
    out.extend_from_slice(br#","method":"#);
    write(&mut out, &method);
    write_params(&mut out, params, meta);
    out.push(b'}');
    out.into()
}

/// A notification.
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    let mut out = br#"{"jsonrpc":"2.0","method":"#.to_vec();
    write(&mut out, &method);
    write_params(&mut out, params, Meta::default());
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

/// An object with members added, as raw JSON (`"a":1,"b":2`).
pub fn with_members(object: &[u8], added: &[u8]) -> Vec<u8> {
    let inner = members(object);
    let mut out = Vec::with_capacity(inner.len() + added.len() + 3);
    out.push(b'{');
    out.extend_from_slice(inner);
    comma(&mut out, inner);
    out.extend_from_slice(added);
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

/// What every request of that revision says in its `_meta`, as raw members; made once per connection.
pub fn meta_members(revision: &Revision, client: &Client) -> Vec<u8> {
    if revision.family != Family::Modern {
        return Vec::new();
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": revision.date,
        "io.modelcontextprotocol/clientCapabilities": client.capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": client.name, "version": client.version },
    });
    let whole = meta.to_string().into_bytes();
    whole[1..whole.len() - 1].to_vec()
}

/// The same members of `_meta`, with other capabilities: those of whoever we ask for.
pub fn with_capabilities(meta: &[u8], capabilities: &[u8]) -> Vec<u8> {
    let whole = [b"{", meta, b"}"].concat();
    let key = "io.modelcontextprotocol/clientCapabilities";
    let changed = Members::of(&whole).map(|members| members.with(key, capabilities));
    changed.map_or_else(|| meta.to_vec(), |changed| members(&changed).to_vec())
}

/// An answer to a request of the server's, by its raw id; a result is raw JSON.
pub fn answer(raw_id: &str, outcome: Result<Bytes, Error>) -> Bytes {
    let (member, body) = match outcome {
        Ok(result) => ("result", result),
        Err(error) => ("error", serde_json::to_vec(&error).expect("JSON values always serialise").into()),
    };
    let head = format!(r#"{{"jsonrpc":"2.0","id":{raw_id},"{member}":"#);
    [head.as_bytes(), &body, b"}"].concat().into()
}

fn write_params(out: &mut Vec<u8>, params: Option<&[u8]>, meta: Meta<'_>) {
    let inner = params.map(members).unwrap_or_default();
    let has_meta = !meta.members.is_empty() || meta.progress_token.is_some();
    if params.is_none() && !has_meta {
        return;
    }
    out.extend_from_slice(br#","params":{"#);
    out.extend_from_slice(inner);
    if has_meta {
        comma(out, inner);
        out.extend_from_slice(br#""_meta":{"#);
        out.extend_from_slice(meta.members);
        if let Some(token) = meta.progress_token {
            comma(out, meta.members);
            out.extend_from_slice(br#""progressToken":"#);
            write(out, &token);
        }
        out.push(b'}');
    }
    out.push(b'}');
}

/// What stands between the braces of an object.
fn members(object: &[u8]) -> &[u8] {
    let inner = object.trim_ascii().strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    inner.map(<[u8]>::trim_ascii).unwrap_or_default()
}

/// Between what was written last and what comes, if there was something.
fn comma(out: &mut Vec<u8>, before: &[u8]) {
    if !before.is_empty() {
        out.push(b',');
    }
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
        check(&request(1, "ping", None, Meta::default()), r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let params = call_params("a\"b", br#"{ "n" : 1.50e0 }"#);
        check(
            &request(2, "tools/call", Some(&params), Meta::default()),
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a\"b","arguments":{ "n" : 1.50e0 }}}"#,
        );
        let token = Meta { progress_token: Some(7), ..Meta::default() };
        check(
            &request(3, "tools/list", Some(b" { } "), token),
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"progressToken":7}}}"#,
        );
        assert!(meta_members(&LEGACY, &client()).is_empty());
        check(
            &request(4, "m", Some(br#"{"a":1}"#), Meta { members: br#""x":2"#, progress_token: Some(7) }),
            r#"{"jsonrpc":"2.0","id":4,"method":"m","params":{"a":1,"_meta":{"x":2,"progressToken":7}}}"#,
        );
        assert_eq!(with_members(b"{}", br#""a":1"#), br#"{"a":1}"#);
        assert_eq!(with_members(br#"{"b":2}"#, br#""a":1"#), br#"{"b":2,"a":1}"#);
    }

    #[test]
    fn the_modern_family_introduces_itself_every_time() {
        let members = meta_members(&MODERN, &client());
        let frame = request(1, "m", None, Meta { members: &members, progress_token: None });
        let meta = &serde_json::from_slice::<Value>(&frame).expect("JSON")["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "colibri");
    }

    #[test]
    fn answers_repeat_the_servers_id() {
        check(&answer("\"x\"", Ok(Bytes::from_static(b"{}"))), r#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
        let refused = answer("7", Err(Error::unknown_method("roots/list")));
        check(
            &refused,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"unknown method: roots/list"}}"#,
        );
    }
}
