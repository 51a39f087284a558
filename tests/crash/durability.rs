//! The three levels, as the operating system sees them: which calls force something to disk before
//! they are answered.

use super::support::{Client, Place};

/// SU-4, CO-6: `admission` forces the enter record to disk before every answer, `strict` the exit too,
/// `relaxed` neither.
#[test]
fn a_call_is_forced_to_disk_as_its_level_says() {
    let at_least = |least: usize| move |syncs: &[usize]| syncs.iter().all(|count| *count >= least);
    check("admission", at_least(1));
    check("strict", at_least(2));
    check("relaxed", |syncs| syncs.iter().sum::<usize>() < syncs.len() / 4);
}

/// How often the log was forced to disk between each answer and the one before it.
#[track_caller]
fn check(level: &str, is_expected: impl Fn(&[usize]) -> bool) {
    let place = Place::new().durability(level);
    place.recover();
    let trace = place.folder.join("trace");
    let strace = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o", trace.to_str().unwrap()];
    let mut client = Client::start(place.colibri_under(&strace, &["serve"]), "traced");
    for _ in 0..40 {
        assert!(client.call("server_ping").is_ok());
    }
    assert!(client.end().0.success());
    let trace = std::fs::read_to_string(&trace).unwrap();
    let is_sync = |line: &&str| line.contains("sync(") && line.contains("-wal>");
    let between: Vec<&str> = trace.split(r#""{\"jsonrpc\""#).collect();
    let syncs: Vec<usize> = between.iter().map(|part| part.lines().filter(is_sync).count()).collect();
    assert!(syncs.len() > 40, "an answer to hello and to each call was seen");
    // The first call also makes the log's file, and after the last there is the end of the process.
    let of_calls = &syncs[2..syncs.len() - 1];
    assert!(is_expected(of_calls), "{level}: syncs before each answer: {of_calls:?}");
}
