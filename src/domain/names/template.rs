//! Templates of URIs (RFC 6570), as far as a URI has to be recognised as made from one.
//!
//! Owns: that recognition. Only the simple and the reserved expansion of one variable are told apart; any
//! other expression stands for whatever may stand there, because its server knows better.

/// Steps of one comparison. A template that needs more is built to cost, and matches nothing.
const STEPS_MAX: usize = 2_000;

/// Parts of a template. One with more is built to cost, too.
const PARTS_MAX: usize = 64;

/// Of a template that a URI can be made from, how many bytes both have in common literally; else nothing. `{name}`
/// stands for one or more characters other than `/`, `?` and `#`; `{+name}`, `{#name}` and every other expression for
/// any, or none.
///
/// A template that does not say its scheme, such as `{+uri}`, would take every URI there is. It says nothing about whose
/// a resource is, and no URI counts as made from it.
pub fn made_from(uri: &str, template: &str) -> Option<usize> {
    let parts = parts(template)?;
    let literal = |part: &Part<'_>| if let Part::Text(text) = part { text.len() } else { 0 };
    let says_scheme = matches!(parts.first(), Some(Part::Text(text)) if text.contains(&b':'));
    // Without an expression it is a URI, and those are listed as resources.
    let has_expression = parts.iter().any(|part| !matches!(part, Part::Text(_)));
    (says_scheme && has_expression && matches(uri.as_bytes(), &parts, &mut 0))
        .then(|| parts.iter().map(literal).sum())
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Text(&'a [u8]),
    /// One segment of a path.
    Segment,
    Anything,
}

fn parts(template: &str) -> Option<Vec<Part<'_>>> {
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, behind)) = rest.split_once('{') {
        let (expression, behind) = behind.split_once('}')?;
        if !text.is_empty() {
            parts.push(Part::Text(text.as_bytes()));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '%' | '-');
        let is_simple = !expression.is_empty() && expression.chars().all(is_name);
        let part = if is_simple { Part::Segment } else { Part::Anything };
        // Twice anything is anything.
        if !matches!((parts.last(), part), (Some(Part::Anything), Part::Anything)) {
            parts.push(part);
        }
        if parts.len() > PARTS_MAX {
            return None;
        }
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.as_bytes()));
    }
    Some(parts)
}

fn matches(uri: &[u8], parts: &[Part<'_>], steps: &mut usize) -> bool {
    *steps += 1;
    let Some((part, rest)) = parts.split_first() else { return uri.is_empty() };
    match part {
        _ if *steps > STEPS_MAX => false,
        Part::Text(text) => uri.strip_prefix(*text).is_some_and(|uri| matches(uri, rest, steps)),
        Part::Anything if rest.is_empty() => true,
        Part::Segment => {
            let ends = uri.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(uri.len());
            if rest.is_empty() {
                return ends > 0 && ends == uri.len();
            }
            (1..=ends).any(|taken| matches(&uri[taken..], rest, steps))
        }
        Part::Anything => (0..=uri.len()).any(|taken| matches(&uri[taken..], rest, steps)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PR-12: a read is led to the server whose template its URI is made from.
    #[test]
    fn uris_and_their_templates() {
        let check = |uri: &str, template: &str, expected: bool| {
            assert_eq!(made_from(uri, template).is_some(), expected, "{uri} from {template}");
        };
        check("test://template/7/data", "test://template/{id}/data", true);
        check("test://template/a%20b/data", "test://template/{id}/data", true);
        check("test://template//data", "test://template/{id}/data", false);
        check("test://template/7/8/data", "test://template/{id}/data", false);
        check("test://template/7/data/x", "test://template/{id}/data", false);
        check("file:///a/b/c.txt", "file:///{path}", false);
        check("file:///a/b/c.txt", "file:///{+path}", true);
        check("file:///", "file:///{+path}", true);
        check(&format!("file:///{}", "a/".repeat(8_000)), "file:///{+path}", true);
        check("db://a.b/c", "db://{host}.{domain}/{table}", true);
        check("db://a/c", "db://{host}.{domain}/{table}", false);
        check("s://x?q=1&r=2", "s://x{?q,r}", true);
        check("s://x", "s://x{?q,r}", true);
        check("s://é", "s://{name}", true);
        check("s://x", "s://x", false);
        for broken in ["s://{x", "{", ""] {
            check("s://x", broken, false);
        }
        check(&"a".repeat(4_000), &format!("a:{}b", "{+x}".repeat(50)), false); // Soon, if not exact.
    }

    /// PR-12: a template that could be anybody's is nobody's, and one that says more of a URI says so.
    #[test]
    fn a_template_says_whose_a_uri_is() {
        for anybodys in ["{+x}", "{x}", "{+x}y", "{scheme}://{+rest}", "file{+rest}", "{#x}{+y}"] {
            assert_eq!(made_from("file:///a/b.txty", anybodys), None, "{anybodys}");
        }
        assert_eq!(made_from("file:///a/b.txt", "file:{+x}"), Some(5));
        assert_eq!(made_from("file:///a/b.txt", "file:///a/{+x}"), Some(10));
        assert_eq!(made_from("file:///a/b.txt", "file:///a/{name}.txt"), Some(14));
    }
}
