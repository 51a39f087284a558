//! Programs that behave: the runtimes servers are written in start and work in the sandbox.

use std::ffi::OsString;

use colibri::domain::end::End;
use colibri::sandbox::{Policy, Spec, start_under};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{PATIENCE, Villain};

/// Reads a line, starts a process of its own, writes a temporary file, and answers.
const NODE: &str = r#"
const { execFileSync } = require("child_process"), fs = require("fs"), os = require("os"), path = require("path");
const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "x")), "y");
require("readline").createInterface({ input: process.stdin }).on("line", line => {
    fs.writeFileSync(file, line);
    console.log(execFileSync("cat", [file]).toString().toUpperCase());
    fs.rmSync(path.dirname(file), { recursive: true });
    process.exit(0);
});
"#;

const PYTHON: &str = r#"
import asyncio, subprocess, sys, tempfile, threading
line = sys.stdin.readline().strip()
with tempfile.NamedTemporaryFile("w+") as file:
    file.write(line)
    file.flush()
    threads = [threading.Thread(target=lambda: None) for _ in range(20)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    asyncio.run(asyncio.sleep(0))
    print(subprocess.run(["cat", file.name], capture_output=True, text=True).stdout.upper())
"#;

/// SB-3: Node, Python and the shell run under `standard` and `strict`, with what they need to do their
/// work; also within a quarter of the usual memory.
#[tokio::test]
async fn runtimes_start_and_work() {
    let villain = Villain::new();
    let small = colibri::sandbox::policy::Limits { memory_bytes: Some(256 << 20), ..Default::default() };
    let programs: [(&str, &[&str]); 3] =
        [("node", &["-e", NODE]), ("/usr/bin/python3", &["-c", PYTHON]), ("sh", &["-c", "tr a-z A-Z"])];
    for policy in
        [Policy::default(), Policy { limits: small, ..Policy::default() }, Policy::strict(), Policy::off()]
    {
        for (program, words) in programs {
            let arguments = words.iter().map(OsString::from).collect();
            let spec = Spec { program: program.into(), arguments, ..villain.spec(&[]) };
            let mut child = start_under(&spec, &policy).unwrap();
            child.stdin.write_all(b"hello\n").await.unwrap();
            drop(child.stdin);
            let mut said = String::new();
            let read = child.stdout.read_to_string(&mut said);
            tokio::time::timeout(PATIENCE, read).await.expect("in time").unwrap();
            assert_eq!(
                said.trim(),
                "HELLO",
                "{program} under {:?}: {}",
                policy.level,
                child.life.last_words()
            );
            assert_eq!(child.life.how_it_ended().await, End::Exited { code: 0 }, "{program}");
        }
    }
}
