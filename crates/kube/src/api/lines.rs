//! Reads a response body line by line while the server is still sending it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::timeout;

use super::{ApiError, Limits};

/// The lines of a watch.
pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// The bytes at the start of the buffer that contain no line end.
    searched: usize,
    idle: Duration,
    /// The largest line.
    most: usize,
}

impl Lines {
    pub(super) fn new(body: Body, limits: &Limits) -> Lines {
        let Limits { idle, line, .. } = *limits;
        Lines { body, buffer: BytesMut::new(), searched: 0, idle, most: line }
    }

    /// Returns the next line without its end, or `None` at the end of the stream. Bytes after the last line end are
    /// dropped: the server was cut off, and a truncated object must not be read.
    ///
    /// # Errors
    ///
    /// The connection broke, nothing arrived for longer than the idle timeout, or a line is too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                let line = self.buffer.split_to(self.searched + at + 1).freeze();
                self.searched = 0;
                return Ok(Some(line.slice(..line.len() - 1)));
            }
            self.searched = self.buffer.len();
            if self.searched > self.most {
                let why = format!("a watch sent a line of more than {} bytes", self.most);
                return Err(ApiError::NoAnswer(why));
            }
            let frame = timeout(self.idle, self.body.frame()).await.map_err(|_| {
                ApiError::NoAnswer(format!("a watch was silent for {} s", self.idle.as_secs()))
            })?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(ApiError::NoAnswer(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
