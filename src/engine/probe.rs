//! Whether an agent answers on a byte stream. Accepting a connection is no sign of life where a proxy accepts in the
//! agent's place, so one request is made; any answer will do, a refusal for the missing token included.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ByteStream;

/// True when the other end speaks HTTP. Bound it in time: this waits for as long as the other end keeps still.
pub(crate) async fn answers(mut stream: impl ByteStream) -> bool {
    let request = b"GET /v1/hello HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return false;
    }
    let mut start = [0u8; 5];
    stream.read_exact(&mut start).await.is_ok() && &start == b"HTTP/"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_proxy_that_accepts_and_closes_is_no_agent() {
        let (ours, theirs) = tokio::io::duplex(256);
        drop(theirs);
        assert!(!answers(ours).await);
        let (ours, mut theirs) = tokio::io::duplex(256);
        let answer = async move {
            let mut request = [0u8; 64];
            let read = theirs.read(&mut request).await.unwrap();
            assert!(request[..read].starts_with(b"GET /v1/hello"));
            theirs.write_all(b"HTTP/1.1 401 Unauthorized\r\n\r\n").await.unwrap();
        };
        assert!(tokio::join!(answers(ours), answer).0);
    }
}
