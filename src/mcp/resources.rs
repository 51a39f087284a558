//! The methods that read skills and resources: which they are, and how the envelope of the hidden tool
//! behind each becomes its answer.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::domain::offer::Entry;

use super::answer::{Identity, cache_hints, write};
use super::error::Error;
use super::lists;
use super::raw::Members;
use super::revision::Revision;

/// The error of a name that nobody has, in the code of the method and the revision. Of a resource it repeats the URI,
/// for machines.
pub fn unknown(method: Option<&str>, asked: Option<&[u8]>, message: String, revision: &Revision) -> Error {
    let Some("resources/read" | "resources/subscribe" | "resources/unsubscribe") = method else {
        return Error::invalid_params(message);
    };
    let asked: Value = asked.and_then(|asked| serde_json::from_slice(asked).ok()).unwrap_or_default();
    let uri = asked["uri"].as_str().filter(|uri| uri.len() <= URI_BYTES_MAX);
    let data = uri.map(|uri| json!({ "uri": uri }));
    Error { data, ..Error::resource_not_found(message, revision) }
}

/// The longest URI that an error repeats: no resource has a longer one.
const URI_BYTES_MAX: usize = 16_384;

/// Methods that servers answer.
pub const FORWARDED: [&str; 5] =
    ["resources/read", "prompts/get", "completion/complete", "resources/subscribe", "resources/unsubscribe"];

/// The methods, and the names of the hidden tools behind them.
pub const METHODS: [&str; 5] =
    ["skills/list", "skills/get", "resources/list", "resources/read", "resources/directory/read"];

/// How long a modern client may keep what it was told of files that anybody may edit.
const TTL_MS: u64 = 5_000;

/// What the hidden tools refuse an unknown URI with.
const NOT_FOUND: &str = "ERR_NOT_FOUND";

/// The Skills extension, as capabilities declare it. It was specified for 2026-07-28; clients of older
/// revisions look for it in the same place.
pub fn extensions() -> Value {
    json!({ "io.modelcontextprotocol/skills": { "directoryRead": true } })
}

/// The result of a method, made from the envelope of its tool; of a list, with what stands `behind` its last page.
pub fn result(
    method: &str,
    envelope: &[u8],
    behind: Option<&[Arc<Entry>]>,
    correlation_id: &str,
    identity: &Identity,
    revision: &Revision,
) -> Result<Vec<u8>, Error> {
    let envelope: Envelope<'_> = serde_json::from_slice(envelope)
        .map_err(|_| Error::internal("the call failed inside colibri: its envelope cannot be read"))?;
    let Some(data) = envelope.data else { return Err(refusal(method, envelope.error, revision)) };
    let mut rest = Map::new();
    cache_hints(&mut rest, revision);
    rest.entry("ttlMs").and_modify(|ttl| *ttl = TTL_MS.into());
    identity.sign(&mut rest, revision);
    let meta = rest.entry("_meta").or_insert_with(|| json!({}));
    meta["colibri/correlationId"] = Value::from(correlation_id);
    let members = behind.and_then(|_| Members::of(data.get().as_bytes()));
    if let (Some(behind), Some(members)) = (behind, members)
        && members.get("nextCursor").is_none()
    {
        let own = members.get("resources").map_or("[]", RawValue::get);
        rest.remove("ttlMs"); // The list says its own.
        return Ok(lists::behind_own(own.as_bytes(), behind, rest, identity, revision));
    }
    let mut tail = Vec::new();
    write(&mut tail, &rest);
    // Both are objects with something in them: what ends the one continues with the other.
    let data = data.get().trim_end().strip_suffix('}').unwrap_or("{");
    Ok([data.as_bytes(), b",", &tail[1..]].concat())
}

fn refusal(method: &str, error: Option<Failure>, revision: &Revision) -> Error {
    let Some(Failure { code, message, details }) = error else {
        return Error::internal("the call failed inside colibri: it gave no result");
    };
    if code == "INVALID_PARAMS" {
        return Error::invalid_params(message);
    }
    if details["code"] != NOT_FOUND {
        // These methods have no `isError`: what a tool's result would say in its envelope is said here.
        let mut data = if details.is_object() { details } else { json!({}) };
        data["code"] = Value::from(code);
        return Error { data: Some(data), ..Error::internal(message) };
    }
    let message = message.strip_prefix(NOT_FOUND).map_or(&*message, |rest| rest.trim_start_matches(": "));
    match method {
        "resources/read" => Error::resource_not_found(message.to_owned(), revision),
        _ => Error::invalid_params(message.to_owned()),
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    code: String,
    message: String,
    #[serde(default)]
    details: Value,
}

#[cfg(test)]
mod tests {
    use super::super::revision::{LEGACY, MODERN};
    use super::*;

    fn answered(method: &str, envelope: &str, revision: &Revision) -> String {
        let identity =
            Identity { version: "1".to_owned(), instructions: String::new(), skills: true, servers: false };
        match result(method, envelope.as_bytes(), None, "some-id", &identity, revision) {
            Ok(raw) => String::from_utf8(raw).unwrap(),
            Err(error) => format!("{} {}", error.code, error.message),
        }
    }

    #[test]
    fn the_data_of_an_envelope_becomes_the_result() {
        let envelope = r#"{"ok":true,"data":{"skills":[1.50]}}"#;
        assert_eq!(
            answered("skills/list", envelope, &LEGACY),
            r#"{"skills":[1.50],"_meta":{"colibri/correlationId":"some-id"}}"#
        );
        let modern: Value = serde_json::from_str(&answered("skills/list", envelope, &MODERN)).unwrap();
        assert_eq!(modern["resultType"], "complete");
        assert_eq!((&modern["ttlMs"], &modern["cacheScope"]), (&json!(TTL_MS), &json!("private")));
    }

    #[test]
    fn a_refusal_becomes_the_error_its_method_has_for_it() {
        let gone = r#"{"ok":false,"error":{"code":"HANDLER_ERROR","message":"ERR_NOT_FOUND: no x","details":{"code":"ERR_NOT_FOUND"}}}"#;
        let bad = r#"{"ok":false,"error":{"code":"INVALID_PARAMS","message":"bad"}}"#;
        let broken = r#"{"ok":false,"error":{"code":"AUDIT_ENTER_FAILED","message":"full"}}"#;
        for (method, envelope, revision, expected) in [
            ("resources/read", gone, &LEGACY, "-32002 no x"),
            ("resources/read", gone, &MODERN, "-32602 no x"),
            ("skills/get", gone, &LEGACY, "-32602 no x"),
            ("skills/get", bad, &MODERN, "-32602 bad"),
            ("skills/list", broken, &MODERN, "-32603 full"),
            ("skills/list", "{}", &MODERN, "-32603 the call failed inside colibri: it gave no result"),
        ] {
            assert_eq!(answered(method, envelope, revision), expected, "{method} {envelope}");
        }
    }
}
