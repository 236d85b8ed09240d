//! A server of archives on loopback, and what it serves.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

/// How a server answers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Answer {
    /// As one that knows ranges.
    Resumable,
    /// As one that does not.
    NoRanges,
    /// As one that knows ranges and ends every connection after so many bytes of content.
    CutAfter(usize),
    /// As the former, the first time; later not at all.
    Once(usize),
    /// As one that does not know ranges and ends every connection after so many bytes of content.
    NoRangesCutAfter(usize),
    /// A byte every 50 milliseconds.
    Drip,
    /// Zeros without end, whose number is not said.
    Endless,
    /// As one that is asked for a file of this length, and sends nothing of it.
    Declares(u64),
}

#[derive(Default)]
struct State {
    files: HashMap<String, Vec<u8>>,
    requests: Vec<Option<u64>>,
}

/// A server; it serves until the test's process ends.
pub(crate) struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// Starts it on a port that is free.
    pub(crate) fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that has gone is no failure of the server.
                let _ = serve(stream, answer, &served);
            }
        });
        Self { port, state }
    }

    /// Its address.
    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Serves an archive from now on.
    pub(crate) fn put(&self, group: &str, name: &str, content: Vec<u8>) {
        self.state.lock().unwrap().files.insert(format!("/MM/{group}/{name}.tar.gz"), content);
    }

    /// The first bytes that requests asked for, in turn; `None` for all bytes.
    pub(crate) fn requests(&self) -> Vec<Option<u64>> {
        self.state.lock().unwrap().requests.clone()
    }
}

/// The path that a request asks for, and the first byte of its range.
fn read_request(stream: &TcpStream) -> std::io::Result<(String, Option<u64>)> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut start = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            return Ok((path, start));
        }
        if let Some(range) = header.strip_prefix("range: bytes=") {
            start = range.strip_suffix('-').and_then(|start| start.parse().ok());
        }
    }
}

fn serve(mut stream: TcpStream, answer: Answer, state: &Mutex<State>) -> std::io::Result<()> {
    let (path, start) = read_request(&stream)?;
    let content = {
        let mut state = state.lock().unwrap();
        state.requests.push(start);
        if matches!(answer, Answer::Once(_)) && state.requests.len() > 1 {
            return Ok(());
        }
        state.files.get(&path).cloned()
    };
    let Some(content) = content else {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    };
    let total = content.len();
    let from = match answer {
        Answer::NoRanges | Answer::NoRangesCutAfter(_) => 0,
        _ => start.unwrap_or(0) as usize,
    };
    if from > 0 && from >= total {
        return write!(
            stream,
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{total}\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    match answer {
        Answer::Declares(length) => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
        }
        Answer::Endless => {
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            // Until the client has gone.
            loop {
                stream.write_all(&[0; 1 << 16])?;
            }
        }
        _ => send(stream, answer, &content, from),
    }
}

/// Sends a file from a byte on, by the way of the answer.
fn send(mut stream: TcpStream, answer: Answer, content: &[u8], from: usize) -> std::io::Result<()> {
    let (part, total) = (&content[from..], content.len());
    if from > 0 {
        let range = format!("bytes {from}-{}/{total}", total - 1);
        write!(stream, "HTTP/1.1 206 Partial Content\r\nContent-Range: {range}\r\n")?;
    } else {
        write!(stream, "HTTP/1.1 200 OK\r\n")?;
    }
    write!(stream, "Content-Length: {}\r\nConnection: close\r\n\r\n", part.len())?;
    if answer == Answer::Drip {
        for byte in part {
            stream.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(50));
        }
        return Ok(());
    }
    let sent = match answer {
        Answer::CutAfter(bytes) | Answer::Once(bytes) | Answer::NoRangesCutAfter(bytes) => {
            bytes.min(part.len())
        }
        _ => part.len(),
    };
    stream.write_all(&part[..sent])?;
    stream.flush()
}

/// A port on which nobody listens.
pub(crate) fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

/// A Matrix Market file whose first entries are stored, row by row, with values that do not pack
/// well.
pub(crate) fn market(rows: usize, columns: usize, nonzeros: usize) -> Vec<u8> {
    entries(rows, columns, nonzeros, 0)
}

/// The same, square, with zeros behind the nonzeros.
pub(crate) fn with_zeros(order: usize, nonzeros: usize, zeros: usize) -> Vec<u8> {
    entries(order, order, nonzeros, zeros)
}

fn entries(rows: usize, columns: usize, nonzeros: usize, zeros: usize) -> Vec<u8> {
    let stored = nonzeros + zeros;
    let mut text =
        format!("%%MatrixMarket matrix coordinate real general\n{rows} {columns} {stored}\n");
    for k in 0..stored {
        let value = if k < nonzeros { (1.0 + k as f64).sqrt() } else { 0.0 };
        text += &format!("{} {} {value}\n", k / columns + 1, k % columns + 1);
    }
    text.into_bytes()
}

/// An archive of the form of the collection's: `NAME/NAME.mtx`, and a right-hand side beside it.
pub(crate) fn archive(name: &str, matrix: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut add = |file: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, format!("{name}/{file}"), content).expect("a member");
    };
    add(&format!("{name}_b.mtx"), b"%%MatrixMarket matrix array real general\n1 1\n1\n");
    add(&format!("{name}.mtx"), matrix);
    tar.into_inner().expect("an archive").finish().expect("a packed archive")
}
