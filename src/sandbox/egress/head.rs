//! The head of a request to the proxy: read within bounds, and understood in two forms only.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use super::hosts::Target;

/// The longest head. Cookies and tokens fit; whoever sends more has something else in mind.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;

/// A head that takes longer to arrive is given up.
pub(super) const HEAD_WAIT: Duration = Duration::from_secs(10);

const END: &[u8] = b"\r\n\r\n";

/// Headers that are between a client and its proxy, and go no further.
const OWN_HEADERS: [&str; 5] =
    ["proxy-connection", "proxy-authorization", "connection", "keep-alive", "host"];

/// What a client asks of the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) target: Target,
    /// What the target is sent first; nothing of a tunnel.
    pub(super) forwarded: Option<String>,
}

/// What a client is told instead of what it asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) why: String,
}

impl Answer {
    pub(super) fn new(status: &'static str, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    /// The whole answer, as it is sent.
    pub(super) fn text(&self) -> String {
        let Self { status, why } = self;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{why}\n",
            why.len() + 1
        )
    }
}

/// Reads a head. Returns it, and what came after it. Nothing if the client left without a word.
pub(super) async fn read(
    client: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(Vec<u8>, BytesMut)>, Answer> {
    let mut seen = BytesMut::with_capacity(4 << 10);
    let arriving = async {
        loop {
            // The end may have come in two parts.
            let from = seen.len().saturating_sub(END.len() - 1);
            match client.read_buf(&mut seen).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Ok(None),
            }
            if let Some(at) = memchr::memmem::find(&seen[from..], END) {
                let head = seen.split_to(from + at + END.len());
                return if head.len() > HEAD_BYTES_MAX { Err(()) } else { Ok(Some(head.to_vec())) };
            }
            if seen.len() > HEAD_BYTES_MAX {
                return Err(());
            }
        }
    };
    match timeout(HEAD_WAIT, arriving).await {
        Ok(Ok(head)) => Ok(head.map(|head| (head, seen))),
        Ok(Err(())) => Err(Answer::new(
            "431 Request Header Fields Too Large",
            format!("colibri: a request's head may have {HEAD_BYTES_MAX} bytes; send less"),
        )),
        Err(_) => Err(Answer::new("408 Request Timeout", "colibri: the head of the request did not arrive")),
    }
}

/// Understands a head: a tunnel (`CONNECT host:port`), or plain HTTP (`GET http://host/path`).
pub(super) fn understand(head: &[u8]) -> Result<Asked, Answer> {
    let wrong = |why: &str| Answer::new("400 Bad Request", format!("colibri: {why}"));
    let text = std::str::from_utf8(head).map_err(|_| wrong("the head is no text"))?;
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let first = lines.next().unwrap_or_default();
    let headers: Vec<&str> = lines.collect();
    // What two readers could split in two ways.
    let is_unclear = |line: &&str| {
        line.starts_with([' ', '\t']) || line.contains(['\r', '\n', '\0']) || !line.contains(':')
    };
    if first.contains(['\r', '\n', '\0']) || headers.iter().any(is_unclear) {
        return Err(wrong("the head has a line that can be read in two ways"));
    }
    let words: Vec<&str> = first.split(' ').collect();
    let [method, address, version @ ("HTTP/1.1" | "HTTP/1.0")] = words[..] else {
        return Err(wrong("this is an HTTP/1.1 proxy, and that was no request to it"));
    };
    if method == "CONNECT" {
        let target = Target::parse(address, None).ok_or_else(|| wrong("CONNECT takes host:port"))?;
        return Ok(Asked { target, forwarded: None });
    }
    let (authority, path) = plain(address)
        .ok_or_else(|| wrong("this is a proxy: ask for http://host/path, or CONNECT host:port"))?;
    let target = Target::parse(authority, Some(80)).ok_or_else(|| wrong("the address has no host"))?;
    // The host that was judged is the one that is told, and there is one request on this connection.
    let mut forwarded = format!("{method} {path} {version}\r\nHost: {authority}\r\nConnection: close\r\n");
    for header in headers {
        let name = header.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !OWN_HEADERS.contains(&name.as_str()) {
            forwarded.push_str(header);
            forwarded.push_str("\r\n");
        }
    }
    forwarded.push_str("\r\n");
    Ok(Asked { target, forwarded: Some(forwarded) })
}

