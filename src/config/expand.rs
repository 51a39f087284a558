//! Variables in a server's texts: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${userHome}` and
//! `${workspaceFolder}`.
//!
//! Owns: the rules of expansion. A text is expanded once; what a variable holds is never expanded
//! again. Must not know: which keys are expanded.

use std::collections::BTreeMap;
use std::path::Path;

use super::process::is_plain;
use super::secret::Secret;

/// All texts of all servers together. Far above what an operating system lets a program start with;
/// it stops a small file that names a large variable many times.
const EXPANDED_BYTES_MAX: usize = 8 << 20;

/// What variables stand for.
pub(super) struct Variables<'a> {
    env: &'a BTreeMap<String, String>,
    cwd: &'a Path,
    home: Option<&'a Path>,
    bytes_left: usize,
    /// What the environment gave, until somebody takes it, by its name: it may be a secret, unless the name says what
    /// it is.
    pub(super) given: BTreeMap<String, Secret>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(env: &'a BTreeMap<String, String>, cwd: &'a Path, home: Option<&'a Path>) -> Self {
        Self { env, cwd, home, bytes_left: EXPANDED_BYTES_MAX, given: BTreeMap::new() }
    }

    /// The text with its variables filled in, or what is wrong with it.
    pub(super) fn expand(&mut self, text: &str) -> Result<String, String> {
        let mut done = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            done.push_str(before);
            let value = match after.split_once('}') {
                Some((inner, tail)) => self.value(inner)?.map(|value| (value, tail)),
                None => None,
            };
            rest = if let Some((value, tail)) = value {
                done.push_str(&value);
                tail
            } else {
                // No form of ours: text that happens to look like one, such as `${name%suffix}`.
                done.push_str("${");
                after
            };
            if done.len() > self.bytes_left {
                break;
            }
        }
        done.push_str(rest);
        self.charge(done.len())?;
        Ok(done)
    }

    /// Counts what a server was given by another road.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes_left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| format!("the servers' texts expand to more than {EXPANDED_BYTES_MAX} bytes"))?;
        Ok(())
    }

    /// What stands between the braces, filled in; `None` if it is no form of ours.
    fn value(&mut self, inner: &str) -> Result<Option<String>, String> {
        match inner {
            "userHome" => {
                let home = self.home.ok_or("`${userHome}` is not known: set HOME")?;
                return Ok(Some(home.display().to_string()));
            }
            "workspaceFolder" => return Ok(Some(self.cwd.display().to_string())),
            _ => {}
        }
        if let Some((kind @ ("input" | "secret" | "file"), _)) = inner.split_once(':') {
            // Passed on as text, it would reach the server in place of a password.
            return Err(format!("`${{{kind}:…}}` is not supported; use `${{VAR}}` and set the variable"));
        }
        let inner = inner.strip_prefix("env:").unwrap_or(inner);
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if !is_name(name) {
            return Ok(None);
        }
        if default.is_some_and(|default| default.contains("${")) {
            return Err(format!("the default of `${{{name}}}` holds a variable; variables do not nest"));
        }
        match (self.env.get(name), default) {
            (Some(value), default) if default.is_none() || !value.is_empty() => {
                if !is_plain(name) {
                    self.given.insert(name.to_owned(), Secret(value.clone()));
                }
                Ok(Some(value.clone()))
            }
            (_, Some(default)) => Ok(Some(default.to_owned())),
            (_, None) => {
                Err(format!("the variable `{name}` is not set; set it, or write `${{{name}:-default}}`"))
            }
        }
    }
}

/// The names of the variables that a text asks for, in their order.
pub(super) fn asked_for(text: &str) -> Vec<&str> {
    let opened = text.split("${").skip(1).filter_map(|after| after.split_once('}'));
    let names = opened.map(|(inner, _)| {
        let inner = inner.strip_prefix("env:").unwrap_or(inner);
        inner.split_once(":-").map_or(inner, |(name, _)| name)
    });
    names.filter(|name| is_name(name) && !matches!(*name, "userHome" | "workspaceFolder")).collect()
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PR-2: what is shown before a file is trusted is what would be filled in.
    #[test]
    fn what_a_text_asks_for() {
        for (text, expected) in [
            ("plain $A {B}", ""),
            ("Bearer ${TOKEN}", "TOKEN"),
            ("${A}${env:B}x${C:-d}${userHome}${workspaceFolder}", "A B C"),
            ("${name%suffix} ${1} ${A", ""),
            ("${${A}}", "A"),
        ] {
            assert_eq!(asked_for(text).join(" "), expected, "{text}");
        }
    }
}
