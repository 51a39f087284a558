//! Which of a server's tools are offered: what is allowed, minus what is denied.
//!
//! Owns: the patterns of `toolsAllowed` and `toolsDenied`, and what they match.
//! Must not know: what a tool does, or what it is called to clients.

/// No tool's name is as long: a longer pattern is a mistake, and is refused rather than guessed at.
pub const PATTERN_BYTES_MAX: usize = 512;

/// A checked pair of lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `None` allows everything.
    allowed: Option<Vec<Pattern>>,
    denied: Vec<Pattern>,
}

/// A pattern that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern of {bytes} bytes, beginning with `{head}`: use at most {PATTERN_BYTES_MAX}")]
pub struct PatternTooLong {
    bytes: usize,
    head: String,
}

impl Filter {
    /// An empty list of allowed tools allows all. Patterns are trimmed and know no case; `*` stands for any
    /// characters, and the word `any` for every tool. A blank pattern matches nothing, so that a list
    /// of blanks allows nothing.
    pub fn new(allowed: &[impl AsRef<str>], denied: &[impl AsRef<str>]) -> Result<Self, PatternTooLong> {
        let allowed = if allowed.is_empty() { None } else { Some(patterns(allowed)?) };
        Ok(Self { allowed, denied: patterns(denied)? })
    }

    /// Whether a tool, by its server's own name for it, is listed and callable.
    pub fn admits(&self, tool: &str) -> bool {
        // Folded and trimmed like the patterns, so that ` Delete` does not slip past `delete`.
        let tool = tool.trim().to_lowercase();
        let hit = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(&tool));
        self.allowed.as_deref().is_none_or(hit) && !hit(&self.denied)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Nothing,
    Everything,
    Exactly(String),
    /// Begins with `head` and ends with `tail`, and has the middle pieces between, in order.
    Glob {
        head: String,
        middle: Vec<String>,
        tail: String,
    },
}

fn patterns(texts: &[impl AsRef<str>]) -> Result<Vec<Pattern>, PatternTooLong> {
    texts.iter().map(|text| Pattern::new(text.as_ref())).collect()
}

impl Pattern {
    fn new(text: &str) -> Result<Self, PatternTooLong> {
        if text.len() > PATTERN_BYTES_MAX {
            let head = text[..text.floor_char_boundary(40)].to_owned();
            return Err(PatternTooLong { bytes: text.len(), head });
        }
        let text = text.trim().to_lowercase();
        let mut pieces: Vec<String> = text.split('*').map(str::to_owned).collect();
        let tail = pieces.pop().expect("splitting gives at least one piece");
        if text == "any" || (!text.is_empty() && text.bytes().all(|byte| byte == b'*')) {
            Ok(Self::Everything)
        } else if text.is_empty() {
            Ok(Self::Nothing)
        } else if pieces.is_empty() {
            Ok(Self::Exactly(tail))
        } else {
            let head = pieces.remove(0);
            pieces.retain(|piece| !piece.is_empty());
            Ok(Self::Glob { head, middle: pieces, tail })
        }
    }

    /// Takes time in proportion to the name and the pattern: each piece is looked for once, and where it
    /// is found first leaves the most room for the others.
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Exactly(text) => text == name,
            Self::Glob { head, middle, tail } => {
                let Some(rest) = name.strip_prefix(head.as_str()) else { return false };
                let Some(mut rest) = rest.strip_suffix(tail.as_str()) else { return false };
                for piece in middle {
                    let Some((_, after)) = rest.split_once(piece.as_str()) else { return false };
                    rest = after;
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn admitted<'a>(allowed: &[&str], denied: &[&str], tools: &[&'a str]) -> Vec<&'a str> {
        let filter = Filter::new(allowed, denied).unwrap();
        tools.iter().copied().filter(|tool| filter.admits(tool)).collect()
    }

    /// PR-4: allow minus deny, and deny wins.
    #[test]
    fn allowed_minus_denied() {
        let tools = ["read_file", "Write_File", "delete_file", "any"];
        let check = |allowed: &[&str], denied: &[&str], expected: &[&str]| {
            assert_eq!(admitted(allowed, denied, &tools), expected, "{allowed:?} minus {denied:?}");
        };
        check(&[], &[], &tools); // Nothing named allows all.
        check(&["*"], &[], &tools);
        check(&["any"], &[], &tools);
        check(&[" ANY "], &[], &tools);
        check(&["read_file"], &[], &["read_file"]);
        check(&[" READ_file\t"], &[], &["read_file"]); // Trimmed, and without case.
        check(&["*_file"], &[], &["read_file", "Write_File", "delete_file"]);
        check(&["*_file"], &["delete*"], &["read_file", "Write_File"]);
        check(&[], &["WRITE*", "any*"], &["read_file", "delete_file"]);
        check(&["read_file"], &["read_file"], &[]); // Deny wins.
        check(&[], &["*"], &[]);
        check(&[], &["any"], &[]);
        check(&["*"], &["**"], &[]);
        check(&[""], &[], &[]); // A list of blanks is not an empty list.
        check(&["", "read_file"], &[" "], &["read_file"]);
        check(&["read"], &[], &[]); // The whole name.
        assert_eq!(admitted(&[], &["delete"], &[" Delete ", "DELETE"]), Vec::<&str>::new());
    }

    /// PR-4: `*` stands for any characters, none among them.
    #[test]
    fn globs() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(admitted(&[pattern], &[], &[name]).len() == 1, expected, "{pattern} {name}");
        };
        for (pattern, name) in [
            ("a*", "a"),
            ("*a", "a"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("*b*", "abc"),
            ("a**c", "ac"),
            ("É*", "éa"),
        ] {
            check(pattern, name, true);
        }
        for (pattern, name) in
            [("a*a", "a"), ("ab*bc", "abc"), ("a*b*c", "acb"), ("*b*", "ac"), ("a.c", "abc"), ("a?", "ab")]
        {
            check(pattern, name, false); // No character is used twice, and `*` is the only wildcard.
        }
        let hostile = "a*".repeat(PATTERN_BYTES_MAX / 2);
        check(&hostile, &"a".repeat(1 << 20), true); // At once: nothing is tried twice.
        check(&format!("{}*b", &hostile[..300]), &"a".repeat(1 << 20), false);
        let long = Filter::new(&["é".repeat(300)], &[] as &[&str]).unwrap_err().to_string();
        assert_eq!(
            long,
            format!("a pattern of 600 bytes, beginning with `{}`: use at most 512", "é".repeat(20))
        );
    }

    /// The same, tried every way.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            (['*', rest @ ..], _) => (0..=name.len()).any(|skip| naive(rest, &name[skip..])),
            ([a, pattern @ ..], [b, name @ ..]) => a == b && naive(pattern, name),
            ([], []) => true,
            _ => false,
        }
    }

    proptest! {
        /// PR-4: the quick matcher agrees with the plain one.
        #[test]
        fn globs_agree_with_the_obvious(pattern in "[ab*]{1,8}", name in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&name));
            prop_assert_eq!(Filter::new(&[&pattern], &[] as &[&str]).unwrap().admits(&name), expected);
        }
    }
}
