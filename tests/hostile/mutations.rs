//! Valid frames, spoiled at random, all to one process. The seed is printed, and taken back as
//! `COLIBRI_SEED`; with `COLIBRI_CHECK=full` there are ten times as many.

use std::io::Write;

use serde_json::json;

use super::child::{Colibri, PING, call, initialize, modern, request};

/// SplitMix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let (one, other) = (self.below(length + 1), self.below(length + 1));
        one.min(other)..one.max(other)
    }
}

const TOKENS: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"\\u0000",
    b"\\ud800",
    b"1e400",
    b"null",
    b"-",
    b"\0",
    b"\xff",
    b"\n",
    b"\r",
    b"\"id\":",
    b"\"method\":",
    b"\"params\":{}",
    b"\"_meta\":{}",
    b"9007199254740993",
    b"[[[[",
    b"\"result\":",
    b"\xef\xbb\xbf",
];

fn mutate(dice: &mut Dice, corpus: &[String]) -> Vec<u8> {
    let mut frame = corpus[dice.below(corpus.len())].clone().into_bytes();
    for _ in 0..=dice.below(3) {
        let at = dice.below(frame.len() + 1);
        match dice.below(7) {
            0 if !frame.is_empty() => {
                let at = dice.below(frame.len());
                frame[at] ^= 1 << dice.below(8);
            }
            1 => drop(frame.drain(dice.range(frame.len()))),
            2 => {
                let again = frame[dice.range(frame.len())].to_vec();
                frame.splice(at..at, again);
            }
            3 => frame.truncate(at),
            4 => {
                let other = &corpus[dice.below(corpus.len())];
                frame.splice(at..at, other.bytes());
            }
            5 => {
                let other = corpus[dice.below(corpus.len())].as_bytes();
                frame.truncate(at);
                frame.extend_from_slice(&other[dice.below(other.len())..]);
            }
            _ => {
                let token = TOKENS[dice.below(TOKENS.len())];
                frame.splice(at..at, token.iter().copied());
            }
        }
    }
    frame
}

/// CO-12, bad input on stdio: it never dies, never answers what is no frame, and answers a ping at the
/// end.
#[test]
fn whatever_is_sent_the_next_ping_is_answered() {
    let seed = std::env::var("COLIBRI_SEED")
        .map_or_else(|_| u64::from(std::process::id()), |seed| seed.parse().unwrap());
    let rounds =
        if std::env::var("COLIBRI_CHECK").is_ok_and(|check| check == "full") { 30_000 } else { 3_000 };
    eprintln!("COLIBRI_SEED={seed} ({rounds} mutations)");
    let corpus = [
        PING.to_owned(),
        initialize("2025-03-26"),
        request(7, "tools/list", &json!({ "cursor": null })),
        call(8, "server_ping"),
        request(
            9,
            "tools/call",
            &json!({ "name": "server_health", "arguments": {}, "_meta": { "progressToken": 1 } }),
        ),
        modern(10, "server/discover", json!({})),
        modern(11, "tools/list", json!({})),
        modern(12, "tools/call", json!({ "name": "server_ping", "arguments": {} })),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8,"reason":"é\u00e9"}}"#
            .to_owned(),
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":"\u0061","method":"tools/list"}]"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","id":-3,"result":{"a":[1,2.5e-3,true,false,null,{"b":"\"\\\/\b\f\n\r\t"}]}}"#
            .to_owned(),
    ];
    let mut colibri = Colibri::start();
    let mut stdin = colibri.take_stdin();
    let writer = std::thread::spawn(move || {
        let mut dice = Dice(seed);
        for _ in 0..rounds {
            let mut frame = mutate(&mut dice, &corpus);
            frame.push(b'\n');
            stdin.write_all(&frame).unwrap();
        }
        // Whatever was left open ends with a newline of its own.
        stdin.write_all(b"\n{\"jsonrpc\":\"2.0\",\"id\":\"the end\",\"method\":\"ping\"}\n").unwrap();
        stdin
    });
    let mut answers = 0;
    while colibri.answer()["id"] != "the end" {
        answers += 1;
    }
    assert!(answers > rounds / 2, "only {answers} answers to {rounds} frames");
    colibri.put_stdin(writer.join().unwrap());
    colibri.finish();
}
