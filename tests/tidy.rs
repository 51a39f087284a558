//! The house rules a compiler cannot hold: which layer may name which, what is pure, what is small
//! enough to read, and which test shows which row of the contract.
//!
//! Works on the text of the files alone, so that it needs no build and stays simple enough to trust.
//! Every check collects all it finds and reports them together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The architecture, as data: a layer, and the layers it may name. `ARCHITECTURE.md` shows the same.
const MAY_USE: &[(&str, &[&str])] = &[
    ("cli", &["app", "serve", "call", "tools", "fleet", "store", "sandbox", "mcp", "config", "domain"]),
    ("app", &["serve", "call", "tools", "fleet", "store", "sandbox", "mcp", "config", "domain"]),
    ("serve", &["call", "mcp", "domain"]),
    ("call", &["tools", "fleet", "store", "mcp", "domain"]),
    ("tools", &["store", "domain"]),
    ("fleet", &["sandbox", "mcp", "domain"]),
    ("store", &["domain"]),
    ("sandbox", &["domain"]),
    ("mcp", &["domain"]),
    ("config", &["domain"]),
    ("domain", &[]),
];

/// Ways out of a pure function.
const EFFECTS: &[&str] = &[
    "tokio::",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "::now()",
    "rusqlite",
    "getrandom",
    "rustix",
];

/// Ways to a network.
const NETWORK: &[&str] = &[
    "std::net",
    "tokio::net",
    "os::unix::net",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "hyper",
    "reqwest",
    "axum",
    "tungstenite",
    "http::",
];

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;

/// What is longer than it should be, by file and function (or file alone), and how long it may be.
/// The table only ever shrinks.
const TOO_LONG: &[(&str, &str, usize)] = &[];

#[test]
fn no_layer_imports_one_above_it() {
    let mut faults = Faults::default();
    for file in sources() {
        let Some(layer) = file.layer() else { continue };
        let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| *name == layer) else {
            faults.add(&file, 0, &format!("`{layer}` is no layer of the table"));
            continue;
        };
        for (number, line) in file.code() {
            if line.contains("crate::{") {
                faults.add(&file, number, "write `crate::<layer>::…`, so that the layer can be read");
            }
            // `super::store` is another layer too, unless this one has a module of that name.
            let above = names_after(line, "super::").filter(|name| !file.has_in_its_layer(name));
            for other in names_after(line, "crate::").chain(above) {
                let is_layer = MAY_USE.iter().any(|(name, _)| *name == other);
                if is_layer && other != layer && !may_use.contains(&other) {
                    faults.add(&file, number, &format!("`{layer}` may not use `{other}`"));
                }
            }
        }
    }
    faults.none();
}

#[test]
fn the_architecture_page_shows_the_same_table() {
    let page = read("ARCHITECTURE.md");
    let rows: Vec<(Vec<String>, String)> = table(&page, &["layer", "may use"])
        .into_iter()
        .map(|cells| (words(&cells[0]), cells[1].replace('`', "")))
        .collect();
    let named: Vec<&str> = rows.iter().flat_map(|(layers, _)| layers.iter().map(String::as_str)).collect();
    let mut shown: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (layers, uses) in &rows {
        for layer in layers.iter().filter(|layer| *layer != "main") {
            // "everything below" is what the rest of the table names.
            let below = named.iter().skip_while(|name| *name != layer).skip(1).map(ToString::to_string);
            let uses = if uses.starts_with("everything below") {
                below.collect()
            } else {
                words(uses).into_iter().filter(|word| word != "nothing").collect()
            };
            shown.insert(layer, uses);
        }
    }
    let held: BTreeMap<&str, BTreeSet<String>> = MAY_USE
        .iter()
        .map(|(layer, uses)| (*layer, uses.iter().map(ToString::to_string).collect()))
        .collect();
    assert_eq!(shown, held, "ARCHITECTURE.md (left) and tests/tidy.rs (right) must show one architecture");
}

#[test]
fn the_domain_is_pure() {
    let mut faults = Faults::default();
    for file in sources().iter().filter(|file| file.layer() == Some("domain")) {
        faults.add_each(file, EFFECTS, "is an effect");
    }
    faults.none();
}

