//! Documentation is run: every ```console block of a page, in order, in one fresh home.
//!
//! `$ command` is run by a shell; `? N` right after it is the exit code it must have (0 if absent); what
//! follows is its output, stdout and stderr together, where `[..]` stands for anything within a line.

use std::path::Path;
use std::process::Command;

struct Step {
    line: usize,
    command: String,
    code: i32,
    output: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ if line.starts_with("$ ") => {
                steps.push(Step { line: number, command: line[2..].to_owned(), code: 0, output: Vec::new() });
            }
            _ => {
                let step = steps.last_mut().expect("a block begins with a command");
                match line.strip_prefix("? ") {
                    Some(code) => step.code = code.parse().expect("an exit code"),
                    None => step.output.push(line.to_owned()),
                }
            }
        }
    }
    steps
}

/// Whether a line fits a pattern in which `[..]` stands for anything.
fn fits(pattern: &str, line: &str) -> bool {
    let Some((head, rest)) = pattern.split_once("[..]") else { return pattern == line };
    let Some(line) = line.strip_prefix(head) else { return false };
    (0..=line.len()).filter(|at| line.is_char_boundary(*at)).any(|at| fits(rest, &line[at..]))
}

/// Runs a page's blocks with colibri on the path, this source in `$SOURCE`, and nothing of the machine's
/// own configuration.
pub(crate) fn run_page(page: &str) {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("the page is there");
    let home = tempfile::tempdir().expect("a home");
    let program =
        Path::new(env!("CARGO_BIN_EXE_colibri")).parent().expect("it lies in a folder").display().to_string();
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{page} has commands to run");
    for Step { line, command, code, output } in steps {
        let ran = Command::new("sh")
            .args(["-c", &format!("({command}) 2>&1")])
            .current_dir(home.path())
            .env_clear()
            .envs(crate::support::measured())
            .env("HOME", home.path())
            .env("SOURCE", env!("CARGO_MANIFEST_DIR"))
            .env("PATH", format!("{program}:/usr/local/bin:/usr/bin:/bin"))
            .output()
            .expect("a shell");
        let shown = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.status.code(), Some(code), "{page}:{line}: `{command}` said:\n{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        let matches = lines.len() == output.len()
            && output.iter().zip(&lines).all(|(pattern, line)| fits(pattern, line));
        assert!(
            matches,
            "{page}:{line}: `{command}` said:\n{shown}\nand the page says:\n{}",
            output.join("\n")
        );
    }
}

/// SU-10, CO-9: the README's tour, as a newcomer types it.
#[test]
fn the_readmes_tour_works() {
    run_page("README.md");
}

/// SU-12: the page about skills, as somebody with a first skill types it.
#[test]
fn the_page_about_skills_works() {
    run_page("docs/skills.md");
}

/// SU-13: the page about a running colibri, as somebody types it who looks after one.
#[test]
fn the_page_about_operating_works() {
    run_page("docs/operating.md");
}
