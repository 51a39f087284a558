//! Stories of schemas that ask for too much, and of those that only look like it.

use serde_json::json;

use super::*;

/// A chain of parts, each asking the next in the way that is given.
fn chain(length: usize, link: impl Fn(&Value) -> Value) -> Value {
    let mut parts: serde_json::Map<String, Value> = (0..length)
        .map(|at| (format!("a{at}"), link(&json!({ "$ref": format!("#/$defs/a{}", at + 1) }))))
        .collect();
    parts.insert(format!("a{length}"), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/a0", "$defs": parts })
}

fn twice(part: &Value) -> Value {
    json!({ "allOf": [part, part] })
}

/// A value of lists in lists.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |value, _| json!([value]))
}

/// SB-2: a schema that no value could be checked against is known before it is compiled.
#[test]
fn schemas_that_ask_for_too_much() {
    let check = |schema: &Value, expected: Excess| assert_eq!(Effort::of(schema).err(), Some(expected));
    check(&chain(40, twice), Excess::Steps);
    check(&chain(40, |part| json!({ "anyOf": [part, part] })), Excess::Steps);
    check(&chain(40, |part| json!({ "if": part, "then": part, "else": part })), Excess::Steps);
    check(&chain(9_000, Value::clone), Excess::Nested);
    check(&json!({ "allOf": [{ "$ref": "#" }] }), Excess::Nested);
    check(&json!({ "anyOf": vec![json!(true); PARTS_MAX] }), Excess::Parts);
    check(&json!({ "items": { "enum": (0..PARTS_MAX).collect::<Vec<_>>() } }), Excess::Parts);
    check(&json!({ "pattern": "((a{100}){100}){100}" }), Excess::Patterns);
    check(&json!({ "pattern": r"\s".repeat(CLASSES_MAX + 1) }), Excess::Patterns);
    check(&json!({ "pattern": r"\p{L}{2000}" }), Excess::Patterns);
    check(&json!({ "pattern": format!("[{}]", "a".repeat(PATTERN_BYTES_MAX)) }), Excess::Patterns);
    // What nothing refers to is read all the same.
    check(&json!({ "x": vec![json!(1); 50_000] }), Excess::Parts);
    check(&json!({ "x": vec![json!({ "$id": "a" }); 600] }), Excess::Parts);
    let looking = vec![json!({ "$ref": "#/nowhere" }); 1_000];
    check(&json!({ "allOf": looking, "x": vec![json!({ "$id": "a" }); 400] }), Excess::Parts);
    // What is left over is compiled inside each other, and once for every way to a part.
    let left_over = |part: &Value| {
        let mut asked = part.clone();
        asked["unevaluatedProperties"] = json!(false);
        json!({ "additionalProperties": asked })
    };
    check(&chain(3_000, left_over), Excess::LeftOver);
    assert!(Effort::of(&chain(LEFT_OVER_MAX, left_over)).is_ok());
    let mut doubled = chain(20, |part| json!({ "anyOf": [part, part] }));
    assert!(Effort::of(&doubled).is_ok());
    doubled["unevaluatedProperties"] = json!(false);
    check(&doubled, Excess::LeftOver);
    // By another name it is the same.
    let named = chain(40, twice).to_string().replace("#/$defs/a", "#a");
    let mut named: Value = serde_json::from_str(&named).expect("JSON");
    for (name, part) in named["$defs"].as_object_mut().expect("an object") {
        part["$anchor"] = json!(name);
    }
    check(&named, Excess::Steps);
    for id in ["x", "https://json-schema.org/x", "https://example.com/y/x"] {
        let mut own = chain(40, twice).to_string();
        own = own.replace("#/$defs", &format!("{id}#/%24defs"));
        let mut own: Value = serde_json::from_str(&own).expect("JSON");
        own["$id"] = json!(id);
        check(&own, Excess::Steps);
    }
}

/// SB-2: a large schema, one that refers to itself and one that refers to others stay usable.
#[test]
fn schemas_that_people_write() {
    let properties: serde_json::Map<String, Value> =
        (0..500).map(|at| (format!("key{at}"), json!({ "type": "string", "pattern": "^[a-z]+$" }))).collect();
    let wide = Effort::of(&json!({ "type": "object", "properties": properties })).expect("usable");
    assert!(wide.is_cheap(200));
    let light = |schema: Value| Effort::of(&schema).expect("usable").is_light();
    assert!(light(json!({ "properties": { "day": { "pattern": r"^\d{4}-\d{2}-\d{2}$" } } })));
    assert!(!light(json!({ "properties": { "day": { "pattern": r"\d".repeat(100) } } })));
    assert!(!light(json!({ "$ref": "#/$defs/a", "unevaluatedProperties": false, "$defs": { "a": {} } })));
    let tree = json!({ "properties": { "children": { "type": "array", "items": { "$ref": "#" } } } });
    let tree = Effort::of(&tree).expect("usable");
    assert_eq!(tree.thorough(&nested(DEPTH_MAX)), Thorough::Words);
    let any = json!({ "anyOf": [
        { "type": ["string", "number"] },
        { "type": "array", "items": { "$ref": "#" } },
        { "type": "object", "additionalProperties": { "$ref": "#" } },
    ]});
    let any = Effort::of(&any).expect("usable");
    assert_eq!(any.thorough(&nested(DEPTH_MAX / 2)), Thorough::Words);
    assert!(Effort::of(&json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" })).is_ok());
    assert!(Effort::of(&json!({ "$ref": "https://example.com/elsewhere" })).is_ok());
    let flat = Effort::of(&json!({ "properties": { "n": { "type": "number" } } })).expect("usable");
    assert!(flat.is_cheap(50_000));
    assert_eq!(flat.thorough(&nested(DEPTH_MAX)), Thorough::Words);
}

/// SB-2: recursion that branches is bounded by how deep the value is, and a large value by what each of its places costs.
#[test]
fn values_that_ask_for_too_much() {
    let part = json!({ "items": { "$ref": "#" } });
    let branching = Effort::of(&json!({ "allOf": [part.clone(), part] })).expect("usable");
    assert_eq!(branching.thorough(&nested(3)), Thorough::Words);
    assert_eq!(branching.thorough(&nested(18)), Thorough::YesOrNo);
    assert_eq!(branching.thorough(&nested(60)), Thorough::Not);
    assert!(!branching.is_cheap(10));
    let heavy = Effort::of(&json!({ "items": { "pattern": "(a|b)*a(a|b){2000}" } })).expect("usable");
    assert_eq!(heavy.thorough(&json!(["ab"])), Thorough::Words);
    assert_eq!(heavy.thorough(&json!(["ab".repeat(1_000_000)])), Thorough::Not);
    let lists = Effort::of(&json!({ "items": { "type": "string" } })).expect("usable");
    assert_eq!(lists.thorough(&json!(vec![1; 200_000])), Thorough::YesOrNo);
    // As many checks inside each other as there are frames on no stack.
    let steps = |part: Value| json!({ "allOf": [{ "allOf": [{ "allOf": [{ "items": part }] }] }] });
    let deep = Effort::of(&steps(json!({ "$ref": "#" }))).expect("usable");
    assert_eq!(deep.thorough(&nested(20)), Thorough::Words);
    assert_eq!(deep.thorough(&nested(DEPTH_MAX - 1)), Thorough::Not);
}
