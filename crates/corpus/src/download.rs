//! Downloads that go on where they ended.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

use crate::CorpusError;

/// Connections in a row that may bring nothing.
const FRUITLESS: usize = 3;
/// Time to connect, and time without a byte after which a connection counts as ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the client. Proxies are those that the environment names.
pub(crate) fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_resolve(Some(PATIENCE))
        .timeout_connect(Some(PATIENCE))
        .timeout_per_read(Some(PATIENCE))
        .user_agent(concat!("sparsebatch/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

/// What a connection did.
enum Step {
    /// The file is whole.
    Whole,
    /// The connection ended early; bytes that it brought.
    Ended(u64),
    /// What is there does not belong to what the server has: begin again.
    Restart,
}

/// Downloads into `partial`, going on with what is there of it; a server that cannot do so sends
/// all again. Returns how many bytes were there before. `progress` is told bytes done, and in all
/// or 0 where the server does not say.
///
/// # Errors
/// [`CorpusError::Address`], [`CorpusError::Unreachable`], [`CorpusError::Status`],
/// [`CorpusError::Cut`]; [`CorpusError::Io`] when the file cannot be written. What came is kept.
pub(crate) fn download(
    agent: &Agent,
    url: &str,
    partial: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, CorpusError> {
    let io = || CorpusError::io(partial);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(partial)
        .map_err(io())?;
    let before = file.seek(SeekFrom::End(0)).map_err(io())?;
    let (mut fruitless, mut total) = (0, None);
    loop {
        let have = file.seek(SeekFrom::End(0)).map_err(io())?;
        let mut request = agent.get(url);
        if have > 0 {
            request = request.header(header::RANGE, format!("bytes={have}-"));
        }
        let response = request.call().map_err(|error| refused(url, error))?;
        match step(url, response, &mut file, partial, have, &mut total, progress)? {
            Step::Whole => return Ok(before),
            Step::Restart => {
                file.set_len(0).map_err(io())?;
                fruitless += 1;
            }
            Step::Ended(0) => fruitless += 1,
            Step::Ended(_) => fruitless = 0,
        }
        if fruitless >= FRUITLESS {
            let found = file.seek(SeekFrom::End(0)).map_err(io())?;
            let expected = total.map_or("all".to_owned(), |total: u64| total.to_string());
            return Err(CorpusError::Cut { url: url.to_owned(), found, expected });
        }
    }
}

/// Takes one answer.
fn step(
    url: &str,
    response: Response<Body>,
    file: &mut File,
    partial: &Path,
    have: u64,
    total: &mut Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Step, CorpusError> {
    let range = content_range(&response);
    let start = match response.status() {
        StatusCode::OK => 0,
        StatusCode::PARTIAL_CONTENT if range.0 == Some(have) => have,
        StatusCode::PARTIAL_CONTENT if have > 0 => return Ok(Step::Restart),
        // Nothing is behind what is there: it is whole, or not the same file.
        StatusCode::RANGE_NOT_SATISFIABLE if have > 0 => {
            return Ok(if range.1 == Some(have) { Step::Whole } else { Step::Restart });
        }
        status => return Err(CorpusError::Status { url: url.to_owned(), status: status.as_u16() }),
    };
    let length = response.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    *total = length.map(|length| start.saturating_add(length));
    file.set_len(start).map_err(CorpusError::io(partial))?;
    file.seek(SeekFrom::Start(start)).map_err(CorpusError::io(partial))?;
    let mut done = start;
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        progress(done, total.unwrap_or(0));
        match body.read(&mut buffer) {
            Ok(0) if total.is_none_or(|total| done >= total) => return Ok(Step::Whole),
            // However it ended, what follows may be asked for again.
            Ok(0) | Err(_) => return Ok(Step::Ended(done - start)),
            Ok(read) => {
                file.write_all(&buffer[..read]).map_err(CorpusError::io(partial))?;
                done += read as u64;
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

/// Sorts the errors of the client.
fn refused(url: &str, error: ureq::Error) -> CorpusError {
    use ureq::Error::{BadUri, Http, InvalidProxyUrl};
    let (url, reason) = (url.to_owned(), error.to_string().replace('\n', " "));
    match error {
        BadUri(_) | Http(_) | InvalidProxyUrl => CorpusError::Address { url, reason },
        _ => CorpusError::Unreachable { url, reason },
    }
}
