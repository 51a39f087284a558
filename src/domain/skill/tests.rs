//! Files, and what is made of them.

use crate::domain::log::steers;
use proptest::prelude::*;

use super::*;

/// What becomes of a file in the folder `tidy`: the skill's name and description, then every finding
/// as `WEIGHT line: message`.
fn loaded(text: &str) -> String {
    let (skill, findings) = load(text, "tidy");
    told(skill.map_or("-".to_owned(), |skill| format!("{}: {}", skill.name, skill.description)), &findings)
}

fn validated(text: &str) -> String {
    told(String::new(), &validate(text, "tidy"))
}

fn told(skill: String, findings: &[Finding]) -> String {
    let finding = |Finding { weight, line, message }: &Finding| {
        let line = line.map_or(String::new(), |line| format!(" {line}"));
        format!("\n{weight:?}{line}: {message}")
    };
    skill + &findings.iter().map(finding).collect::<String>()
}

fn with(fields: &str) -> String {
    format!("---\nname: tidy\ndescription: Tidies up.\n{fields}\n---\nBody.\n")
}

/// SU-12: every form in which people save a good file.
#[test]
fn a_good_file_is_read_however_it_was_saved() {
    let plain = "---\nname: tidy\ndescription: Tidies up.\n---\nBody.\n";
    let forms = [
        plain.to_owned(),
        format!("\u{feff}{plain}"),
        plain.replace('\n', "\r\n"),
        plain.replace("---", "---  "),
        plain.replace("Tidies up.", "'Tidies up.'"),
        plain.replace("Tidies up.", ">\n  Tidies\n  up."),
        plain.trim_end_matches("\nBody.\n").to_owned(),
    ];
    for text in forms {
        assert_eq!(loaded(&text), "tidy: Tidies up.", "{text:?}");
        assert_eq!(validated(&text), "", "{text:?}");
    }
    assert_eq!(split(plain).unwrap().1, "Body.\n");
}

/// SU-12: what cannot be used is skipped, with the reason and the line.
#[test]
fn a_file_without_name_description_or_yaml_is_no_skill() {
    let check = |text: &str, expected: &str| {
        assert_eq!(loaded(text), format!("-\n{expected}"), "{text:?}");
        assert_eq!(validated(text), format!("\n{expected}"), "{text:?}");
    };
    let begin =
        "Error 1: it does not begin with `---`: the frontmatter, with name and description, is missing";
    check("", begin);
    check("# Tidy\n---\nname: x\n---\n", begin);
    check(
        "---\nname: tidy\ndescription: x\n",
        "Error 1: its frontmatter has no end: write `---` on a line of its own after it",
    );
    check(
        "---\nname: tidy\n---\n",
        "Error: `description` is missing: say what the skill does and when to use it",
    );
    check(
        "---\nname: tidy\ndescription: \"  \"\n---\n",
        "Error 3: `description` is missing: say what the skill does and when to use it",
    );
    check("---\ndescription: x\n---\n", "Error: `name` is missing: give it the name of its folder");
    check("---\n- a\n---\n", "Error 2: its frontmatter is not a list of `key: value` lines");
    check("---\nname: 7\ndescription: x\n---\n", "Error 2: `name` is not a text: put it in quotes");
    check(
        "---\nname: \"ti\\e[31mdy\"\ndescription: x\n---\n",
        "Error 2: the name `ti\\u{1b}[31mdy` has characters that cannot be seen\n\
         Warning 2: the name `ti\\u{1b}[31mdy` differs from its folder `tidy`: make them equal",
    );
    let long = format!("---\nname: tidy\ndescription: {}\n---\n", "x".repeat(FRONTMATTER_BYTES_MAX));
    check(&long, "Error 1: its frontmatter is longer than 65536 bytes");
    for (text, line) in [
        ("---\nname: tidy\ndescription: [unclosed\n---\n", 3),
        ("---\nname: tidy\nname: again\ndescription: x\n---\n", 3),
        ("---\nname: tidy\ndescription: *gone\n---\n", 3),
        ("---\nname: &a tidy\ndescription: *a\n---\n", 3),
    ] {
        let said = loaded(text);
        assert!(said.starts_with("-\nError") && said.contains("is not valid YAML: "), "{said}");
        assert!(said.contains(&format!("Error {line}: ")), "{text:?}: {said}");
    }
}

/// SU-12: the classic mistake is mended once, and told.
#[test]
fn an_unquoted_colon_is_mended() {
    let text = "---\nname: tidy\ndescription: Tidies up. Use when: it is \"untidy\" \\ never\n---\n";
    let mended = "Warning 3: a value with a colon in it is not quoted: put it in quotes";
    assert_eq!(loaded(text), format!("tidy: Tidies up. Use when: it is \"untidy\" \\ never\n{mended}"));
    assert!(!load(text, "tidy").0.unwrap().is_sound, "another reader sees no skill in it");
    assert!(validated(text).contains(mended));
}