/// T-25: what a call passes through over stdio opens no socket and imports no HTTP.
#[test]
fn the_stdio_path_has_no_network() {
    let mut faults = Faults::default();
    for file in sources() {
        if ["src/call/", "src/tools/", "src/serve/stdio"].iter().any(|start| file.path.starts_with(start)) {
            faults.add_each(&file, NETWORK, "is a way to a network");
        }
    }
    faults.none();
}

#[test]
fn every_module_opens_by_saying_what_it_is() {
    let mut faults = Faults::default();
    for file in sources() {
        if !file.text.starts_with("//! ") {
            faults.add(&file, 1, "begin with `//!`: what this owns, uses, must not know");
        } else if file.text.starts_with("//! To be written") {
            faults.add(&file, 1, "still to be written");
        }
    }
    faults.none();
}

#[test]
fn functions_and_files_fit_the_eye() {
    let mut long = Vec::new();
    for file in sources() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            long.push((file.path.clone(), String::new(), lines));
        }
        long.extend(
            functions(&file)
                .into_iter()
                .filter(|(_, lines)| *lines > FUNCTION_LINES_MAX)
                .map(|(name, lines)| (file.path.clone(), name, lines)),
        );
    }
    let mut faults = Faults::default();
    for (path, name, lines) in &long {
        let allowed = TOO_LONG.iter().find(|(file, function, _)| file == path && function == name);
        if allowed.is_none_or(|(_, _, most)| lines > most) {
            faults.0.push(format!("{path}: {name} has {lines} lines"));
        }
    }
    for (path, name, most) in TOO_LONG {
        if !long.iter().any(|(file, function, lines)| file == path && function == name && lines == most) {
            faults.0.push(format!("{path}: {name} is no longer {most} lines: tighten the table"));
        }
    }
    faults.none();
}

/// A test that does not run shows nothing, and one that sleeps shows it sometimes.
#[test]
fn no_test_is_ignored_or_sleeps() {
    let mut faults = Faults::default();
    for file in rust_files().iter().filter(|file| file.path != "tests/tidy.rs") {
        faults.add_each(
            file,
            &["#[ignore"],
            "runs nowhere: make it short, or let COLIBRI_CHECK decide how long",
        );
        if file.path.starts_with("tests/") {
            faults.add_each(
                file,
                &["thread::sleep", "time::sleep("],
                "waits for nothing: wait for a condition",
            );
        }
    }
    faults.none();
}

/// CO-16, CO-17: every row that is built is shown by a test, the 26 categories of 001 §8 among them.
#[test]
fn every_built_row_of_the_contract_is_cited_by_a_test() {
    let contract = contract();
    let cited = citations();
    let mut faults = Faults::default();
    for (id, row) in &contract {
        if row.built && !cited.contains_key(id) {
            faults.0.push(format!("docs/contract.md: {id} is built, and no test says `/// {id}: …`"));
        }
    }
    for (id, places) in &cited {
        if !contract.contains_key(id) {
            faults.0.push(format!("{}: docs/contract.md has no row {id}", places.join(", ")));
        }
    }
    let categories: Vec<_> = contract.keys().filter(|id| id.starts_with("T-")).collect();
    assert_eq!(categories.len(), 26, "001 §8 has 26 categories: {categories:?}");
    faults.none();
}

/// CO-16: a test that the page names for a category exists, and says so itself.
#[test]
fn the_tests_the_contract_names_exist() {
    let cited = citations();
    let mut faults = Faults::default();
    for (id, row) in contract() {
        for name in row.shown_by {
            let end = format!(": {name}");
            if !cited.get(&id).is_some_and(|tests| tests.iter().any(|test| test.ends_with(&end))) {
                faults.0.push(format!("docs/contract.md: {id} names `{name}`, but no such test cites {id}"));
            }
        }
    }
    faults.none();
}

/// CO-17: the requirements that 003 wants traced, each to rows that exist.
#[test]
fn the_requirements_of_003_are_mapped_to_rows() {
    let page = read("docs/contract.md");
    let contract = contract();
    let mapped = table(&page, &["requirement", "rows"]);
    for requirement in ["FR-025-004", "FR-025-007", "FR-025-009", "FR-025-011"] {
        let row = mapped.iter().find(|cells| cells[0].starts_with(requirement));
        let rows = ids(&row.unwrap_or_else(|| panic!("{requirement} is not mapped"))[1]);
        assert!(!rows.is_empty(), "{requirement} is mapped to nothing");
        for id in rows {
            assert!(contract.contains_key(&id), "{requirement} is mapped to {id}, which does not exist");
        }
    }
}

