//! An offer as it is kept from one run to the next: JSON, every definition as its server wrote it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::listing::Tools;
use super::offer::{Abilities, Item, Offered};

#[derive(Serialize)]
struct Written<'a> {
    tools: Vec<&'a RawValue>,
    resources: Vec<(&'a str, &'a RawValue)>,
    templates: Vec<(&'a str, &'a RawValue)>,
    prompts: Vec<(&'a str, &'a RawValue)>,
    instructions: Option<&'a str>,
    abilities: Abilities,
    former: Vec<(&'a str, &'a RawValue)>,
}

#[derive(Deserialize)]
struct Read {
    tools: Vec<Box<RawValue>>,
    resources: Vec<(String, Box<RawValue>)>,
    templates: Vec<(String, Box<RawValue>)>,
    prompts: Vec<(String, Box<RawValue>)>,
    instructions: Option<String>,
    abilities: Abilities,
    #[serde(default)]
    former: Vec<(String, Box<RawValue>)>,
}

/// For the store.
pub(super) fn encode(offered: &Offered) -> Bytes {
    fn items(items: &[Item]) -> Vec<(&str, &RawValue)> {
        items.iter().map(|item| (item.key.as_str(), &*item.definition)).collect()
    }
    // What is withheld today is not shown tomorrow before it was looked at again.
    let tools = offered.tools.tools.iter().filter(|tool| !offered.is_withheld(&tool.name));
    let written = Written {
        tools: tools.map(|tool| &*tool.definition).collect(),
        resources: items(&offered.resources),
        templates: items(&offered.templates),
        prompts: items(&offered.prompts),
        instructions: offered.shown_instructions(),
        abilities: offered.abilities,
        former: items(&offered.former),
    };
    serde_json::to_vec(&written).expect("raw values and texts serialise").into()
}

/// From the store; nothing if it cannot be read, as after a change of this form.
pub(super) fn decode(raw: &[u8]) -> Option<Offered> {
    let Read { tools, resources, templates, prompts, instructions, abilities, former } =
        serde_json::from_slice(raw).ok()?;
    let items = |items: Vec<(String, Box<RawValue>)>| {
        items.into_iter().map(|(key, definition)| Item { key, definition }).collect()
    };
    Some(Offered {
        tools: Tools::remembered(tools),
        resources: items(resources),
        templates: items(templates),
        prompts: items(prompts),
        instructions,
        abilities,
        former: items(former),
        ..Offered::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PR-5: what is remembered is what was offered, byte for byte; what cannot be read is nothing.
    #[test]
    fn an_offer_comes_back_as_it_was() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let definition = raw(r#"{ "name":"a","inputSchema":{"type":"object"},"x":1.50}"#);
        let offered = Offered {
            tools: Tools::remembered(vec![definition, raw(r#"{"name":"no schema"}"#)]),
            resources: vec![Item { key: "file:///a".to_owned(), definition: raw(r#"{"uri":"file:///a"}"#) }],
            instructions: Some("Be kind.".to_owned()),
            abilities: Abilities { logging: true, ..Abilities::default() },
            former: vec![Item { key: "b".to_owned(), definition: raw(r#"{"name":"b"}"#) }],
            ..Offered::default()
        };
        assert_eq!(offered.tools.tools.len(), 1, "one that cannot be called is not remembered");
        assert_eq!(decode(&encode(&offered)), Some(offered));
        assert_eq!((decode(b"{}"), decode(b"")), (None, None));
    }
}