/// SU-12: what is merely not as it should be is used, and told.
#[test]
fn what_can_be_tolerated_is_a_warning() {
    let check = |text: &str, expected: &str| {
        let said = loaded(text);
        assert!(!said.starts_with('-') && said.contains(expected), "{text:?}: {said}");
        assert!(validated(text).contains(expected), "{text:?}");
    };
    let named = |name: &str| format!("---\nname: {name}\ndescription: x\n---\n");
    check(&named("tidier"), "Warning 2: the name `tidier` differs from its folder `tidy`: make them equal");
    check(&named("Tidy"), "Warning 2: the name `Tidy` may only have a-z, 0-9 and hyphens");
    check(&named("tidy-"), "the name `tidy-` may not begin or end with a hyphen");
    check(&named("ti--dy"), "the name `ti--dy` may not have two hyphens in a row");
    check(&named(&"x".repeat(65)), "`name` has 65 characters: at most 64");
    let long = "é".repeat(1025);
    check(
        &format!("---\nname: tidy\ndescription: {long}\n---\n"),
        "Warning 3: `description` has 1025 characters: at most 1024",
    );
    check(&with(&format!("compatibility: {}", "x".repeat(501))), "`compatibility` has 501 characters");
    check(&with("compatibility: \"\""), "Warning 4: `compatibility` is empty");
    check(&with("license: 2"), "`license` is not a text");
    check(&with("metadata: 1"), "`metadata` is not a list");
    check(&with("metadata:\n  a: 1"), "`metadata.a` is not a text");
    check(
        &with("metadata:\n  io.modelcontextprotocol/x: y"),
        "keys that begin with `io.modelcontextprotocol/` are reserved",
    );
    check(&with("capabilities: 7"), "`capabilities` is not a list of words");
    check(&with("version: [1]"), "`version` is neither a text nor a number");
}

/// SU-12: fields beyond the format are used and kept, and only whoever validates hears of them.
#[test]
fn fields_beyond_the_format_are_kept() {
    let text = with("version: 1.10 # soon two\ncapabilities: [read, write]\ngreekLetter: η\nyes: no");
    let skill = load(&text, "tidy").0.unwrap();
    assert!(skill.is_sound);
    assert_eq!(skill.version.as_deref(), Some("1.10"));
    assert_eq!(skill.capabilities, ["read", "write"]);
    assert_eq!(skill.frontmatter["greekLetter"], "η");
    assert_eq!(skill.frontmatter["yes"], "no", "YAML 1.2 knows true and false alone");
    assert_eq!(loaded(&text), "tidy: Tidies up.");
    assert!(validated(&text).contains("Strict 6: `greekLetter` is no field of the Agent Skills format"));

    let inside = with("metadata:\n  version: \"2.0\"\n  capabilities: read audit");
    let skill = load(&inside, "tidy").0.unwrap();
    assert_eq!((skill.version.as_deref(), skill.capabilities.len()), (Some("2.0"), 2));
    assert_eq!(validated(&inside), "");
}

/// SU-12: a project's folders come before the configured ones, those before the user's.
#[test]
fn the_folders_are_looked_through_in_order() {
    let places = Places { project: Some("p".into()), configured: vec!["c".into()], home: Some("h".into()) };
    let roots: Vec<String> = places.roots().iter().map(|root| root.path.display().to_string()).collect();
    assert_eq!(
        roots.join(" "),
        "p/.colibri/skills p/.agents/skills p/.claude/skills c h/.colibri/skills h/.agents/skills h/.claude/skills"
    );
    assert!(places.roots().iter().all(|root| (root.source == Source::Project) == root.within.is_some()));
}

/// SU-12: the digest is what a shell computes: `sha256sum a b | sha256sum`.
#[test]
fn the_digest_of_a_skill_can_be_made_with_a_shell() {
    let of = |text: &str| Hash(Sha256::digest(text).into());
    let whole = digest([("a", of("1")), ("b", of("2"))]);
    assert_eq!(whole, of(&format!("{}  a\n{}  b\n", of("1"), of("2"))));
}

proptest! {
    /// SU-12: no text breaks the reader, and no name it gives out hides anything.
    #[test]
    fn any_text_is_read_or_refused(text in "(---\n)?([a-z]{1,8}:? ?[^\u{0}]{0,20}\n){0,6}(---\n)?.{0,40}") {
        let (skill, findings) = load(&text, "tidy");
        prop_assert_eq!(skill.is_none(), findings.iter().any(|finding| finding.weight == Weight::Error));
        if let Some(skill) = skill {
            prop_assert!(!skill.name.chars().any(steers) && !skill.description.is_empty());
        }
    }
}
