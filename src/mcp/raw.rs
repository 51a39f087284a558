//! Raw JSON objects, taken apart and put together again without reading what is inside: what a value
//! was written as, it stays.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object, in its order.
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Takes an object apart; nothing if it is none.
    pub fn of(object: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(object).ok()
    }

    /// The value of a key. Of a key that stands there twice, the last: so most readers have it.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The object with this member in place of the one of that key, or after all others.
    pub fn with(&self, key: &str, value: &[u8]) -> Vec<u8> {
        let length: usize = self.0.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum();
        let mut out = Vec::with_capacity(length + key.len() + value.len() + 8);
        let mut is_placed = false;
        for (name, old) in &self.0 {
            let is_it = name == key;
            if !(is_it && is_placed) {
                let value = if is_it { value } else { old.get().as_bytes() };
                member(&mut out, name, value);
            }
            is_placed |= is_it;
        }
        if !is_placed {
            member(&mut out, key, value);
        }
        // There is at least the one that was asked for, so the object is open.
        out.push(b'}');
        out
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(if out.is_empty() { b'{' } else { b',' });
    serde_json::to_writer(&mut *out, name).expect("a text always serialises");
    out.push(b':');
    out.extend_from_slice(value);
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// A key is borrowed where it was written without escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(object: &str, key: &str, value: &str, expected: &str) {
        let members = Members::of(object.as_bytes()).expect("an object");
        assert_eq!(String::from_utf8(members.with(key, value.as_bytes())).expect("UTF-8"), expected);
    }

    #[test]
    fn a_member_is_put_in_its_place() {
        check(r#"{ "a" : 1.50, "b":[ 1e400 ] }"#, "b", "7", r#"{"a":1.50,"b":7}"#);
        check(
            r#"{"b":1,"a":12345678901234567890123}"#,
            "c",
            "{}",
            r#"{"b":1,"a":12345678901234567890123,"c":{}}"#,
        );
        check("{}", "a", "1", r#"{"a":1}"#);
        check(r#"{"a":1,"b":2,"a":3}"#, "a", "0", r#"{"a":0,"b":2}"#);
        check(r#"{"\u0061":1}"#, "a", "2", r#"{"a":2}"#);
        check(r#"{"x\"y":1}"#, "a", "2", r#"{"x\"y":1,"a":2}"#);
    }

    #[test]
    fn values_are_found_by_their_key() {
        let members = Members::of(br#"{"a":1,"b": "x" ,"a":3}"#).expect("an object");
        assert_eq!(members.get("b").map(RawValue::get), Some(r#""x""#));
        assert_eq!(members.get("a").map(RawValue::get), Some("3"));
        assert!(members.get("c").is_none());
        assert!(Members::of(b"[1]").is_none());
        assert!(Members::of(b"{").is_none());
    }
}
