//! Bytes in both directions, until both have ended or nobody has said anything for long.

use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// A connection on which nothing is said for this long is closed: its place is needed. Streams of events
/// send something more often.
const IDLE_MAX: Duration = Duration::from_mins(15);

/// And for this long once one side has ended: most others end then, too.
const HALF_IDLE_MAX: Duration = Duration::from_secs(30);

/// One read, in either direction.
const CHUNK_BYTES: usize = 16 << 10;

/// Relays until both sides have ended.
pub(super) async fn relay<A, B>(near: A, far: B)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (from_near, to_near) = tokio::io::split(near);
    let (from_far, to_far) = tokio::io::split(far);
    let last = Mutex::new(Last { at: Instant::now(), idle_max: IDLE_MAX });
    let both = async { tokio::join!(pump(from_near, to_far, &last), pump(from_far, to_near, &last)) };
    tokio::select! {
        _ = both => {}
        () = idle(&last) => {}
    }
}

/// When something was said last, and how long the silence may be.
struct Last {
    at: Instant,
    idle_max: Duration,
}

/// One direction. Its end is passed on, and the other direction may go on.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, last: &Mutex<Last>) {
    let hold = || last.lock().expect("nothing panics while it holds a moment");
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if to.write_all(&chunk[..length]).await.is_err() {
            break;
        }
        hold().at = Instant::now();
    }
    hold().idle_max = HALF_IDLE_MAX;
    let _ = to.shutdown().await;
}

async fn idle(last: &Mutex<Last>) {
    loop {
        let end = {
            let last = last.lock().expect("nothing panics while it holds a moment");
            last.at + last.idle_max
        };
        let now = Instant::now();
        if end <= now {
            return;
        }
        // How long it may be silent can become less meanwhile.
        tokio::time::sleep_until(end.min(now + HALF_IDLE_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In memory, so that the clock may be paused.
    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_is_closed_and_a_busy_one_is_not() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let relaying = tokio::spawn(relay(near, far));
        let begun = Instant::now();
        for _ in 0..3 {
            tokio::time::advance(IDLE_MAX / 2).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'x');
        }
        assert!(!relaying.is_finished());
        relaying.await.unwrap();
        assert!(begun.elapsed() >= IDLE_MAX / 2 * 5, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn one_direction_may_end_before_the_other() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut server) = tokio::io::duplex(64);
        let relaying = tokio::spawn(relay(near, far));
        client.write_all(b"ask").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = String::new();
        server.read_to_string(&mut asked).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.unwrap();
        assert_eq!((asked.as_str(), answered.as_str()), ("ask", "answer"));
        relaying.await.unwrap();
    }
}
