//! `subscriptions/listen` of the newer family, as data: a request that stays open and tells which lists have
//! changed, in both directions.
//!
//! Owns: the filter of such a request, and what is said on it. Must not know: how long it stays open.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{Identity, success, write};
use super::envelope::Id;
use super::error::Error;
use super::raw::Members;
use super::request::notification;
use super::revision::Revision;

/// The method.
pub const LISTEN: &str = "subscriptions/listen";

/// The first thing said on it: what will be told.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Where every message on it names the request that it belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The lists whose changes are told. Changes of single resources are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Filter {
    /// `notifications/tools/list_changed`.
    #[serde(rename = "toolsListChanged", skip_serializing_if = "is_not")]
    pub tools: bool,
    /// `notifications/prompts/list_changed`.
    #[serde(rename = "promptsListChanged", skip_serializing_if = "is_not")]
    pub prompts: bool,
    /// `notifications/resources/list_changed`.
    #[serde(rename = "resourcesListChanged", skip_serializing_if = "is_not")]
    pub resources: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_not(wanted: &bool) -> bool {
    !wanted
}

impl Filter {
    /// All lists.
    pub const ALL: Self = Self { tools: true, prompts: true, resources: true };

    /// What a server announces that it will tell, in its answer to `server/discover`.
    pub fn announced(introduction: &[u8]) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Introduction {
            capabilities: Value,
        }
        let Introduction { capabilities } = serde_json::from_slice(introduction).unwrap_or_default();
        let tells = |list: &str| capabilities[list]["listChanged"] == true;
        Self { tools: tells("tools"), prompts: tells("prompts"), resources: tells("resources") }
    }

    /// What a client asks to be told. What else it asks for is not understood, and so not agreed to.
    pub fn asked(params: Option<&Bytes>) -> Result<Self, Error> {
        let unread = |error: serde_json::Error| Error::invalid_params(format!("invalid params: {error}"));
        let params = params.map_or(&b"{}"[..], AsRef::as_ref);
        serde_json::from_slice(params).map(|Subscription { notifications }| notifications).map_err(unread)
    }

    /// What a server agreed to tell.
    pub fn agreed(params: &[u8]) -> Self {
        serde_json::from_slice(params).map(|Subscription { notifications }| notifications).unwrap_or_default()
    }

    /// The params of the request.
    pub fn params(self) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, &Subscription { notifications: self });
        out
    }

    /// Whether any change is told.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether all that `other` tells is told here too.
    pub fn covers(self, other: Self) -> bool {
        self.and(other) == other
    }

    /// What both tell.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            tools: self.tools && other.tools,
            prompts: self.prompts && other.prompts,
            resources: self.resources && other.resources,
        }
    }

    /// Whether this notification is among what is told.
    pub fn has(self, method: &str) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools,
            "notifications/prompts/list_changed" => self.prompts,
            "notifications/resources/list_changed" => self.resources,
            _ => false,
        }
    }
}

#[derive(Deserialize, Serialize)]
struct Subscription {
    notifications: Filter,
}

/// The first message on a request: what of it will be told.
pub fn acknowledged(id: &Id, agreed: Filter) -> Bytes {
    let meta = format!("{{{}}}", tag(id));
    let params = agreed.params();
    let params = Members::of(&params).expect("an object was written").with("_meta", meta.as_bytes());
    notification(ACKNOWLEDGED, Some(&params))
}