/// Anyone's clone must work: nothing may point at the machine, or the mirror, it was written on.
#[test]
fn nothing_points_at_one_machine() {
    // In pieces, so that this file may be read by its own test.
    let folders = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(|parts| parts.concat());
    let hosts = [
        ["registry.npm", "js"],
        ["pypi", ".org"],
        ["python", "hosted"],
        ["artifact", "ory"],
        ["index.", "crates.io"],
    ]
    .map(|parts| parts.concat());
    let mut faults = Faults::default();
    for file in files("") {
        for (number, line) in file.lines() {
            // A path of another machine may follow a scheme or stand in a longer path.
            let machine = folders.iter().any(|folder| starts_a_path(line, folder));
            if machine || hosts.iter().any(|host| line.contains(host.as_str())) {
                faults.add(&file, number, "names a machine's folder or a registry's host");
            }
        }
        if file.path.ends_with("package-lock.json") && file.text.contains("\"resolved\"") {
            faults.add(&file, 0, "`resolved` names a host: set omit-lockfile-registry-resolved");
        }
    }
    faults.none();
}

/// The quick half of `cargo deny`, which runs in `./check full`.
#[test]
fn dependencies_come_from_one_place_and_none_is_banned() {
    let lock = read("Cargo.lock");
    let deny = read("deny.toml");
    for source in lock.lines().filter_map(|line| line.strip_prefix("source = ")) {
        let address = source.trim_matches('"').trim_start_matches("registry+");
        assert!(deny.contains(&format!("\"{address}\"")), "{source} is not allowed by deny.toml");
    }
    for banned in deny.lines().filter_map(|line| line.trim().strip_prefix("{ crate = ")) {
        let name = banned.split('"').nth(1).expect("a crate's name in quotes");
        assert!(!lock.contains(&format!("name = \"{name}\"\n")), "{name} is banned: {banned}");
    }
}

/// What was found, all of it, so that one run tells everything.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, file: &File, line: usize, what: &str) {
        self.0.push(format!("{}:{line}: {what}", file.path));
    }

    fn add_each(&mut self, file: &File, forbidden: &[&str], what: &str) {
        for (number, line) in file.code() {
            for word in forbidden.iter().filter(|word| line.contains(**word)) {
                self.add(file, number, &format!("`{word}` {what}"));
            }
        }
    }

    #[track_caller]
    fn none(self) {
        assert!(self.0.is_empty(), "{} to mend:\n{}", self.0.len(), self.0.join("\n"));
    }
}

struct File {
    /// From the project's root, with `/`.
    path: String,
    text: String,
}

impl File {
    /// The folder below `src/`, if there is one: `main.rs` and `lib.rs` are in no layer.
    fn layer(&self) -> Option<&str> {
        self.path.strip_prefix("src/")?.split_once('/').map(|(layer, _)| layer)
    }

