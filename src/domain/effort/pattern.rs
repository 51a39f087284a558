//! How long a regular expression is when its counted repetitions are written out.
//!
//! Owns: that one number. It reads what it understands and takes the rest as single characters: whether the
//! expression is well formed is for its compiler to say.

/// What escapes a class of characters.
const CLASSES: [char; 8] = ['d', 'D', 'w', 'W', 's', 'S', 'p', 'P'];

/// What a class such as `\w` counts: it comes to hundreds of ranges.
const CLASS_WEIGHT: u64 = 8;

/// In characters, sets of them and the like, each counted once.
pub(super) fn length(pattern: &str) -> u64 {
    // What was before each open group.
    let mut groups: Vec<u64> = Vec::new();
    let (mut sum, mut last) = (0_u64, 0_u64);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '(' => {
                groups.push(sum.saturating_add(last));
                (sum, last) = (0, 0);
                continue;
            }
            ')' => {
                let inside = sum.saturating_add(last).max(1);
                sum = groups.pop().unwrap_or_default();
                last = inside;
                continue;
            }
            '{' => {
                if let Some((times, behind)) = repetition(rest.as_str()) {
                    last = last.saturating_mul(times.max(1));
                    rest = behind.chars();
                    continue;
                }
            }
            '[' => rest = after_class(rest.as_str()).chars(),
            '\\' => {
                sum = sum.saturating_add(last);
                last = if rest.as_str().starts_with(CLASSES) { CLASS_WEIGHT } else { 1 };
                rest = after_escape(rest.as_str()).chars();
                continue;
            }
            '*' | '+' | '?' => continue,
            _ => {}
        }
        sum = sum.saturating_add(last);
        last = 1;
    }
    let open = groups.iter().fold(0_u64, |open, before| open.saturating_add(*before));
    open.saturating_add(sum).saturating_add(last)
}

/// How many classes such as `\w` and `\p{Greek}` are written in it.
pub(super) fn classes(pattern: &str) -> usize {
    pattern.split('\\').skip(1).filter(|escaped| escaped.starts_with(CLASSES)).count()
}

/// The most of `3}`, `3,}` or `3,7}`, and what is behind it.
fn repetition(rest: &str) -> Option<(u64, &str)> {
    let (counts, behind) = rest.split_once('}')?;
    let (low, high) = counts.split_once(',').unwrap_or((counts, ""));
    let number = |text: &str| {
        let digits = text.trim();
        (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let low = number(low)?;
    Some((number(high).unwrap_or(low).max(low), behind))
}

/// What is behind an escape, of which the backslash is gone. `\p{Greek}` is one class; of `\d{3}` the braces repeat.
fn after_escape(rest: &str) -> &str {
    let mut chars = rest.chars();
    let escaped = chars.next();
    let behind = chars.as_str();
    if matches!(escaped, Some('p' | 'P')) && behind.starts_with('{') {
        return behind.split_once('}').map_or("", |(_, behind)| behind);
    }
    behind
}

/// What is behind a class of characters, of which the bracket is gone.
fn after_class(rest: &str) -> &str {
    let mut depth = 1_u32;
    let mut chars = rest.char_indices();
    // A bracket that closes is a character where it comes first.
    let body = rest.strip_prefix('^').unwrap_or(rest);
    let first = rest.len() - body.len() + usize::from(body.starts_with(']'));
    while let Some((at, c)) = chars.next() {
        match c {
            _ if at < first => {}
            '\\' => drop(chars.next()),
            '[' => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return &rest[at + 1..];
                }
            }
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SB-2: what a pattern costs is known before it is compiled.
    #[test]
    fn lengths_of_patterns() {
        let check = |pattern: &str, expected: u64| assert_eq!(length(pattern), expected, "{pattern}");
        check("", 0);
        check("abc", 3);
        check("^[a-z]{1,64}$", 66);
        check(r"\d{3}-\d{2,}", 41);
        check("(ab){10}c", 21);
        check("((a{100}){100}){100}", 1_000_000);
        check("(a|b)*c?", 4);
        check(r"[]\]x{9}]y{2}", 3);
        check("[[:alpha:]_]{5}", 5);
        check(r"\p{Greek}{7}", 56);
        check("a{x}", 4); // No repetition: it stands for itself.
        check("a{99999999999999999999}", u64::MAX);
        for broken in ["(((", ")))", "[a", "\\", "a{", "{3}", r"\p{"] {
            length(broken);
        }
    }
}
