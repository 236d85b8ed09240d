//! Figures of other libraries, recorded elsewhere and at another time.
//!
//! They are printed beside ours and become rows of their own, whose `timing` is `recorded` and
//! whose configuration begins with that word. They come from no run of this library.

use std::path::Path;

use sparsebatch_formats::io::read_file;

use crate::RowsError;
use crate::row::{Machine, Row, Run, SCHEMA};

/// What `timing` says in the rows of recorded figures.
pub const RECORDED: &str = "recorded";

/// The columns, in their order.
const COLUMNS: &str = "suite,problem,n,nnz,batch,precision,operation,preconditioner,peer,\
                       configuration,median_ms,mean_iterations,max_iterations,\
                       max_true_relative_residual";

/// A recorded solve.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The case, such as `tri 32` or `mid57`.
    pub case: String,
    /// Rows of one system.
    pub n: u64,
    /// Entries of one system.
    pub nnz: u64,
    /// Number of systems.
    pub batch: u64,
    /// `f64` or `f32`.
    pub precision: String,
    /// `cg`, `bicgstab` or `lu`.
    pub operation: String,
    /// For iterative methods: the preconditioner.
    pub preconditioner: Option<String>,
    /// The library.
    pub library: String,
    /// The settings of the library.
    pub configuration: String,
    /// Wall time of one call between two synchronisations.
    pub median_ms: f64,
    /// For iterative methods: the mean number of iterations.
    pub mean_iterations: Option<f64>,
    /// The largest `||b - A x|| / ||b||`, where it is known.
    pub max_relative_residual: Option<f64>,
}

/// Reads the solves in a file of comma-separated values. Rows of products and of suites other than
/// `solvers` and `files` are passed over.
///
/// # Errors
/// [`RowsError::Io`]; [`RowsError::Row`] for a line that is not a row of the file.
pub fn read(path: &Path) -> Result<Vec<Reference>, RowsError> {
    let text = read_file(path)
        .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
        .map_err(RowsError::io(path))?;
    parse(&text).map_err(|(line, reason)| RowsError::Row { path: path.to_owned(), line, reason })
}

/// The fields of a line. Quotes keep commas together.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("there is one at least").push(c),
        }
    }
    fields
}

fn parse(text: &str) -> Result<Vec<Reference>, (usize, String)> {
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, header)) if header.trim() == COLUMNS => {}
        _ => return Err((1, format!("no header {COLUMNS}"))),
    }
    let mut references = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        references.extend(solve_of(&fields(line)).map_err(|reason| (index + 1, reason))?);
    }
    Ok(references)
}

/// The solve in a line; `None` for a product or another suite.
fn solve_of(fields: &[String]) -> Result<Option<Reference>, String> {
    let count = COLUMNS.split(',').count();
    let [
        suite,
        problem,
        n,
        nnz,
        batch,
        precision,
        operation,
        preconditioner,
        library,
        configuration,
        median_ms,
        mean_iterations,
        _,
        residual,
    ] = fields
    else {
        return Err(format!("{} fields in place of {count}", fields.len()));
    };
    let case = match suite.as_str() {
        "solvers" => format!("{problem} {n}"),
        "files" => problem.clone(),
        _ => return Ok(None),
    };
    if operation == "spmv" {
        return Ok(None);
    }
    let whole = |text: &str| text.parse::<u64>().map_err(|_| format!("the number {text:?}"));
    let real = |text: &str| match text.parse::<f64>() {
        Ok(value) => Ok(value),
        Err(_) => Err(format!("the number {text:?}")),
    };
    let optional = |text: &str| if text.is_empty() { Ok(None) } else { real(text).map(Some) };
    let median_ms = real(median_ms)?;
    if !(median_ms > 0.0 && median_ms.is_finite()) {
        return Err(format!("the time {median_ms}"));
    }
    Ok(Some(Reference {
        case,
        n: whole(n)?,
        nnz: whole(nnz)?,
        batch: whole(batch)?,
        precision: precision.clone(),
        operation: if operation == "direct" { "lu" } else { operation }.to_owned(),
        preconditioner: (preconditioner != "-").then(|| preconditioner.clone()),
        library: library.clone(),
        configuration: configuration.clone(),
        median_ms,
        mean_iterations: optional(mean_iterations)?,
        max_relative_residual: optional(residual)?,
    }))
}