    fn has_in_its_layer(&self, module: &str) -> bool {
        let folder = root().join("src").join(self.layer().unwrap_or_default());
        folder.join(module).exists() || folder.join(format!("{module}.rs")).exists()
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// A row of the contract.
struct Row {
    built: bool,
    shown_by: Vec<String>,
}

fn contract() -> BTreeMap<String, Row> {
    let page = read("docs/contract.md");
    let rows = table(&page, &["id", "must hold", "status"]).into_iter().map(|cells| {
        let built = match cells[2].as_str() {
            "built" => true,
            "later" => false,
            other => panic!("docs/contract.md: {} is `{other}`, neither built nor later", cells[0]),
        };
        (cells[0].clone(), Row { built, shown_by: Vec::new() })
    });
    let categories = table(&page, &["id", "must be shown", "by"])
        .into_iter()
        .map(|cells| (cells[0].clone(), Row { built: true, shown_by: words(&cells[2]) }));
    rows.chain(categories).collect()
}

/// The ids in the doc comments of tests, and the tests they stand on, as `path: name`.
fn citations() -> BTreeMap<String, Vec<String>> {
    let mut cited: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files() {
        let mut above = Vec::new();
        let mut is_test = false;
        for line in file.text.lines().map(str::trim) {
            if line.starts_with("///") {
                above.extend(ids(line));
            } else if line.starts_with("#[") {
                is_test |= line.contains("test");
            } else {
                if let Some(name) = names_after(line, "fn ").next().filter(|_| is_test) {
                    for id in &above {
                        cited.entry(id.clone()).or_default().push(format!("{}: {name}", file.path));
                    }
                }
                above.clear();
                is_test = false;
            }
        }
    }
    cited
}

/// Every id in a text, but not one inside a longer word.
fn ids(text: &str) -> Vec<String> {
    text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '-')
        .filter(|word| {
            word.split_once('-').is_some_and(|(kind, number)| {
                ["BR", "CO", "SU", "SB", "PR", "T"].contains(&kind)
                    && !number.is_empty()
                    && number.chars().all(|sign| sign.is_ascii_digit())
            })
        })
        .map(ToOwned::to_owned)
        .collect()
}

/// The rows below the table heads that read so, as trimmed cells.
fn table(page: &str, head: &[&str]) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        // A `\|` inside a cell is a sign, not a border.
        let inner = inner.replace("\\|", "\u{0}");
        Some(inner.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
    };
    let mut rows = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match cells(line) {
            None => inside = false,
            Some(row) if row == head => inside = true,
            Some(row) if inside && !row[0].starts_with("---") => {
                assert_eq!(row.len(), head.len(), "a row of {head:?} has too many or too few cells: {line}");
                rows.push(row);
            }
            Some(_) => {}
        }
    }
    assert!(!rows.is_empty(), "no table with the head {head:?}");
    rows
}

/// Names in a list for people: `a, b` or `a → b →`.
fn words(list: &str) -> Vec<String> {
    list.split([',', '→', '`']).map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// The identifiers that follow a prefix in a line.
fn names_after<'line>(line: &'line str, prefix: &str) -> impl Iterator<Item = &'line str> {
    line.split(prefix).skip(1).map(|rest| {
        let end = rest.find(|sign: char| !sign.is_alphanumeric() && sign != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

/// Whether an absolute path that begins so stands in the line; `src/home/` and `~/work/` do not count.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|sign| !sign.is_alphanumeric() && !"~._-}/*".contains(sign))
    })
}

/// Each function with its length, from `fn` to the brace that rustfmt puts below it.
fn functions(file: &File) -> Vec<(String, usize)> {
    const QUALIFIERS: &[&str] = &["async", "const", "unsafe", "extern"];
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some((before, after)) = line.split_once("fn ") else { continue };
        if !before.split_whitespace().all(|word| QUALIFIERS.contains(&word) || word.starts_with("pub")) {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |line: &&str| match line.strip_prefix(indent) {
            Some(rest) => rest.starts_with('}') || (rest.starts_with(')') && rest.ends_with(';')),
            None => false,
        };
        let one_line = line.ends_with('}') || line.ends_with(';');
        let below = if one_line { 0 } else { lines[start..].iter().position(ends).unwrap_or(0) };
        found.push((after.split(['(', '<']).next().unwrap_or_default().to_owned(), below + 1));
    }
    found
}

fn sources() -> Vec<File> {
    let sources: Vec<File> = rust_files().into_iter().filter(|file| file.path.starts_with("src/")).collect();
    assert!(!sources.is_empty(), "there is something to look at");
    sources
}

fn rust_files() -> Vec<File> {
    files(".rs")
        .into_iter()
        .filter(|file| file.path.starts_with("src/") || file.path.starts_with("tests/"))
        .collect()
}

/// Every text file of the project with that ending: what git tracks, plus what it soon will.
fn files(ending: &str) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort();
    found
        .into_iter()
        .filter_map(|path| {
            let name = path.strip_prefix(root()).ok()?.to_str()?.to_owned();
            // What is no text (an image, a database) has no line to complain about.
            let text = if name.ends_with(ending) { fs::read_to_string(&path).ok()? } else { return None };
            Some(File { path: name, text })
        })
        .collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    const NOT_OURS: &[&str] = &[".git", ".cache", "target", "node_modules", "__pycache__"];
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let path = entry.expect("an entry of a folder can be read").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            walk(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
