//! What colibri answers, as bytes. Raw parts (ids, envelopes) are copied in and never parsed again.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::envelope::Id;
use super::error::Error;
use super::raw::Members;
use super::request::{notification, with_members};
use super::resources::extensions;
use super::revision::{Family, MODERN, REVISIONS, Revision};

/// Where a result says under which id its call is on record.
const CORRELATION_ID: &str = "colibri/correlationId";

/// Where colibri says how a result breaks its tool's own output schema.
const OUTPUT_MISMATCH: &str = "colibri/outputMismatch";

/// How long a modern client may keep what `server/discover` and, where there are no servers, the lists said.
pub const TTL_MS: u64 = 60_000;

/// Who colibri says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of the package.
    pub version: String,
    /// What a model should know before it uses the tools. Short: every session pays for it.
    pub instructions: String,
    /// Whether skills are offered, as the Skills extension and as resources.
    pub skills: bool,
    /// Whether there are servers behind it, so that the list of tools can change.
    pub servers: bool,
}

impl Identity {
    /// The answer to `initialize`. `servers` is what there is to know of the servers, if
    /// there are any.
    pub fn initialize(&self, servers: Option<&str>, revision: &Revision) -> Value {
        json!({
            "protocolVersion": revision.date,
            "capabilities": self.capabilities(servers.is_some(), revision),
            "serverInfo": self.server_info(revision),
            "instructions": self.instructions(servers),
        })
    }

    /// The answer to `server/discover`. `servers` is what there is to know of the servers, if
    /// there are any.
    pub fn discover(&self, servers: Option<&str>, revision: &Revision) -> Value {
        let mut result = json!({
            "supportedVersions": [MODERN.date],
            "capabilities": self.capabilities(servers.is_some(), revision),
            "instructions": self.instructions(servers),
        });
        if let Value::Object(result) = &mut result {
            cache_hints(result, revision);
            self.sign(result, revision);
        }
        result
    }

    fn instructions(&self, servers: Option<&str>) -> String {
        let servers = servers.unwrap_or_default();
        let gap = if servers.is_empty() { "" } else { "\n\n" };
        format!("{}{gap}{servers}", self.instructions)
    }

    /// The answer to `tools/call`: the envelope as text for models, and as it is for programs.
    pub fn called(
        &self,
        envelope: &[u8],
        is_error: bool,
        correlation_id: &str,
        revision: &Revision,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * envelope.len() + 256);
        out.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
        write(&mut out, &String::from_utf8_lossy(envelope));
        out.extend_from_slice(b"}],");
        if revision.structured {
            out.extend_from_slice(br#""structuredContent":"#);
            out.extend_from_slice(envelope);
            out.extend_from_slice(b",");
        }
        let mut rest = Map::new();
        rest.insert("isError".to_owned(), Value::from(is_error));
        self.sign(&mut rest, revision);
        let meta = rest.entry("_meta").or_insert_with(|| json!({}));
        meta[CORRELATION_ID] = Value::from(correlation_id);
        let mut tail = Vec::new();
        write(&mut tail, &rest);
        out.extend_from_slice(&tail[1..]); // Without its opening brace: it continues ours.
        out
    }

