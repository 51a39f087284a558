//! JSON as text, in every spelling that a parser might not keep.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// How deep a result may be: the envelope around it is one more.
pub(super) const DEPTH_MAX: usize = colibri::mcp::scan::DEPTH_MAX as usize - 1;

/// Pieces of texts, as they stand between the quotes.
const PIECES: [&str; 28] = [
    "a",
    " ",
    "é",
    "世界",
    "𝕏",
    "🐦",
    "\u{2028}",
    "\u{feff}",
    "\u{7f}",
    "\u{e000}",
    "\u{10ffff}",
    "\\\"",
    "\\\\",
    "\\/",
    "\\b",
    "\\f",
    "\\n",
    "\\r",
    "\\t",
    "\\u0000",
    "\\u0041",
    "\\u00E9",
    "\\ud83d\\ude00",
    "\\ud800",
    "\\uDC00x",
    "data: ",
    "input_required",
    "}]\\u007d",
];

/// Numbers that are not what they seem once they were a float.
const NUMBERS: [&str; 20] = [
    "0",
    "-0",
    "-0.0",
    "0e0",
    "1.0",
    "1.50",
    "1E+2",
    "1e-0",
    "1e400",
    "-1E400",
    "1e-400",
    "0.1000000000000000055511151231257827",
    "9007199254740993",
    "18446744073709551616",
    "-9223372036854775809",
    "340282366920938463463374607431768211457",
    "123456789012345678901234567890.123456789012345678901234567890e-30",
    "4.9406564584124654e-324",
    "1000000000000000000000000000000000000000000000000000000000000",
    "3.0e00000000000000000000001",
];

/// Keys that somebody might think special, and that are not, here.
const KEYS: [&str; 14] = [
    "content",
    "isError",
    "structuredContent",
    "_meta",
    "annotations",
    "x-unknown",
    "type",
    "id",
    "jsonrpc",
    "Method",
    "params",
    "result",
    "",
    "\\u0074ype",
];

/// What may stand between two tokens.
fn blank() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "", " ", "\t", "   ", "\n", "\r\n", "\r", " \n\t"])
}

fn text() -> impl Strategy<Value = String> {
    vec(select(PIECES.to_vec()), 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![select(KEYS.to_vec()).prop_map(|key| format!("\"{key}\"")), text()]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        select(NUMBERS.to_vec()).prop_map(str::to_owned),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?",
    ]
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => text(),
        4 => number(),
        1 => select(vec!["true", "false", "null"]).prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(5, 48, 5, |inner| prop_oneof![array(inner.clone()), object(inner)])
}

fn array(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    vec((blank(), inner, blank()), 0..5).prop_map(|elements| {
        let elements: Vec<String> =
            elements.into_iter().map(|(a, value, b)| format!("{a}{value}{b}")).collect();
        format!("[{}]", elements.join(","))
    })
}

/// Members in any order, some of them twice.
fn object(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    vec((blank(), key(), blank(), blank(), inner, blank()), 0..5).prop_map(|members| {
        let member = |(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}");
        let members: Vec<String> = members.into_iter().map(member).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// An object as a message carries it; one in eight is as deep as a message can be.
pub(super) fn message() -> impl Strategy<Value = String> {
    (object(value()), prop::bool::weighted(0.125)).prop_map(|(object, is_deep)| {
        if !is_deep {
            return object;
        }
        let levels = DEPTH_MAX - 1;
        let inner = object.strip_prefix('{').expect("an object");
        let comma = if inner.trim_start().starts_with('}') { "" } else { "," };
        format!("{{\"deep\":{}{}{comma}{inner}", "[".repeat(levels), "]".repeat(levels))
    })
}

/// The same value without line ends: what is between the values of JSON is nobody's meaning.
pub(super) fn in_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
