//! `skill://name/path`: the names that the Skills extension gives to skills and their files.

/// What a URI points to: a skill, and a path in its folder, empty for the folder itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The skill's name.
    pub name: String,
    /// From its folder, with `/`.
    pub path: String,
}

const SCHEME: &str = "skill://";

/// The URI of a file or folder of a skill; of the skill's own folder if the path is empty.
pub fn uri(name: &str, path: &str) -> String {
    let mut uri = format!("{SCHEME}{}", encode(name));
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        uri.push('/');
        uri += &encode(segment);
    }
    uri
}

/// What a URI points to. Only a plain path is a target: nothing that leads up, is empty, or hides a
/// separator behind an escape.
pub fn target(uri: &str) -> Option<Target> {
    let segments: Vec<String> = uri.strip_prefix(SCHEME)?.split('/').map(segment).collect::<Option<_>>()?;
    let (name, path) = segments.split_first()?;
    Some(Target { name: name.clone(), path: path.join("/") })
}

fn segment(text: &str) -> Option<String> {
    let decoded = decode(text)?;
    let is_plain = !matches!(&*decoded, "" | "." | "..")
        && !decoded.contains(['/', '\\'])
        && !decoded.chars().any(char::is_control);
    is_plain.then_some(decoded)
}

fn encode(segment: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    segment.bytes().map(byte).collect()
}

fn decode(segment: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                // `from_str_radix` would take a sign.
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                decoded.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b'?' | b'#' => return None,
            _ => decoded.push(byte),
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SU-12: every path comes back from its URI.
    #[test]
    fn a_path_survives_its_uri() {
        for path in ["", "SKILL.md", "references/über uns.md", "a%2fb", "a?b#c", "...", "~/x"] {
            let back = target(&uri("tidy", path)).unwrap();
            assert_eq!((&*back.name, &*back.path), ("tidy", path));
        }
        assert_eq!(uri("tidy", "a b/ü"), "skill://tidy/a%20b/%C3%BC");
    }

    /// SU-12: nothing that leads out of a skill's folder is a target.
    #[test]
    fn a_uri_that_leads_elsewhere_points_to_nothing() {
        for hostile in [
            "skill://tidy/../../etc/passwd",
            "skill://tidy/..",
            "skill://tidy/./SKILL.md",
            "skill://tidy//SKILL.md",
            "skill://tidy/",
            "skill://",
            "skill:///etc/passwd",
            "skill://tidy/%2e%2e/%2E%2E/etc/passwd",
            "skill://tidy/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "skill://tidy/..%5c..%5cetc",
            "skill://tidy/a%00b",
            "skill://tidy/%",
            "skill://tidy/%2",
            "skill://tidy/%+1",
            "skill://tidy/%ff",
            "skill://tidy/SKILL.md?x",
            "skill://tidy/SKILL.md#x",
            "file:///etc/passwd",
            "SKILL://tidy/SKILL.md",
            "",
        ] {
            assert_eq!(target(hostile), None, "{hostile}");
        }
    }
}