    /// A server's answer to a call of its tool, or to another method: its result as it came, where to find the call
    /// on record, and what the client's revision requires and the server's did not know.
    pub fn passed_on(
        &self,
        result: &Bytes,
        method: Option<&str>,
        correlation_id: &str,
        revision: &Revision,
    ) -> Vec<u8> {
        let id = format!(r#""{correlation_id}""#);
        let is_read = method == Some("resources/read");
        let required = [
            (revision.result_type, "resultType", r#""complete""#),
            // Nobody knows how long it stays true, nor for whom else.
            (revision.cache_hints && is_read, "ttlMs", "0"),
            (revision.cache_hints && is_read, "cacheScope", r#""private""#),
        ];
        let required = required.iter().filter(|(is_required, ..)| *is_required);
        let says = |key: &str| memchr::memmem::find(result, format!("\"{key}\"").as_bytes()).is_some();
        // A result that has none of the words has none of the members, and is not taken apart.
        if !says("_meta") && !required.clone().any(|(_, key, _)| says(key)) {
            let mut added: Vec<String> =
                required.map(|(_, key, value)| format!(r#""{key}":{value}"#)).collect();
            added.push(format!(r#""_meta":{{"{CORRELATION_ID}":{id}}}"#));
            return with_members(result, added.join(",").as_bytes());
        }
        let Some(members) = Members::of(result) else { return result.to_vec() };
        let meta = members.get("_meta").and_then(|meta| Members::of(meta.get().as_bytes()));
        let meta = meta.map_or_else(
            || format!(r#"{{"{CORRELATION_ID}":{id}}}"#).into_bytes(),
            |meta| meta.with(CORRELATION_ID, id.as_bytes()),
        );
        let whole = members.with("_meta", &meta);
        let missing = required.filter(|(_, key, _)| members.get(key).is_none());
        let missing: Vec<String> = missing.map(|(_, key, value)| format!(r#""{key}":{value}"#)).collect();
        if missing.is_empty() { whole } else { with_members(&whole, missing.join(",").as_bytes()) }
    }

    /// Adds what every modern result carries.
    pub fn sign(&self, result: &mut Map<String, Value>, revision: &Revision) {
        if revision.result_type {
            result.insert("resultType".to_owned(), Value::from("complete"));
            let info = json!({ "io.modelcontextprotocol/serverInfo": self.server_info(revision) });
            result.insert("_meta".to_owned(), info);
        }
    }

    /// What comes from servers is there if there are any, and with it that it can change; tools may come even where
    /// there is none yet. The newer family asks to be told, and cannot ask for changes of single resources.
    fn capabilities(&self, has_servers: bool, revision: &Revision) -> Value {
        let mut capabilities = json!({ "tools": {} });
        if revision.set_level {
            capabilities["logging"] = json!({});
        }
        if self.servers {
            capabilities["tools"]["listChanged"] = Value::from(true);
        }
        if self.skills || has_servers {
            capabilities["resources"] = json!({});
        }
        if self.skills {
            capabilities["extensions"] = extensions();
        }
        if has_servers {
            capabilities["prompts"] = json!({});
            // The first revision completes without saying so.
            if revision.date > REVISIONS[0].date {
                capabilities["completions"] = json!({});
            }
            for list in ["resources", "prompts"] {
                capabilities[list]["listChanged"] = Value::from(true);
            }
            if revision.family == Family::Legacy {
                capabilities["resources"]["subscribe"] = Value::from(true);
            }
        }
        capabilities
    }

    fn server_info(&self, revision: &Revision) -> Value {
        if revision.titles {
            json!({ "name": "colibri", "title": "Colibri", "version": self.version })
        } else {
            json!({ "name": "colibri", "version": self.version })
        }
    }
}

/// Adds how long a result may be kept, and by whom: it depends on the mode and on whose colibri this
/// is, so nobody may share it.
pub fn cache_hints(result: &mut Map<String, Value>, revision: &Revision) {
    if revision.cache_hints {
        result.insert("ttlMs".to_owned(), Value::from(TTL_MS));
        result.insert("cacheScope".to_owned(), Value::from("private"));
    }
}

/// The answer to a request, with its result as raw JSON.
pub fn success(id: &Id, result: &[u8]) -> Bytes {
    framed(id.raw(), "result", result)
}

/// The answer to a request, with its result as a value.
pub fn value(id: &Id, result: &Value) -> Bytes {
    let mut raw = Vec::new();
    write(&mut raw, result);
    success(id, &raw)
}

/// The refusal of a request, or of something whose id could not be read.
pub fn failure(id: Option<&Id>, error: &Error) -> Bytes {
    let mut raw = Vec::new();
    write(&mut raw, error);
    framed(id.map_or("null", Id::raw), "error", &raw)
}

/// A server's error, as it came.
pub fn relayed(id: &Id, error: &[u8]) -> Bytes {
    framed(id.raw(), "error", error)
}

/// What a server said while it worked on a call, under the token that the client chose for its progress.
pub fn noticed(method: &str, params: Option<&Bytes>, token: &Id) -> Bytes {
    let members = params
        .and_then(|params| Members::of(params))
        .filter(|members| members.get("progressToken").is_some());
    let own = members.map(|members| members.with("progressToken", token.raw().as_bytes()));
    notification(method, own.as_deref().or(params.map(AsRef::as_ref)))
}

/// The answers to a batch, as one frame.
pub fn batch(answers: &[Bytes]) -> Bytes {
    let mut out = Vec::with_capacity(answers.iter().map(|answer| answer.len() + 1).sum::<usize>() + 1);
    for answer in answers {
        out.push(if out.is_empty() { b'[' } else { b',' });
        out.extend_from_slice(answer);
    }
    out.push(b']');
    out.into()
}

fn framed(id: &str, key: &str, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(body.len() + id.len() + 48);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(body);
    out.push(b'}');
    out.into()
}

pub(super) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("string keys and a growing buffer leave nothing to fail");
}

/// A result that was passed on, with a note beside where to find it on record.
pub fn noted(result: &[u8], note: &str) -> Vec<u8> {
    let Some(members) = Members::of(result) else { return result.to_vec() };
    let meta = members.get("_meta").and_then(|meta| Members::of(meta.get().as_bytes()));
    let note = Value::from(note).to_string();
    let meta = meta.map(|meta| meta.with(OUTPUT_MISMATCH, note.as_bytes()));
    meta.map_or_else(|| result.to_vec(), |meta| members.with("_meta", &meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            version: "1.2.3".to_owned(),
            instructions: "be kind".to_owned(),
            skills: false,
            servers: false,
        }
    }

    fn parsed(raw: &[u8]) -> Value {
        serde_json::from_slice(raw).unwrap()
    }

    #[test]
    fn an_answer_repeats_its_id_byte_for_byte() {
        for raw in ["9007199254740993", r#""\u0061""#, "-0"] {
            let id = Id::read(raw.as_bytes()).unwrap();
            assert_eq!(success(&id, b"{ }"), format!(r#"{{"jsonrpc":"2.0","id":{raw},"result":{{ }}}}"#));
        }
        assert_eq!(
            failure(None, &Error::parse("no")),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#
        );
        let answers = [Bytes::from_static(b"{}"), Bytes::from_static(b"1")];
        assert_eq!(batch(&answers), "[{},1]");
    }

    /// CO-9: the envelope as text and, where the revision knows it, as structured content.
    #[test]
    fn a_call_result_shows_in_each_revision_what_it_knows() {
        let envelope = br#"{"ok":true,"data":{"n":1.50,"quote":"\"\u00e9"}}"#;
        for revision in &REVISIONS {
            let raw = identity().called(envelope, false, "some-id", revision);
            let result = parsed(&raw);
            assert_eq!(result["content"][0]["text"], *String::from_utf8_lossy(envelope), "{}", revision.date);
            assert_eq!(result["isError"], false);
            assert_eq!(result["_meta"]["colibri/correlationId"], "some-id");
            let structured = String::from_utf8(raw)
                .unwrap()
                .contains(r#""structuredContent":{"ok":true,"data":{"n":1.50"#);
            assert_eq!(structured, revision.date >= "2025-06-18");
            let modern = revision.date == "2026-07-28";
            assert_eq!(result.get("resultType").is_some(), modern);
            assert_eq!(result["_meta"].get("io.modelcontextprotocol/serverInfo").is_some(), modern);
        }
    }

    /// SU-12: who looks for skills over MCP is told that they are there.
    #[test]
    fn the_skills_extension_is_declared_in_every_revision() {
        let identity = Identity { skills: true, ..identity() };
        let declared = json!({ "io.modelcontextprotocol/skills": { "directoryRead": true } });
        for revision in &REVISIONS {
            let capabilities = identity.initialize(None, revision)["capabilities"].clone();
            assert_eq!(capabilities["extensions"], declared, "{}", revision.date);
            assert_eq!(capabilities["resources"], json!({}));
        }
        assert_eq!(identity.discover(None, &MODERN)["capabilities"]["extensions"], declared);
    }

    #[test]
    fn initialize_and_discover_say_who_answers() {
        let old = identity().initialize(None, &REVISIONS[0]);
        assert_eq!(old["serverInfo"], json!({ "name": "colibri", "version": "1.2.3" }));
        let new = identity().initialize(None, &REVISIONS[3]);
        assert_eq!(
            new,
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {}, "logging": {} },
                "serverInfo": { "name": "colibri", "title": "Colibri", "version": "1.2.3" },
                "instructions": "be kind",
            })
        );
        assert_eq!(
            identity().discover(None, &MODERN),
            json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} },
                "instructions": "be kind",
                "ttlMs": TTL_MS,
                "cacheScope": "private",
                "resultType": "complete",
                "_meta": { "io.modelcontextprotocol/serverInfo":
                    { "name": "colibri", "title": "Colibri", "version": "1.2.3" } },
            })
        );
    }
}
