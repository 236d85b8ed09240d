//! Fuzzes what comes from elsewhere or may have been edited, in a process of its own: its memory is
//! watched. See `sparsebatch_testing::fuzz`.

mod archive;
mod lock;

use std::path::Path;
use std::time::Duration;

use sparsebatch_corpus::{CorpusError, Matrix, Observer, Origin, Outcome, Place, fetch};

const TEXT: &str = "%%MatrixMarket matrix coordinate real general\n% comment\n3 3 4\n1 1 1.5\n2 2 -2e3\n\
                    3 1 .25\n3 3 1\n";

/// A matrix of three rows and four entries.
const fn matrix(name: &'static str, origin: Origin) -> Matrix {
    Matrix { group: "Fuzz", name, nrows: 3, ncols: 3, nonzeros: 4, explicit_zeros: 0, origin }
}

struct Silent;

impl Observer for Silent {
    fn begin(&mut self, _matrix: &'static Matrix) {}
    fn bytes(&mut self, _done: u64, _total: u64) {}
    fn end(&mut self, _outcome: &Outcome) {}
}

/// Fetches one matrix from a folder.
fn fetch_one(matrix: &'static Matrix, corpus: &Path, from: &Path) -> Result<Outcome, CorpusError> {
    let place = Place::Folder(from.to_owned());
    let mut outcomes = fetch(&[matrix], corpus, &place, Duration::from_secs(60), &mut Silent)?;
    Ok(outcomes.remove(0))
}
