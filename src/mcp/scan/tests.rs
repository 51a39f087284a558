//! The scanner's stories, and serde_json as its oracle.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

/// The values of the envelope's keys, as text.
#[track_caller]
fn members(frame: &str) -> Vec<(&'static str, &str)> {
    match scan(frame.as_bytes()) {
        Ok(Shape::Object(members)) => values(frame, &members),
        other => panic!("{frame}: {other:?}"),
    }
}

fn values<'a>(frame: &'a str, members: &Members) -> Vec<(&'static str, &'a str)> {
    Key::ALL.into_iter().filter_map(|key| Some((key.name(), &frame[members.get(key)?]))).collect()
}

#[track_caller]
fn fault(frame: &str) -> Option<KeyFault> {
    match scan(frame.as_bytes()) {
        Ok(Shape::Object(members)) => members.fault,
        other => panic!("{frame}: {other:?}"),
    }
}

#[test]
fn the_six_keys_are_found_and_everything_else_passes_untouched() {
    assert_eq!(members("{}"), []);
    assert_eq!(
        members(r#" {"jsonrpc" : "2.0", "id":9007199254740993 ,"method":"a\/b","params":{"id":[1]} } "#),
        [
            ("jsonrpc", r#""2.0""#),
            ("id", "9007199254740993"),
            ("method", r#""a\/b""#),
            ("params", r#"{"id":[1]}"#)
        ]
    );
    assert_eq!(
        members(r#"{"x":{"method":1},"result":[],"trace":null,"error":{}}"#),
        [("result", "[]"), ("error", "{}")]
    );
    // Not for the scanner to judge: what the escapes and the numbers mean.
    assert_eq!(members(r#"{"params":["\ud800",1e400]}"#), [("params", r#"["\ud800",1e400]"#)]);
}

/// Bad input on stdio: duplicate keys, `Method`, folded letters and escapes never reach a parser.
#[test]
fn keys_that_two_readers_might_read_differently_are_a_fault() {
    use KeyFault::{Duplicate, Escaped, Lookalike};
    for (frame, expected) in [
        (r#"{"id":1,"id":1}"#, Some(Duplicate(Key::Id))),
        (r#"{"method":"a","x":1,"method":"b"}"#, Some(Duplicate(Key::Method))),
        (r#"{"Method":"a"}"#, Some(Lookalike(Key::Method))),
        (r#"{"ID":1,"id":1}"#, Some(Lookalike(Key::Id))),
        (r#"{"paramſ":{}}"#, Some(Lookalike(Key::Params))),
        (r#"{"reſult":{}}"#, Some(Lookalike(Key::Result))),
        (r#"{"İd":1}"#, Some(Lookalike(Key::Id))),
        (r#"{"ıd":1}"#, Some(Lookalike(Key::Id))),
        (r#"{"m\u0065thod":"a"}"#, Some(Escaped)),
        (r#"{"x\n":"a"}"#, Some(Escaped)),
        (r#"{"methods":1,"x":1,"x":2,"":3}"#, None),
        (r#"{"params":{"id":1,"id":2,"ID":3}}"#, None),
    ] {
        assert_eq!(fault(frame), expected, "{frame}");
    }
}

#[test]
fn what_is_not_json_is_refused_where_it_shows() {
    for (frame, at, what) in [
        (&b""[..], 0, "a JSON value is missing"),
        (b"   ", 3, "a JSON value is missing"),
        (b"{\"a\":\xff}", 5, "invalid UTF-8"),
        (b"\"\xed\xa0\x80\"", 1, "invalid UTF-8"),
        (b"\xef\xbb\xbf{}", 0, "a byte order mark"),
        (b"\0{}", 0, "a JSON value is missing"),
        (b"\"a\0b\"", 2, "a control character in a string"),
        (b"{} {}", 3, "something follows the JSON value"),
        (b"{\"a\":1,}", 7, "a key is missing"),
        (b"{\"a\" 1}", 5, "`:` is missing"),
        (b"[1,]", 3, "a JSON value is missing"),
        (b"[1}", 2, "`,` or `]` is missing"),
        (b"{\"a\":1]", 6, "`,` or `}` is missing"),
        (b"01", 1, "something follows the JSON value"),
        (b"1.", 2, "a digit is missing"),
        (b"-", 1, "a digit is missing"),
        (b"1e+", 3, "a digit is missing"),
        (b"nul", 0, "an unknown word"),
        (b"\"\\x\"", 1, "an invalid escape"),
        (b"\"\\u12g4\"", 1, "an invalid escape"),
        (b"\"\\u12", 1, "an invalid escape"),
        (b"\"abc", 4, "a string has no end"),
        (b"'a'", 0, "a JSON value is missing"),
        (b"NaN", 0, "a JSON value is missing"),
    ] {
        let text = String::from_utf8_lossy(frame);
        assert_eq!(scan(frame), Err(NotJson { at, what }), "{text}");
    }
}

/// Bad input on stdio: depth 129 and 100 000.
#[test]
fn nesting_ends_at_128_levels_and_costs_no_stack() {
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        assert!(scan(nested(open, close, 128).as_bytes()).is_ok());
        for depth in [129, 130, 100_000] {
            let refused = scan(nested(open, close, depth).as_bytes()).unwrap_err();
            assert_eq!(refused.what, "nesting deeper than 128 levels");
            assert_eq!(refused.at, 128 * open.len());
        }
    }
}

#[test]
fn a_batch_knows_its_members_and_stops_remembering_at_its_bound() {
    let frame = r#"[{"id":1}, 2, [{"id":3}], {"x":[{"id":4}],"method":"m"}, {}]"#;
    let Ok(Shape::Batch(batch)) = scan(frame.as_bytes()) else { panic!("not a batch") };
    let found: Vec<_> =
        batch.members.iter().map(|member| member.as_ref().map(|m| values(frame, m))).collect();
    assert_eq!(found, [Some(vec![("id", "1")]), None, None, Some(vec![("method", "\"m\"")]), Some(vec![])]);

    let many = format!("[{}{{\"id\":1}}]", "{\"id\":0},".repeat(9_999));
    let Ok(Shape::Batch(batch)) = scan(many.as_bytes()) else { panic!("not a batch") };
    assert_eq!((batch.count, batch.members.len()), (10_000, BATCH_MEMBERS_MAX));
    assert_eq!(scan(b"[]"), Ok(Shape::Batch(Batch::default())));
}

/// Text that is JSON, nearly JSON, or made of its pieces.
fn jsonish() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\t",
            "\r",
            "\n",
            "\"",
            "\\",
            "0",
            "1",
            "-",
            "+",
            ".",
            "e",
            "E",
            "true",
            "false",
            "null",
            "\"id\"",
            "\"method\"",
            "\"params\":",
            "\"x\":",
            "\\u00e9",
            "\\ud800",
            "\\n",
            "\\q",
            "é",
            "\u{7f}",
            "\u{1}",
            "1e400",
            "-0",
            "01",
            "1.5",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(|value| format!("{value:e}")),
        any::<String>().prop_map(|value| serde_json::to_string(&value).unwrap()),
    ];
    let blank = || prop::sample::select(vec!["", " ", "\n\t", "\r"]);
    let key = || {
        prop_oneof![
            prop::sample::select(Key::ALL.to_vec()).prop_map(|key| key.name().to_owned()),
            "[a-z]{0,4}"
        ]
    };
    scalar.prop_recursive(6, 64, 6, move |inner| {
        let list = (prop::collection::vec(inner.clone(), 0..6), blank()).prop_map(|(items, blank)| {
            format!("{blank}[{blank}{}{blank}]", items.join(&format!("{blank},")))
        });
        let object = (prop::collection::vec((key(), inner), 0..6), blank()).prop_map(|(items, blank)| {
            let items: Vec<_> = items
                .into_iter()
                .map(|(key, value)| format!("{blank}\"{key}\"{blank}:{value}{blank}"))
                .collect();
            format!("{{{}}}{blank}", items.join(","))
        });
        prop_oneof![list, object]
    })
}

/// What serde_json makes of it: the first value of each key.
fn oracle(frame: &[u8]) -> Option<HashMap<String, String>> {
    struct First(HashMap<String, String>);
    impl<'de> serde::Deserialize<'de> for First {
        fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
            struct Visit;
            impl<'de> serde::de::Visitor<'de> for Visit {
                type Value = First;
                fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                    out.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<First, A::Error> {
                    let mut first = HashMap::new();
                    while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                        first.entry(key).or_insert_with(|| value.get().to_owned());
                    }
                    Ok(First(first))
                }
            }
            input.deserialize_map(Visit)
        }
    }
    serde_json::from_slice::<First>(frame).ok().map(|first| first.0)
}

fn accepted_by_serde(frame: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(frame).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn the_scanner_and_serde_json_accept_the_same(frame in prop_oneof![jsonish(), json()]) {
        prop_assert_eq!(scan(frame.as_bytes()).is_ok(), accepted_by_serde(frame.as_bytes()), "{}", frame);
    }

    #[test]
    fn a_flipped_byte_is_judged_the_same(frame in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = frame.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        prop_assert_eq!(scan(&bytes).is_ok(), accepted_by_serde(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn the_spans_are_the_values_serde_json_finds(frame in json()) {
        if let Ok(Shape::Object(members)) = scan(frame.as_bytes()) {
            let oracle = oracle(frame.as_bytes()).expect("it is an object");
            for key in Key::ALL {
                let ours = members.get(key).map(|span| frame[span].to_owned());
                prop_assert_eq!(ours.as_ref(), oracle.get(key.name()), "{}", frame);
            }
        }
    }
}