/// The authority and the rest of an address of plain HTTP.
fn plain(address: &str) -> Option<(&str, String)> {
    let scheme = address.get(..7)?;
    let rest = scheme.eq_ignore_ascii_case("http://").then(|| &address[7..])?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // A user name could make another host look like this one.
    (!authority.is_empty() && !authority.contains('@')).then_some((authority, path))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn asked(head: &str) -> Result<(String, Option<String>), &'static str> {
        let asked = understand(head.as_bytes()).map_err(|answer| answer.status)?;
        Ok((asked.target.to_string(), asked.forwarded))
    }

    #[test]
    fn two_forms_are_understood() {
        let tunnel = asked("CONNECT Example.com:443 HTTP/1.1\r\nHost: other\r\n\r\n");
        assert_eq!(tunnel, Ok(("example.com:443".to_owned(), None)));
        let v6 = asked("CONNECT [::1]:443 HTTP/1.1\r\n\r\n");
        assert_eq!(v6, Ok(("[::1]:443".to_owned(), None)));
        let (target, forwarded) = asked(
            "POST http://a.com:81/x?y#z HTTP/1.1\r\nHost: b.com\r\nProxy-Authorization: Basic x\r\nConnection: keep-alive\r\nA: b: c\r\n\r\n",
        )
        .unwrap();
        assert_eq!(target, "a.com:81");
        let expected = "POST /x?y HTTP/1.1\r\nHost: a.com:81\r\nConnection: close\r\nA: b: c\r\n\r\n";
        assert_eq!(forwarded.as_deref(), Some(expected));
        let (target, forwarded) = asked("GET HTTP://a.com?q HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(target, "a.com:80");
        assert!(forwarded.unwrap().starts_with("GET /?q HTTP/1.0\r\n"));
    }

    #[test]
    fn anything_else_is_refused() {
        for head in [
            "GET / HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET https://a.com/ HTTP/1.1\r\n\r\n",
            "GET http://good@bad.com/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "CONNECT a.com HTTP/1.1\r\n\r\n",
            "CONNECT a.com:99999 HTTP/1.1\r\n\r\n",
            "CONNECT a.com:443 HTTP/2\r\n\r\n",
            "CONNECT  a.com:443 HTTP/1.1\r\n\r\n",
            "CONNECT a.com:443 HTTP/1.1\r\n folded: x\r\n\r\n",
            "CONNECT a.com:443 HTTP/1.1\r\nA: x\nB: y\r\n\r\n",
            "CONNECT a.com:443 HTTP/1.1\r\nnothing\r\n\r\n",
            "hello\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(asked(head), Err("400 Bad Request"), "{head:?}");
        }
    }

    proptest::proptest! {
        /// What is forwarded is one head, whatever was asked: no line of it can end it early.
        #[test]
        fn no_head_becomes_two(
            path in "[ -~\\r\\n]{0,20}",
            headers in proptest::collection::vec("[ -~\\r\\n\\t\\x00é]{0,20}", 0..4),
        ) {
            let head = format!("GET http://a.com/{path} HTTP/1.1\r\n{}\r\n\r\n", headers.join("\r\n"));
            // As it is read: up to the first empty line.
            let end = head.find("\r\n\r\n").expect("it has one") + END.len();
            if let Ok(Asked { forwarded: Some(forwarded), .. }) = understand(&head.as_bytes()[..end]) {
                proptest::prop_assert_eq!(forwarded.find("\r\n\r\n"), Some(forwarded.len() - END.len()));
                for line in forwarded.split("\r\n") {
                    proptest::prop_assert!(!line.contains(['\r', '\n']), "{:?}", forwarded);
                }
            }
        }
    }

    #[tokio::test]
    async fn a_head_is_read_in_any_parts_and_what_follows_is_kept() {
        let whole = b"CONNECT a:1 HTTP/1.1\r\n\r\nrest";
        for cut in 1..24 {
            let (mut near, mut far) = tokio::io::duplex(cut);
            let sending = tokio::spawn(async move { far.write_all(whole).await });
            let (head, mut rest) = read(&mut near).await.unwrap().unwrap();
            assert!(head.ends_with(END));
            near.read_buf(&mut rest).await.unwrap();
            assert!(b"rest".starts_with(&rest[..]), "{rest:?}");
            drop(near);
            let _ = sending.await;
        }
    }

    /// In memory, so that the clock may be paused: a head that is too long, and one that never ends.
    #[tokio::test(start_paused = true)]
    async fn a_head_is_bounded_in_bytes_and_time() {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&vec![b'x'; HEAD_BYTES_MAX + 1]).await.unwrap();
        assert_eq!(read(&mut near).await.unwrap_err().status, "431 Request Header Fields Too Large");
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(b"CONNECT").await.unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(read(&mut near).await.unwrap_err().status, "408 Request Timeout");
        assert_eq!(begun.elapsed(), HEAD_WAIT);
        drop(far);
        let (mut near, far) = tokio::io::duplex(1);
        drop(far);
        assert_eq!(read(&mut near).await, Ok(None));
    }
}
