//! Downloads that resume, within limits of bytes, requests and time.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sparsebatch_formats::io::open_in_place;
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use crate::CorpusError;

/// Most connections without progress: consecutive ones from a server that resumes downloads, all
/// connections from one that starts over each time.
const FRUITLESS: usize = 3;
/// Most connections of a download in total.
const CONNECTIONS: usize = 1000;
/// Time to connect, and time in which a connection has to bring [`LEAST_BYTES`]. A connection that
/// does not counts as ended without progress.
const PATIENCE: Duration = Duration::from_secs(30);
/// Fewest bytes of a connection within [`PATIENCE`]: 1 KiB/s.
const LEAST_BYTES: u64 = 30 << 10;

/// Makes the HTTP client. The environment names the proxies.
pub(crate) fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_resolve(Some(PATIENCE))
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(2 * PATIENCE))
        .timeout_per_read(Some(PATIENCE))
        .user_agent(concat!("sparsebatch/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

/// Limits of a download's bytes and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most bytes of the file.
    pub(crate) bytes: u64,
    /// Time allowed, counted from `begin`.
    pub(crate) timeout: Duration,
    /// Start of the download.
    pub(crate) begin: Instant,
}

impl Limits {
    /// The remaining time, if any.
    fn left(&self) -> Option<Duration> {
        self.timeout.checked_sub(self.begin.elapsed()).filter(|left| !left.is_zero())
    }
}

/// The result of a connection.
enum Step {
    /// The file is complete.
    Whole,
    /// The connection ended early; holds the bytes that it brought, 0 where they were too few for
    /// its time.
    Ended(u64),
    /// The partial file does not match the server's file: start over.
    Restart,
}

/// A file being downloaded.
struct Download<'a> {
    url: &'a str,
    partial: &'a Path,
    file: File,
    limits: Limits,
    /// Bytes of the complete file, if the server tells.
    total: Option<u64>,
    /// Whether the server resumes downloads; known after a request to resume.
    resumes: bool,
}

