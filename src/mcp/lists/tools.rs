//! The list of tools: written once in each form that clients read, so that a page is one copy of bytes.

use std::sync::OnceLock;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::tool::{Annotations, Definition, Listed};
use crate::mcp::answer::{Identity, write};
use crate::mcp::error::Error;
use crate::mcp::revision::{REVISIONS, Revision};

use super::{ENTRY_BYTES, Page, decode, encode, not_ours};

/// What stands around the entries of a page.
const AROUND: usize = br#"{"tools":[]}"#.len();

/// All tools that can be called, in the order of their names.
#[derive(Debug, Default)]
pub struct ToolList {
    listed: Vec<Listed>,
    /// One for each [`form`], made for the first client that reads it.
    written: [OnceLock<Written>; REVISIONS.len()],
}

/// The entries, with commas between them.
#[derive(Debug)]
struct Written {
    text: Vec<u8>,
    /// Where each entry ends.
    ends: Vec<usize>,
}

impl ToolList {
    /// A list of these, in whatever order they come.
    pub fn new(mut listed: Vec<Listed>) -> Self {
        listed.sort_by(|one, other| one.name().cmp(other.name()));
        Self { listed, written: Default::default() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The result of `tools/list`, as raw JSON. A page holds at least one tool, however large it is.
    pub fn page(
        &self,
        cursor: Option<&str>,
        identity: &Identity,
        revision: &Revision,
        page_bytes_max: usize,
    ) -> Result<Vec<u8>, Error> {
        let start = match cursor {
            Some(cursor) => {
                let last = decode(cursor).ok_or_else(not_ours)?;
                self.listed.partition_point(|tool| **tool.name() <= *last)
            }
            None => 0,
        };
        let written = self.written[form(revision)].get_or_init(|| Written::of(&self.listed, revision));
        let (entries, end) = written.behind(start, page_bytes_max.saturating_sub(AROUND));
        let page = Page::begin("tools", entries, page_bytes_max, 0);
        let next = (end < self.listed.len()).then(|| encode(self.listed[end - 1].name()));
        Ok(page.end(next, Map::new(), identity, revision))
    }
}

impl Written {
    fn of(listed: &[Listed], revision: &Revision) -> Self {
        let bytes = |tool: &Listed| match tool {
            Listed::Native(_) => ENTRY_BYTES,
            Listed::Proxied { definition, .. } => definition.len() + 1,
        };
        let room = listed.iter().map(bytes).sum();
        let mut written = Self { text: Vec::with_capacity(room), ends: Vec::with_capacity(listed.len()) };
        for tool in listed {
            if !written.ends.is_empty() {
                written.text.push(b',');
            }
            match tool {
                Listed::Native(definition) => write(&mut written.text, &Shown::of(definition, revision)),
                Listed::Proxied { definition, .. } => written.text.extend_from_slice(definition),
            }
            written.ends.push(written.text.len());
        }
        written
    }

    /// The entries from that place on that fit, and the place behind the last of them.
    fn behind(&self, start: usize, bytes_max: usize) -> (&[u8], usize) {
        let Some(rest) = self.ends.get(start..).filter(|rest| !rest.is_empty()) else { return (b"", start) };
        let begin = start.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        let fitting = rest.partition_point(|end| end - begin <= bytes_max).max(1);
        (&self.text[begin..rest[fitting - 1]], start + fitting)
    }
}

/// Revisions that know the same fields of a tool read the same list: that of the oldest of them.
fn form(revision: &Revision) -> usize {
    let fields = |revision: &Revision| (revision.annotations, revision.titles, revision.structured);
    let first = REVISIONS.iter().position(|other| fields(other) == fields(revision));
    first.expect("every revision is in the table")
}

/// A definition, as far as a revision knows its fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations>,
}

impl<'a> Shown<'a> {
    fn of(definition: &'a Definition, revision: &Revision) -> Self {
        Self {
            name: &definition.name,
            title: revision.titles.then_some(&*definition.title),
            description: &definition.description,
            input_schema: &definition.input_schema,
            output_schema: revision.structured.then_some(&definition.output_schema),
            annotations: revision.annotations.then_some(definition.annotations),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use serde_json::json;

    use super::super::PAGE_BYTES_MAX;
    use super::*;
    use crate::mcp::revision::MODERN;

    fn definition(name: &str) -> Listed {
        Listed::Native(Arc::new(Definition {
            name: name.into(),
            title: "Title".to_owned(),
            description: "what it does".to_owned(),
            input_schema: json!({ "type": "object" }),
            output_schema: json!({ "type": "object" }),
            annotations: Annotations {
                read_only: true,
                destructive: false,
                idempotent: true,
                open_world: false,
            },
        }))
    }

    fn identity() -> Identity {
        Identity { version: "1".to_owned(), instructions: String::new(), skills: false, servers: false }
    }

    fn page(tools: &ToolList, cursor: Option<&str>, revision: &Revision, bytes: usize) -> Value {
        serde_json::from_slice(&tools.page(cursor, &identity(), revision, bytes).unwrap()).unwrap()
    }

    fn list<const N: usize>(names: [&str; N]) -> ToolList {
        ToolList::new(names.map(definition).into())
    }

    fn names(page: &Value) -> Vec<String> {
        page["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_pages_add_up_to_the_list_whatever_their_size() {
        let all = ToolList::new((0..100).map(|n| definition(&format!("tool_{n:03}"))).collect());
        for bytes in [0, 1, 300, 1_000, 5_000, PAGE_BYTES_MAX] {
            let mut seen = Vec::new();
            let mut cursor: Option<String> = None;
            loop {
                let page = page(&all, cursor.as_deref(), &MODERN, bytes);
                let size = serde_json::to_vec(&page["tools"]).unwrap().len();
                assert!(size <= bytes || names(&page).len() == 1, "{size} bytes on a page of {bytes}");
                seen.extend(names(&page));
                cursor = page.get("nextCursor").map(|next| next.as_str().unwrap().to_owned());
                if cursor.is_none() {
                    break;
                }
            }
            let expected: Vec<_> = all.listed.iter().map(|tool| tool.name().to_string()).collect();
            assert_eq!(seen, expected);
        }
    }

    /// PR-3: a server's definition is passed on byte for byte, between colibri's own.
    #[test]
    fn a_servers_definition_is_passed_on_as_it_is() {
        let raw = r#"{ "name":"s__t", "x": 1.50, "inputSchema":{"type":"object"} }"#;
        let proxied = Listed::Proxied { name: "s__t".into(), definition: Bytes::from_static(raw.as_bytes()) };
        let tools = ToolList::new(vec![definition("z"), proxied, definition("a")]);
        let page = tools.page(None, &identity(), &MODERN, PAGE_BYTES_MAX).unwrap();
        assert!(String::from_utf8(page).unwrap().contains(&format!("}},{raw},{{")));
    }

    #[test]
    fn a_cursor_outlives_the_tool_it_names() {
        let first = page(&list(["a", "b", "c"]), None, &MODERN, 0);
        assert_eq!(names(&first), ["a"]);
        let cursor = first["nextCursor"].as_str();
        assert_eq!(names(&page(&list(["c"]), cursor, &MODERN, 0)), ["c"]);
        assert_eq!(names(&page(&list([]), cursor, &MODERN, 0)), Vec::<String>::new());
    }

    #[test]
    fn a_cursor_that_is_not_ours_is_minus_32602() {
        for cursor in ["", "abc", "é", "YWJj", "YWZ0ZXI6_w"] {
            let refused = list(["a"]).page(Some(cursor), &identity(), &MODERN, 0).unwrap_err();
            assert_eq!(refused.code, -32602, "{cursor}");
        }
    }

    /// SU-1, as far as the revision knows it: an older client is shown nothing it has no word for.
    #[test]
    fn each_revision_shows_the_fields_it_knows() {
        let (mut shown, tools) = (Vec::new(), list(["a"]));
        // One list for all: who read it before does not change what the next one sees.
        for revision in REVISIONS.iter().chain(&REVISIONS) {
            let page = page(&tools, None, revision, PAGE_BYTES_MAX);
            let mut keys: Vec<_> = page["tools"][0].as_object().unwrap().keys().cloned().collect();
            keys.extend(page.as_object().unwrap().keys().filter(|key| *key != "tools").cloned());
            keys.sort();
            shown.push(keys.join(" "));
        }
        assert_eq!(shown[..5], shown[5..]);
        assert_eq!(
            shown[..5],
            [
                "description inputSchema name",
                "annotations description inputSchema name",
                "annotations description inputSchema name outputSchema title",
                "annotations description inputSchema name outputSchema title",
                "_meta annotations cacheScope description inputSchema name outputSchema resultType title ttlMs",
            ]
        );
    }
}
