//! Which of a server's tools are offered: those allowed, minus those denied.
//!
//! Owns: patterns and what they match. Must not know: what a tool is.

/// A pattern longer than this matches nothing that a tool is called.
const PATTERN_CHARS_MAX: usize = 256;

/// What is offered. Deny wins; allowing nothing in particular allows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Filter {
    /// Patterns as they were written: `*` stands for any text, case and blanks around do not count, and
    /// `any` alone is the same as `*`.
    pub fn new(allow: &[String], deny: &[String]) -> Self {
        let plain = |patterns: &[String]| -> Vec<String> {
            let plain = patterns.iter().map(|pattern| pattern.trim().to_lowercase());
            plain.filter(|pattern| !pattern.is_empty()).collect()
        };
        Self { allow: plain(allow), deny: plain(deny) }
    }

    /// Whether a tool of that name is listed and callable.
    pub fn admits(&self, name: &str) -> bool {
        let name = name.trim().to_lowercase();
        let is_in = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, &name));
        (self.allow.is_empty() || is_in(&self.allow)) && !is_in(&self.deny)
    }
}

/// `*` matches any text. Linear: of several ways to match, only the last star is ever tried again.
fn matches(pattern: &str, name: &str) -> bool {
    if pattern == "any" || pattern == "*" {
        return true;
    }
    if pattern.chars().count() > PATTERN_CHARS_MAX {
        return false;
    }
    let parts: Vec<&str> = pattern.split('*').collect();
    let [only] = parts.as_slice() else {
        let (first, last) = (parts[0], parts[parts.len() - 1]);
        let Some(rest) = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
            return false;
        };
        // What stands between two stars is found at its first place: a later one leaves less.
        let middle = &parts[1..parts.len() - 1];
        return middle
            .iter()
            .try_fold(rest, |rest, part| rest.find(part).map(|at| &rest[at + part.len()..]))
            .is_some();
    };
    *only == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(allow: &[&str], deny: &[&str], admitted: &str, refused: &str) {
        let own = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
        let filter = Filter::new(&own(allow), &own(deny));
        for name in admitted.split_whitespace() {
            assert!(filter.admits(name), "{allow:?} minus {deny:?} offers {name}");
        }
        for name in refused.split_whitespace() {
            assert!(!filter.admits(name), "{allow:?} minus {deny:?} withholds {name}");
        }
    }

    /// PR-4: allow minus deny; case and blanks do not count; deny wins.
    #[test]
    fn what_is_offered() {
        check(&[], &[], "a B read_file", "");
        check(&["*"], &[], "a", "");
        check(&["any"], &["b"], "a any", "b B");
        check(&[" Read_* "], &[], "read_file READ_x read_", "write_file xread_");
        check(&["a", "b"], &["B"], "a A", "b c");
        check(&["", "  "], &[], "a", "");
        check(&[], &["*"], "", "a b");
        check(&["*_file"], &["*delete*"], "read_file", "delete_file file");
    }

    /// PR-4: stars match any text, also none, and do not overlap.
    #[test]
    fn stars() {
        check(&["a*a"], &[], "aa aba", "a ab");
        check(&["a*b*c"], &[], "abc axbxc abbc", "acb ab");
        check(&["**x**"], &[], "x axb", "y");
        check(&["é*"], &[], "Éa", "ea");
        let long = "a*".repeat(200);
        check(&[&long], &[], "", "aaaa");
    }
}