/// Downloads into `partial`, resuming a partial file; a server that cannot resume sends everything
/// again. Returns the bytes that the partial file had before. `progress` gets the bytes so far and
/// the total, 0 where the server does not tell it.
///
/// # Errors
/// [`CorpusError::Address`], [`CorpusError::Unreachable`], [`CorpusError::Status`],
/// [`CorpusError::Cut`], [`CorpusError::Slow`]; [`CorpusError::Io`] when the file cannot be
/// written. The partial file is kept, except for [`CorpusError::TooLarge`].
pub(crate) fn download(
    agent: &Agent,
    url: &str,
    partial: &Path,
    limits: Limits,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, CorpusError> {
    let io = || CorpusError::io(partial);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = open_in_place(partial, &mut options).map_err(io())?;
    let mut before = file.seek(SeekFrom::End(0)).map_err(io())?;
    if before > limits.bytes {
        file.set_len(0).map_err(io())?;
        before = 0;
    }
    let mut download = Download { url, partial, file, limits, total: None, resumes: true };
    let mut fruitless = 0;
    for _ in 0..CONNECTIONS {
        match download.connect(agent, progress)? {
            Step::Whole => return Ok(before),
            Step::Restart => {
                download.file.set_len(0).map_err(io())?;
                fruitless += 1;
            }
            Step::Ended(0) => fruitless += 1,
            // A server that cannot resume sends the first bytes again, which is no progress.
            Step::Ended(_) => fruitless = if download.resumes { 0 } else { fruitless + 1 },
        }
        if fruitless >= FRUITLESS {
            break;
        }
    }
    let found = download.file.seek(SeekFrom::End(0)).map_err(io())?;
    let expected = download.total.map_or("all".to_owned(), |total| total.to_string());
    Err(CorpusError::Cut { url: url.to_owned(), found, expected })
}

impl Download<'_> {
    /// Requests the missing bytes and reads the answer.
    fn connect(
        &mut self,
        agent: &Agent,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Step, CorpusError> {
        let have = self.file.seek(SeekFrom::End(0)).map_err(CorpusError::io(self.partial))?;
        let Some(left) = self.limits.left() else { return Err(self.slow(have)) };
        let mut request = agent.get(self.url);
        if have > 0 && self.resumes {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let answer = request.config().timeout_global(Some(left)).build().call();
        match answer {
            Ok(response) => self.take(response, have, progress),
            Err(_) if self.limits.left().is_none() => Err(self.slow(have)),
            Err(error) => Err(refused(self.url, error)),
        }
    }

    fn slow(&self, found: u64) -> CorpusError {
        let seconds = self.limits.timeout.as_secs();
        CorpusError::Slow { url: self.url.to_owned(), seconds, found }
    }

    /// Refuses more bytes than the file may have, and empties the partial file.
    fn check_size(&self, found: u64, is_all: bool) -> Result<(), CorpusError> {
        if found <= self.limits.bytes {
            return Ok(());
        }
        self.file.set_len(0).map_err(CorpusError::io(self.partial))?;
        Err(CorpusError::TooLarge {
            url: self.url.to_owned(),
            limit: self.limits.bytes,
            found: if is_all { found.to_string() } else { "more".to_owned() },
        })
    }

    /// Reads one answer into the partial file.
    fn take(
        &mut self,
        response: Response<Body>,
        have: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Step, CorpusError> {
        let range = content_range(&response);
        let start = match response.status() {
            StatusCode::OK => {
                self.resumes &= have == 0;
                0
            }
            StatusCode::PARTIAL_CONTENT if range.0 == Some(have) => have,
            StatusCode::PARTIAL_CONTENT if have > 0 => return Ok(Step::Restart),
            // The server has nothing beyond the partial file: it is complete, or not the same file.
            StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
                return Ok(if range.1 == Some(have) { Step::Whole } else { Step::Restart });
            }
            status => {
                let status = status.as_u16();
                return Err(CorpusError::Status { url: self.url.to_owned(), status });
            }
        };
        let length = response.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        self.total = length.map(|length| start.saturating_add(length));
        self.check_size(self.total.unwrap_or(0), true)?;
        let io = || CorpusError::io(self.partial);
        self.file.set_len(start).map_err(io())?;
        self.file.seek(SeekFrom::Start(start)).map_err(io())?;
        let mut done = start;
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        let (mut since, mut done_then) = (Instant::now(), done);
        loop {
            progress(done, self.total.unwrap_or(0));
            match body.read(&mut buffer) {
                Ok(0) if self.total.is_none_or(|total| done >= total) => return Ok(Step::Whole),
                // However the connection ended, the rest may be requested again.
                Ok(0) | Err(_) => return Ok(Step::Ended(done - start)),
                Ok(read) => {
                    done += read as u64;
                    self.check_size(done, false)?;
                    self.file.write_all(&buffer[..read]).map_err(CorpusError::io(self.partial))?;
                }
            }
            if self.limits.left().is_none() {
                return Err(self.slow(done));
            }
            if since.elapsed() >= PATIENCE {
                if done - done_then < LEAST_BYTES {
                    return Ok(Step::Ended(0));
                }
                (since, done_then) = (Instant::now(), done);
            }
        }
    }
}

/// Start and total of the header `Content-Range: bytes START-END/TOTAL` (or `bytes */TOTAL`).
fn content_range(response: &Response<Body>) -> (Option<u64>, Option<u64>) {
    let text = response.headers().get(header::CONTENT_RANGE).and_then(|text| text.to_str().ok());
    let Some((range, total)) = text.and_then(|t| t.strip_prefix("bytes ")?.split_once('/')) else {
        return (None, None);
    };
    (range.split('-').next().and_then(|start| start.parse().ok()), total.parse().ok())
}

/// Converts the errors of the client.
fn refused(url: &str, error: ureq::Error) -> CorpusError {
    use ureq::Error::{BadUri, Http, InvalidProxyUrl};
    let (url, reason) = (url.to_owned(), error.to_string().replace('\n', " "));
    match error {
        BadUri(_) | Http(_) | InvalidProxyUrl => CorpusError::Address { url, reason },
        _ => CorpusError::Unreachable { url, reason },
    }
}
