//! A server's `envFile`: lines of `NAME=value`.
//!
//! Owns: what such a file may look like, and complaints that name a line and never show what is in it.
//! Must not know: whose file it is, or what else is in a server's environment.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::domain::merkle::Hash;

use super::files::read_regular;
use super::problem::Problem;
use super::secret::Secret;

/// Several times what an operating system lets a program start with is of no use in one file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// More variables than any server knows.
const LINES_MAX: usize = 1000;

/// The variables of a file. `place` is where it is named, for a file that is not there.
pub(super) fn read(path: &Path, place: String) -> Result<BTreeMap<String, Secret>, Problem> {
    let bytes = match read_regular(path, FILE_BYTES_MAX) {
        Ok((bytes, _)) => bytes,
        Err(error) => {
            let message = format!("`envFile`: {} cannot be read: {error}", path.display());
            return Err(Problem::new(place, message, "create it, mend its permissions, or remove `envFile`"));
        }
    };
    let broken = |message: String, remedy: &str| Problem::of_file(path, message, remedy);
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("longer than {FILE_BYTES_MAX} bytes");
        return Err(broken(message, "an `envFile` is shorter; is this the right file?"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let message = format!("not valid UTF-8 at byte {}", error.utf8_error().valid_up_to());
        broken(message, "save it as UTF-8")
    })?;
    parse(&text).map_err(|(line, message)| {
        Problem::new(format!("{}:{line}", path.display()), message, "write `NAME=value`, one a line")
    })
}

/// Tells these variables from others.
pub(super) fn digest(variables: &BTreeMap<String, Secret>) -> Hash {
    let mut digest = Sha256::new();
    for (name, value) in variables {
        // Neither has a zero in it: that would be no variable.
        digest.update(format!("{name}\0{}\0", value.expose()));
    }
    Hash(digest.finalize().into())
}

/// The variables of a text; of a name that is given twice the last one counts, as in a shell. On a mistake
/// its line, counted from 1, and what is wrong with it.
fn parse(text: &str) -> Result<BTreeMap<String, Secret>, (usize, String)> {
    let mut variables = BTreeMap::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        if number > LINES_MAX {
            return Err((number, format!("more than {LINES_MAX} lines")));
        }
        let (name, value) = match variable(line) {
            Ok(Some(variable)) => variable,
            Ok(None) => continue,
            Err(wrong) => return Err((number, wrong.to_owned())),
        };
        variables.insert(name.to_owned(), Secret(value));
    }
    Ok(variables)
}

fn variable(line: &str) -> Result<Option<(&str, String)>, &'static str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.contains('\0') {
        return Err("a NUL character, which no environment holds");
    }
    let line = match line.strip_prefix("export") {
        Some(rest) if rest.starts_with(char::is_whitespace) => rest.trim_start(),
        _ => line,
    };
    let (name, value) = line.split_once('=').ok_or("there is no `=`")?;
    let name = name.trim_end();
    if !is_name(name) {
        return Err("what stands before `=` is no name: letters, digits, `_`, `.` and `-`, no digit first");
    }
    let value = value.trim_start();
    Ok(Some((
        name,
        match value.chars().next() {
            Some(quote @ ('"' | '\'')) => quoted(&value[1..], quote)?,
            _ => bare(value).to_owned(),
        },
    )))
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

/// Up to a comment. A `#` within a word belongs to the word.
fn bare(value: &str) -> &str {
    let is_comment = |at: &usize| *at == 0 || value[..*at].ends_with(char::is_whitespace);
    let end = value.match_indices('#').map(|(at, _)| at).find(is_comment);
    value[..end.unwrap_or(value.len())].trim_end()
}

/// What stands between quotes; in double ones a backslash speaks.
fn quoted(text: &str, quote: char) -> Result<String, &'static str> {
    let mut value = String::new();
    let mut letters = text.chars();
    loop {
        match letters.next() {
            None => {
                return Err("a quote is not closed on its line; within double quotes `\\n` is a new line");
            }
            Some(letter) if letter == quote => break,
            Some('\\') if quote == '"' => match letters.next() {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some(letter @ ('"' | '\\' | '$' | '`')) => value.push(letter),
                Some(letter) => value.extend(['\\', letter]),
                None => value.push('\\'),
            },
            Some(letter) => value.push(letter),
        }
    }
    let rest = letters.as_str();
    let is_comment = rest.starts_with(char::is_whitespace) && rest.trim_start().starts_with('#');
    if rest.trim().is_empty() || is_comment { Ok(value) } else { Err("something follows the closing quote") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_people_write_them() {
        for (line, expected) in [
            ("A=1", Some(("A", "1"))),
            ("  export  A = 1  ", Some(("A", "1"))),
            ("export=1", Some(("export", "1"))),
            ("exported=1", Some(("exported", "1"))),
            ("A=", Some(("A", ""))),
            ("A=# all comment", Some(("A", ""))),
            ("A=b#c # d", Some(("A", "b#c"))),
            ("A=b=c", Some(("A", "b=c"))),
            (r"A=C:\new", Some(("A", r"C:\new"))),
            ("A=${B}", Some(("A", "${B}"))),
            (r#"A="b # c" # d"#, Some(("A", "b # c"))),
            (r#"A="x\ny\t\"\\\$\q""#, Some(("A", "x\ny\t\"\\$\\q"))),
            (r#"A='x\n"y"'"#, Some(("A", r#"x\n"y""#))),
            ("A=''", Some(("A", ""))),
            ("npm.config-x=1", Some(("npm.config-x", "1"))),
            ("", None),
            (" \t ", None),
            (" # A=1", None),
        ] {
            let expected = expected.map(|(name, value)| (name, value.to_owned()));
            assert_eq!(variable(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        for line in
            ["hunter2", "=hunter2", "A B=hunter2", "1A=hunter2", "A=\"hunter2", "A='hunter2'x", "A=\0"]
        {
            let (number, wrong) = parse(&format!("OK=1\r\n\n{line}")).unwrap_err();
            assert_eq!(number, 3, "{line:?}");
            assert!(!wrong.contains("hunter2") && !wrong.is_empty(), "{wrong}");
        }
        let many = "A=1\n".repeat(LINES_MAX);
        assert!(parse(&many).is_ok());
        assert_eq!(parse(&(many + "#")).unwrap_err(), (1001, "more than 1000 lines".to_owned()));
    }

    #[test]
    fn the_last_of_one_name_counts() {
        let variables = parse("\u{feff}A=1\nB=2\nA=3").expect("sound lines");
        let shown: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(shown, [("A", "3"), ("B", "2")]);
    }
}
