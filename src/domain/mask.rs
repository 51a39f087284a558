//! Secrets of the configuration, taken out of whatever people are shown. A server may write its own token to its
//! stderr, or into an error, and colibri repeats such words.
//!
//! Owns: which forms a secret may have. Must not know: where secrets come from.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

use super::log::visible;

/// Shorter values are words such as `true` and `debug`; taking those out would spoil every line and hide nothing.
const SECRET_BYTES_MIN: usize = 8;

/// The beginning of a secret that a cut line may end with before it counts as one.
const HEAD_BYTES_MIN: usize = 4;

/// What stands where a secret stood.
const MASK: &str = "***";

/// Every secret that was ever configured in this run: old lines may hold old ones.
#[derive(Default)]
pub struct Masks(RwLock<Vec<String>>);

impl Masks {
    /// From now on these are taken out too.
    pub fn hide<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut all: BTreeSet<String> = known.drain(..).collect();
        for secret in secrets {
            // `Bearer abc` is as secret as `abc`.
            for part in secret.split_whitespace().chain([secret]) {
                let quoted = Value::from(part).to_string();
                let forms = [part.to_owned(), visible(part), quoted[1..quoted.len() - 1].to_owned()];
                all.extend(forms.into_iter().filter(|form| form.len() >= SECRET_BYTES_MIN));
            }
        }
        known.extend(all);
        // The longest first: one may be the beginning of another.
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// A text without them.
    pub fn text(&self, text: &str) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut text = text.to_owned();
        for secret in known.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
            if let Some(cut) = text.strip_suffix('…')
                && let Some(kept) = without_head_of(secret, cut)
            {
                text = format!("{kept}{MASK}…");
            }
        }
        text
    }

    /// A value without them, in whatever text of it. Names of members are colibri's own.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(all) => all.into_iter().map(|one| self.value(one)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, member)| (name, self.value(member))).collect()
            }
            other => other,
        }
    }
}

/// A text that was cut within a secret, up to where that began.
fn without_head_of<'a>(secret: &str, cut: &'a str) -> Option<&'a str> {
    let ends = (HEAD_BYTES_MIN..secret.len()).rev().filter(|end| secret.is_char_boundary(*end));
    ends.map(|end| &secret[..end]).find_map(|head| cut.strip_suffix(head))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// PR-2: a secret is taken out in every form it may have, also where a line was cut within it; a short word stays.
    #[test]
    fn secrets_are_taken_out() {
        let masks = Masks::default();
        masks.hide(["Bearer c4n4ry-token", "c4n4ry-token-2", "true", "quo\"ted\u{1b}secret"]);
        for (text, shown) in [
            ("nothing here", "nothing here"),
            ("it is true", "it is true"),
            ("got c4n4ry-token.", "got ***."),
            ("c4n4ry-token-2", "***"),
            ("Authorization: Bearer c4n4ry-token", "Authorization: ***"),
            ("a quo\"ted\u{1b}secret", "a ***"),
            ("a quo\"ted\\u{1b}secret", "a ***"),
            (r#"{"a":"quo\"ted\u001bsecret"}"#, r#"{"a":"***"}"#),
            ("token: c4n4ry-t…", "token: ***…"),
            ("token: c4n…", "token: c4n…"),
        ] {
            assert_eq!(masks.text(text), shown);
        }
        let value = json!({ "c4n4ry-token": ["c4n4ry-token", 7, { "x": "c4n4ry-token!" }] });
        assert_eq!(masks.value(value), json!({ "c4n4ry-token": ["***", 7, { "x": "***!" }] }));
    }
}