/// A change, on the request that asked for it.
pub fn told(id: &Id, method: &str) -> Bytes {
    notification(method, Some(format!(r#"{{"_meta":{{{}}}}}"#, tag(id)).as_bytes()))
}

/// The end of a request that nobody took back.
pub fn ended(id: &Id, identity: &Identity, revision: &Revision) -> Bytes {
    let mut result = serde_json::Map::new();
    identity.sign(&mut result, revision);
    let meta = result.remove("_meta").unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let (mut whole, mut signed) = (Vec::new(), Vec::new());
    write(&mut whole, &result);
    write(&mut signed, &meta);
    let meta =
        Members::of(&signed).expect("an object was written").with(SUBSCRIPTION_ID, id.raw().as_bytes());
    let result = Members::of(&whole).expect("an object was written").with("_meta", &meta);
    success(id, &result)
}

/// The request that a message of a server says it belongs to.
pub fn subscription(params: &[u8]) -> Option<u64> {
    let meta = Members::of(params)?.get("_meta")?;
    number(Members::of(meta.get().as_bytes())?.get(SUBSCRIPTION_ID)?.get())
}

/// The request that a server's `notifications/cancelled` ends.
pub fn cancelled(params: &[u8]) -> Option<u64> {
    number(Members::of(params)?.get("requestId")?.get())
}

/// Our ids are numbers; some servers make texts of them.
fn number(raw: &str) -> Option<u64> {
    raw.trim_matches('"').parse().ok()
}

fn tag(id: &Id) -> String {
    format!(r#""{SUBSCRIPTION_ID}":{}"#, id.raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::revision::MODERN;

    const TOOLS: Filter = Filter { tools: true, prompts: false, resources: false };

    #[test]
    fn a_filter_is_read_and_written() {
        let all = br#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}"#;
        assert_eq!((Filter::ALL.params(), Filter::agreed(all)), (all.to_vec(), Filter::ALL));
        let read = |text: &'static str| Filter::asked(Some(&Bytes::from_static(text.as_bytes())));
        let more = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a"]},"_meta":{}}"#;
        assert_eq!(read(more), Ok(TOOLS));
        assert_eq!(read(r#"{"notifications":{}}"#), Ok(Filter::default()));
        for wrong in [r#"{"notifications":{"toolsListChanged":1}}"#, r#"{"notifications":7}"#, "{}", "[]"] {
            assert!(read(wrong).is_err_and(|error| error.code == -32_602), "{wrong}");
        }
        assert!(Filter::asked(None).is_err());
        assert_eq!(Filter::agreed(b"nonsense"), Filter::default());
    }

    #[test]
    fn a_server_announces_what_it_tells() {
        let said = br#"{"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":"yes"}}}"#;
        assert_eq!(Filter::announced(said), TOOLS);
        for nothing in ["", "{}", r#"{"capabilities":7}"#, r#"{"capabilities":{"tools":true}}"#] {
            assert!(Filter::announced(nothing.as_bytes()).is_empty(), "{nothing}");
        }
        assert!(Filter::ALL.covers(TOOLS) && !TOOLS.covers(Filter::ALL) && TOOLS.covers(Filter::default()));
        assert!(
            TOOLS.has("notifications/tools/list_changed") && !TOOLS.has("notifications/prompts/list_changed")
        );
    }

    /// The id is repeated as it was written, on every message.
    #[test]
    fn every_message_names_its_request() {
        let identity =
            Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers: true };
        let id = Id::read(b"9007199254740993").expect("an id");
        let tag = r#""_meta":{"io.modelcontextprotocol/subscriptionId":9007199254740993}"#;
        assert_eq!(
            acknowledged(&id, TOOLS),
            format!(
                r#"{{"jsonrpc":"2.0","method":"{ACKNOWLEDGED}","params":{{"notifications":{{"toolsListChanged":true}},{tag}}}}}"#
            )
        );
        assert_eq!(
            told(&id, "notifications/tools/list_changed"),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{tag}}}}}"#)
        );
        let end = ended(&id, &identity, &MODERN);
        let end = std::str::from_utf8(&end).expect("UTF-8");
        assert!(
            end.starts_with(r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{"resultType":"complete","#),
            "{end}"
        );
        assert!(end.contains(r#""io.modelcontextprotocol/subscriptionId":9007199254740993}"#), "{end}");
    }

    #[test]
    fn a_servers_message_is_known_by_its_number() {
        for (raw, expected) in [("7", Some(7)), (r#""7""#, Some(7)), ("-7", None), ("null", None)] {
            let params = format!(r#"{{"_meta":{{"{SUBSCRIPTION_ID}":{raw}}}}}"#);
            assert_eq!(subscription(params.as_bytes()), expected);
            assert_eq!(cancelled(format!(r#"{{"requestId":{raw}}}"#).as_bytes()), expected);
        }
        assert_eq!((subscription(b"{}"), cancelled(b"[]")), (None, None));
    }
}