impl Reference {
    /// The figure as a row beside those of `run`. `source` says where it comes from.
    pub fn row(&self, run: &Run, source: &str) -> Row {
        let Self { n, nnz, batch, median_ms, .. } = *self;
        Row {
            schema: SCHEMA,
            suite: run.suite.to_owned(),
            experiment: None,
            case: self.case.clone(),
            library: self.library.clone(),
            configuration: format!("{RECORDED}: {}", self.configuration),
            automatic: false,
            backend: None,
            operation: self.operation.clone(),
            preconditioner: self.preconditioner.clone(),
            precision: self.precision.clone(),
            batch,
            n,
            nnz,
            rows: n * batch,
            columns: n * batch,
            median_ms,
            min_ms: median_ms,
            max_ms: median_ms,
            round_ms: Vec::new(),
            wall_ms: None,
            rounds: 0,
            products: 1,
            timing: RECORDED.to_owned(),
            copies: 1,
            share_of_copy: None,
            share_moved: None,
            bytes_moved: None,
            plan_ms: None,
            gflops: None,
            mean_iterations: self.mean_iterations,
            max_relative_residual: self.max_relative_residual,
            converged: None,
            device_bytes: None,
            share_of_fitting: None,
            energy_j: None,
            machine: Machine { device: Some(source.to_owned()), ..Machine::default() },
            run: run.id.clone(),
            date: run.date.clone(),
            commit: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &str) -> String {
        format!("{COLUMNS}\n{lines}\n")
    }

    #[test]
    fn solves_are_read_and_the_rest_is_passed_over() {
        let text = file(
            "solvers,tri,32,94,1000,f64,cg,none,Ginkgo,\"ell, pooled\",0.25,12.5,14,9.9e-11\n\
             solvers,tri,32,94,1000,f64,spmv,none,Ginkgo,csr,0.01,0,0,2e-16\n\
             files,mid57,57,739,10000,f64,direct,-,cuDSS,refactor,1.9722,,,5.73e-09\n\
             paper,G2,5,6,7,f64,spmv,none,cuSPARSE,loop,1,0,0,0\n",
        );

        let found = parse(&text).unwrap();

        assert_eq!(found.len(), 2);
        let first = &found[0];
        assert_eq!((first.case.as_str(), first.batch, first.median_ms), ("tri 32", 1000, 0.25));
        assert_eq!(first.configuration, "ell, pooled");
        assert_eq!(first.preconditioner.as_deref(), Some("none"));
        assert_eq!(first.mean_iterations, Some(12.5));
        let second = &found[1];
        assert_eq!((second.case.as_str(), second.operation.as_str()), ("mid57", "lu"));
        assert_eq!((&second.preconditioner, second.mean_iterations), (&None, None));
        assert_eq!(second.max_relative_residual, Some(5.73e-9));
    }

    #[test]
    fn rows_of_recorded_figures_say_so() {
        let text = file("files,mid57,57,739,10000,f64,direct,-,cuDSS,refactor,1.9722,,,5.73e-09");
        let run = Run::new("solvers", "c", Machine::default());

        let row = parse(&text).unwrap()[0].row(&run, "elsewhere");

        assert_eq!(row.configuration, "recorded: refactor");
        assert_eq!((row.timing.as_str(), row.library.as_str()), ("recorded", "cuDSS"));
        assert_eq!((row.n, row.rows, row.converged), (57, 570_000, None));
        assert_eq!(row.machine.device.as_deref(), Some("elsewhere"));
    }

    #[test]
    fn broken_lines_are_named() {
        let line = |lines: &str| parse(&file(lines)).unwrap_err();

        assert_eq!(parse("a,b\n").unwrap_err().0, 1);
        assert_eq!(line("solvers,tri"), (2, "2 fields in place of 14".to_owned()));
        let (number, reason) = line("\nsolvers,tri,x,94,1,f64,cg,none,G,c,0.2,1,1,1");
        assert_eq!((number, reason.as_str()), (3, "the number \"x\""));
        assert!(line("solvers,tri,3,94,1,f64,cg,none,G,c,0,1,1,1").1.starts_with("the time"));
        assert!(line("solvers,tri,3,94,1,f64,cg,none,G,c,nan,1,1,1").1.starts_with("the time"));
    }
}
