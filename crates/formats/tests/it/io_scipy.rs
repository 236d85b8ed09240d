//! SciPy and NumPy read what we write, and we read what SciPy writes. Skipped, with the reason on
//! stderr, where there is no `python3` with SciPy.

use std::path::Path;
use std::process::Command;

use sparsebatch_formats::Csr;
use sparsebatch_formats::io::{
    Packing, read_matrix_market, read_npz, read_npz_array, write_arrays, write_matrix_market,
    write_npz,
};

/// Runs a script in a folder; `None` when SciPy is not there.
fn python(folder: &Path, script: &str) -> Option<String> {
    let run = |code: &str| Command::new("python3").arg("-c").arg(code).current_dir(folder).output();
    match run("import scipy.sparse, scipy.io, numpy") {
        Ok(output) if output.status.success() => {}
        Ok(_) => {
            eprintln!("skipped: python3 has no SciPy");
            return None;
        }
        Err(reason) => {
            eprintln!("skipped: python3 does not run: {reason}");
            return None;
        }
    }
    let output = run(script).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn example() -> Csr<f64> {
    // [ 0 0 2.5 ]
    // [ 0 0 0   ]
    // [ 1 0 -3  ]
    // with an explicit zero at (2, 1)
    let row_ptr = vec![0, 1, 1, 4];
    Csr::try_new(3, 3, row_ptr, vec![2, 0, 1, 2], vec![2.5, 1.0, 0.0, -3.0]).unwrap()
}

#[test]
fn scipy_reads_our_matrices() {
    let folder = tempfile::tempdir().unwrap();
    write_npz(folder.path().join("a.npz"), &example()).unwrap();
    write_npz(folder.path().join("narrow.npz"), &example().cast::<f32>()).unwrap();
    write_matrix_market(folder.path().join("a.mtx"), &example()).unwrap();

    let script = "
import scipy.sparse as sp, scipy.io, numpy as np
a = sp.load_npz('a.npz')
a.check_format(full_check=True)
b = scipy.io.mmread('a.mtx').tocsr()
print(a.format, a.dtype, a.shape, a.nnz, a.indices.dtype, a.toarray().tolist(), sp.load_npz('narrow.npz').dtype, (a != b).nnz)
";
    let Some(found) = python(folder.path(), script) else {
        return;
    };

    let dense = "[[0.0, 0.0, 2.5], [0.0, 0.0, 0.0], [1.0, 0.0, -3.0]]";
    assert_eq!(found.trim(), format!("csr float64 (3, 3) 4 int32 {dense} float32 0"));
}

#[test]
fn numpy_reads_our_arrays() {
    let folder = tempfile::tempdir().unwrap();
    write_arrays(folder.path().join("x.npz"), Packing::Stored, |npz| {
        npz.add_i64("offsets", &[0, 2, 3])?;
        npz.add_f64("x", &[0.1, -2.0, f64::INFINITY])?;
        npz.add_strings("status", &["Converged", "NonFinite", "µ"])?;
        npz.add_strings("none", &[] as &[&str])
    })
    .unwrap();

    let script = "
import numpy as np
z = np.load('x.npz')
print(z.files, z['offsets'].tolist(), z['offsets'].dtype, z['x'].tolist(), z['status'].tolist(), z['status'].dtype, z['none'].shape, ascii(str(z['status'][2])))
";
    let Some(found) = python(folder.path(), script) else {
        return;
    };

    assert!(found.contains("['offsets', 'x', 'status', 'none'] [0, 2, 3] int64"), "{found}");
    assert!(found.contains("[0.1, -2.0, inf] ['Converged', 'NonFinite', "), "{found}");
    assert!(found.contains("<U9 (0,) '\\xb5'"), "{found}");
}

#[test]
fn we_read_what_scipy_writes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import scipy.sparse as sp, scipy.io, numpy as np
a = sp.csr_matrix(np.array([[0, 0, 2.5], [0, 0, 0], [1, 0, -3]]))
for f in ['csr', 'csc', 'coo']:
    sp.save_npz(f + '.npz', a.asformat(f))
    sp.save_npz(f + '_stored.npz', a.asformat(f), compressed=False)
sp.save_npz('array.npz', sp.csr_array(a))
for t in ['float32', 'int64', 'int8', 'uint16', 'bool']:
    sp.save_npz('type_' + t + '.npz', sp.csr_matrix(np.array([[0, 1], [1, 0]], dtype=t)))
u = sp.csr_matrix((np.array([1., 2., 4., 8.]), np.array([2, 0, 2, 1], dtype=np.int64), np.array([0, 3, 4], dtype=np.int64)), shape=(2, 3))
u.indices = u.indices.astype(np.int64); u.indptr = u.indptr.astype(np.int64)
sp.save_npz('unsorted.npz', u)
sp.save_npz('bsr.npz', a.tobsr((1, 1)))
np.savez('plain.npz', x=np.arange(6.).reshape(2, 3), big=np.array([1.5, -2], dtype='>f8'), c=np.array([1j]))
scipy.io.mmwrite('general.mtx', a)
scipy.io.mmwrite('symmetric.mtx', sp.csr_matrix(np.array([[2., 1.], [1., 5.]])))
scipy.io.mmwrite('skew.mtx', sp.csr_matrix(np.array([[0., 1.], [-1., 0.]])))
scipy.io.mmwrite('complex.mtx', sp.csr_matrix(np.array([[2., 1j]])))
scipy.io.mmwrite('dense.mtx', np.array([[1., 2.], [3., 4.]]))
";
    if python(folder.path(), script).is_none() {
        return;
    }
    let npz = |name: &str| read_npz(folder.path().join(name));
    let mtx = |name: &str| read_matrix_market(folder.path().join(name));

    let expected =
        Csr::try_new(3, 3, vec![0, 1, 1, 3], vec![2, 0, 2], vec![2.5, 1.0, -3.0]).unwrap();
    for format in ["csr", "csc", "coo", "csr_stored", "csc_stored", "coo_stored", "array"] {
        assert_eq!(npz(&format!("{format}.npz")).unwrap(), expected, "{format}");
    }
    for kind in ["float32", "int64", "int8", "uint16", "bool"] {
        assert_eq!(npz(&format!("type_{kind}.npz")).unwrap().values(), [1.0, 1.0], "{kind}");
    }
    let sorted = npz("unsorted.npz").unwrap();
    assert_eq!((sorted.col_idx(), sorted.values()), (&[0, 2, 1][..], &[2.0, 5.0, 8.0][..]));
    assert!(npz("bsr.npz").unwrap_err().to_string().contains("sparse format `bsr`"));
    let plain = read_npz_array(folder.path().join("plain.npz"), "x").unwrap();
    assert_eq!(plain, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let plain = |name| read_npz_array(folder.path().join("plain.npz"), name);
    assert_eq!(plain("big").unwrap(), [1.5, -2.0]);
    assert!(plain("c").unwrap_err().to_string().contains("found type `<c16`"));
    assert_eq!(mtx("general.mtx").unwrap(), expected);
    assert_eq!(mtx("symmetric.mtx").unwrap().values(), [2.0, 1.0, 1.0, 5.0]);
    assert_eq!(mtx("skew.mtx").unwrap().values(), [1.0, -1.0]);
    assert_eq!(mtx("dense.mtx").unwrap().values(), [1.0, 2.0, 3.0, 4.0]);
    assert!(mtx("complex.mtx").unwrap_err().to_string().contains("`complex` is not supported"));
}
