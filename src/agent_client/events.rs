//! Streams of lines: the agent's own events, and what a node tells for as long as it lives.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::connection::Sender;
use super::error::{ClientError, ClientErrorKind};
use super::protocol::AgentRecord;

/// Longest line taken. A tally of a node with many stores is a few kilobytes.
const LINE_MAX: usize = 1 << 20;
/// The agent sends an empty line every few seconds; after this long a silent agent is a dead one.
const SILENCE_MAX: Duration = Duration::from_secs(20);

const WHAT: &str = "follow the agent's events";

/// Records as they come. Dropping it ends the request.
pub struct EventStream {
    lines: LineStream,
}

impl EventStream {
    pub(super) fn new(body: Incoming, sender: Sender) -> Self {
        Self { lines: LineStream::new(WHAT, body, sender, Some(SILENCE_MAX)) }
    }

    /// The next record; `None` when the agent ended the stream in order. An error ends the stream: follow it again
    /// from the last position seen. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<AgentRecord, ClientError>> {
        let record = self.lines.next().await?.and_then(|line| {
            serde_json::from_slice(&line)
                .map_err(|error| ClientError::new(WHAT, ClientErrorKind::Answer(error.to_string())))
        });
        Some(record)
    }
}

/// Lines of an answer that has no end, without the empty ones among them. Dropping it ends the request.
pub struct LineStream {
    what: &'static str,
    /// How long nothing at all, not even an empty line, may come.
    silence_max: Option<Duration>,
    body: Incoming,
    // The connection ends when its sender is dropped while idle, so it lives as long as the stream.
    _sender: Sender,
    partial: Vec<u8>,
    ready: VecDeque<Vec<u8>>,
}

impl LineStream {
    pub(super) fn new(what: &'static str, body: Incoming, sender: Sender, silence_max: Option<Duration>) -> Self {
        Self { what, silence_max, body, _sender: sender, partial: Vec::new(), ready: VecDeque::new() }
    }

    /// The next line, without its end; `None` when the stream ended in order. An error ends it. Where no silence is too long,
    /// the caller knows until when waiting makes sense. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, ClientError>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            let frame = match self.silence_max {
                Some(silence_max) => match timeout(silence_max, self.body.frame()).await {
                    Ok(frame) => frame?,
                    Err(_) => return Some(Err(ClientError::new(self.what, ClientErrorKind::Deadline(silence_max)))),
                },
                None => self.body.frame().await?,
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Some(Err(ClientError::new(self.what, ClientErrorKind::Transport(error)))),
            };
            if let Some(data) = frame.data_ref()
                && let Err(why) = take_lines(&mut self.partial, data, &mut self.ready)
            {
                return Some(Err(ClientError::new(self.what, ClientErrorKind::Answer(why))));
            }
        }
    }
}

fn take_lines(partial: &mut Vec<u8>, data: &[u8], ready: &mut VecDeque<Vec<u8>>) -> Result<(), String> {
    let mut rest = data;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        partial.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        if !partial.is_empty() {
            ready.push_back(std::mem::take(partial));
        }
    }
    partial.extend_from_slice(rest);
    if partial.len() > LINE_MAX { Err(format!("a line of more than {LINE_MAX} bytes")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::NodeEvent;

    #[test]
    fn lines_are_put_together_from_any_pieces() {
        let records: Vec<AgentRecord> = (1..=3)
            .map(|seq| AgentRecord { seq, clock_us: seq * 7, event: NodeEvent::Signalled { start: 1, signal: 15 } })
            .collect();
        let mut text = String::from("\n");
        for record in &records {
            text.push_str(&serde_json::to_string(record).unwrap());
            text.push_str("\n\n");
        }
        for size in [1, 2, 7, 1000] {
            let (mut partial, mut ready) = (Vec::new(), VecDeque::new());
            for piece in text.as_bytes().chunks(size) {
                take_lines(&mut partial, piece, &mut ready).unwrap();
            }
            let read: Vec<AgentRecord> = ready.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
            assert_eq!(read, records, "pieces of {size}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut partial = Vec::new();
        let error = take_lines(&mut partial, &vec![b'x'; LINE_MAX + 1], &mut VecDeque::new()).unwrap_err();
        assert!(error.contains("more than"), "{error}");
    }
}
