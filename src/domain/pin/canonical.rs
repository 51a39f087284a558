//! Canonical JSON (RFC 8785) of what others wrote, where it has exactly one meaning.
//!
//! Refused, since readers disagree about it: a key twice in one object, and a number that not every
//! reader can hold exactly.

use std::fmt::{self, Write as _};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The largest integer that every reader of JSON holds exactly.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// The canonical form; none if it is not JSON with one meaning.
pub(super) fn canonical(json: &[u8]) -> Option<String> {
    let tree: Tree = serde_json::from_slice(json).ok()?;
    let mut text = String::with_capacity(json.len());
    tree.write(&mut text);
    Some(text)
}

/// JSON without loss. As deep as the parser allows, and no deeper.
enum Tree {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Tree>),
    /// In canonical order, no key twice.
    Members(Vec<(String, Tree)>),
}

impl Tree {
    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => write_number(*number, out),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    out.push_str(if place == 0 { "" } else { "," });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Members(members) => {
                out.push('{');
                for (place, (key, value)) in members.iter().enumerate() {
                    out.push_str(if place == 0 { "" } else { "," });
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// The escapes of serde_json are those of the RFC: the short ones, `\u00xx` in lower case, and no other.
fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("text always serialises"));
}

/// As ECMAScript writes it: the shortest digits that read back the same, without an exponent down to
/// `0.000001`. Above, there is no number so large.
fn write_number(number: f64, out: &mut String) {
    // Also for minus zero.
    if number == 0.0 {
        return out.push('0');
    }
    out.push_str(if number < 0.0 { "-" } else { "" });
    let (mut digits, point) = shortest(number.abs());
    let length = i32::try_from(digits.len()).expect("a number has at most 17 digits");
    if point < -5 {
        if digits.len() > 1 {
            digits.insert(1, '.');
        }
        write!(out, "{digits}e{}", point - 1).expect("a String takes all");
    } else if point <= 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', point.unsigned_abs() as usize));
        out.push_str(&digits);
    } else if point < length {
        digits.insert(point.unsigned_abs() as usize, '.');
        out.push_str(&digits);
    } else {
        out.push_str(&digits);
        out.extend(std::iter::repeat_n('0', (point - length).unsigned_abs() as usize));
    }
}

/// The digits of a number above zero, and how many of them stand before the point. serde_json's, since of
/// two that are equally near it takes the even one, as ECMAScript does; `{:e}` does not.
fn shortest(number: f64) -> (String, i32) {
    let written = serde_json::to_string(&number).expect("a number always serialises");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    let before = i32::try_from(whole.len()).and_then(|whole| i32::try_from(zeros).map(|zeros| whole - zeros));
    let point = before.expect("a number has few digits") + exponent;
    (significant.trim_end_matches('0').to_owned(), point)
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Growing)
    }
}

struct Growing;

impl<'de> Visitor<'de> for Growing {
    type Value = Tree;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON with one meaning")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "what would lose anything is refused next")]
    fn visit_u64<E: Error>(self, number: u64) -> Result<Tree, E> {
        self.visit_f64(number as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "what would lose anything is refused next")]
    fn visit_i64<E: Error>(self, number: i64) -> Result<Tree, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Tree, E> {
        if number.abs() <= INTEGER_MAX {
            Ok(Tree::Number(number))
        } else {
            Err(E::custom("a number that not every reader holds exactly"))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut all: Vec<(String, Tree)> = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        // By UTF-16 units, as the RFC has it: not the order of UTF-8 beyond U+FFFF.
        all.sort_by(|one, other| one.0.encode_utf16().cmp(other.0.encode_utf16()));
        if all.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(A::Error::custom("a key is there twice"));
        }
        Ok(Tree::Members(all))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<i32>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("every reader holds it", |number| number.abs() <= INTEGER_MAX)
                .prop_map(Value::from),
            (-400i32..16).prop_map(|exponent| Value::from(1.5 * 10f64.powi(exponent))),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            number,
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// SU-4: the same as an independent canonicaliser, however it was spelt.
        #[test]
        fn it_is_the_form_of_rfc_8785(value in any_json()) {
            let expected = serde_json_canonicalizer::to_string(&value).unwrap();
            for spelling in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                prop_assert_eq!(canonical(spelling.as_bytes()), Some(expected.clone()));
            }
        }
    }

    #[test]
    fn keys_are_sorted_by_utf_16() {
        let value = json!({ "\u{fb33}": 1, "😀": 2, "\r": 3, "1": 4, "": 5 });
        let form = canonical(value.to_string().as_bytes()).unwrap();
        assert_eq!(form, "{\"\":5,\"\\r\":3,\"1\":4,\"😀\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn what_has_no_one_meaning_has_no_form() {
        for json in [
            r#"{"a":1,"a":1}"#,
            r#"[{"a":{"b":0,"\u0062":0}}]"#,
            "9007199254740992",
            "-9007199254740993",
            "1e16",
            "123456789012345678901234567890",
            "1e999",
            r#""\ud800""#,
            "",
            "{",
            "1 2",
            &"[".repeat(1_000),
        ] {
            assert_eq!(canonical(json.as_bytes()), None, "{json}");
        }
        assert_eq!(canonical(b"\"\xff\""), None);
    }

    #[test]
    fn numbers_are_written_as_ecmascript_does() {
        for (json, form) in [
            ("-0", "0"),
            ("-0.0", "0"),
            ("1E2", "100"),
            ("10.50", "10.5"),
            ("9007199254740991", "9007199254740991"),
            ("-1033155983106786.25", "-1033155983106786.2"), // As near as .3, and even.
            ("0.001", "0.001"),
            ("0.0000015", "0.0000015"),
            ("1e-6", "0.000001"),
            ("1e-7", "1e-7"),
            ("123e-9", "1.23e-7"),
            ("5e-324", "5e-324"),
            ("1e-400", "0"),
        ] {
            assert_eq!(canonical(json.as_bytes()).as_deref(), Some(form), "{json}");
        }
    }
}
