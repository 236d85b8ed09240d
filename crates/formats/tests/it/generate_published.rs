//! Generated matrices against published sizes, and the definiteness their docs promise.

use sparsebatch_formats::generate::{
    Family, Problem, Stencil, banded, laplace, mix_spd, pareto, random, spd,
};
use sparsebatch_formats::stats::MatrixStats;
use sparsebatch_formats::{Batch, Csr};

#[test]
fn laplacians_have_the_published_number_of_entries() {
    let size = |stencil, grid: &[usize]| {
        let a = laplace(stencil, grid).unwrap();
        (a.nrows(), a.nnz())
    };

    assert_eq!(size(Stencil::Point3, &[1_000_000]), (1_000_000, 2_999_998));
    assert_eq!(size(Stencil::Point5, &[1000, 1000]), (1_000_000, 4_996_000));
    assert_eq!(size(Stencil::Point9, &[1000, 1000]), (1_000_000, 8_988_004));
    // The published 27-point matrix, 100^3, is the tensor product of three such lines.
    assert_eq!(size(Stencil::Point27, &[40, 40, 40]), (64_000, 118 * 118 * 118));
}

/// Gershgorin: a symmetric matrix with a dominant positive diagonal is positive definite.
fn is_dominant(a: &Csr<f64>, strictly: bool) -> bool {
    let pattern = a.view().pattern();
    (0..a.nrows()).all(|row| {
        let (mut diagonal, mut rest) = (0.0, 0.0);
        for k in pattern.row(row) {
            if a.col_idx()[k] as usize == row {
                diagonal = a.values()[k];
            } else {
                rest += a.values()[k].abs();
            }
        }
        diagonal > rest || (!strictly && diagonal == rest)
    })
}

#[test]
fn laplacians_are_symmetric_and_dominant() {
    for (stencil, grid) in [
        (Stencil::Point3, &[17][..]),
        (Stencil::Point5, &[7, 5]),
        (Stencil::Point9, &[5, 7]),
        (Stencil::Point7, &[4, 3, 5]),
        (Stencil::Point27, &[3, 4, 5]),
    ] {
        let a = laplace(stencil, grid).unwrap();
        let stats = MatrixStats::new(a.view());
        assert!(stats.is_symmetric && is_dominant(&a, false), "{stencil:?}");
        assert_eq!(stats.row_length.max, stencil.points());
        assert_eq!(stats.ndiags, stencil.points());
    }
}

#[test]
fn families_keep_their_promises() {
    for (family, nrows, nnz, symmetric) in [
        (Family::Tri, 32, 94, true),
        (Family::Penta, 2, 4, true),
        (Family::Penta, 32, 5 * 32 - 6, true),
        (Family::Lap2d, 256, 5 * 256 - 4 * 16, true),
        (Family::Rand9, 54, 9 * 54, false),
        (Family::Aniso2d, 1, 1, true),
        (Family::Aniso2d, 100, 5 * 100 - 4 * 10, true),
        (Family::Jump2d, 1, 1, true),
    ] {
        let generated = Problem::new(family, nrows).unwrap().batch(7).unwrap();
        let Batch::Uniform(batch) = &generated.batch else {
            panic!("a family makes a uniform batch");
        };
        for item in 0..7 {
            let a = batch.to_matrix(item);
            assert_eq!(a.nnz(), nnz);
            assert!(is_dominant(&a, true), "{family:?} {item}");
            assert_eq!(MatrixStats::new(a.view()).is_symmetric, symmetric);
        }
        assert!(generated.rhs.iter().all(|b| (-1.0..1.0).contains(b)));
    }
}

#[test]
fn a_batch_is_the_prefix_of_a_larger_one() {
    let problem = Problem::new(Family::Rand9, 54).unwrap();
    let (small, large) = (problem.batch(3).unwrap(), problem.batch(5).unwrap());

    assert_eq!(small.rhs, large.rhs[..3 * 54]);
    let (Batch::Uniform(small), Batch::Uniform(large)) = (small.batch, large.batch) else {
        panic!("a family makes a uniform batch");
    };
    assert_eq!(small.to_matrix(2), large.to_matrix(2));
}

#[test]
fn mix_spd_is_symmetric_and_casts_to_f32_by_rounding() {
    let generated = mix_spd(12).unwrap();
    let rounded = generated.cast::<f32>();

    let (Batch::Ragged(batch), Batch::Ragged(single)) = (&generated.batch, &rounded.batch) else {
        panic!("a mix is ragged");
    };
    for item in 0..12 {
        assert!(MatrixStats::new(batch.item(item)).is_symmetric, "{item}");
    }
    for (&wide, &narrow) in batch.values().iter().zip(single.values()) {
        assert_eq!(narrow.to_bits(), (wide as f32).to_bits());
    }
    assert_eq!(rounded.rhs[5].to_bits(), (generated.rhs[5] as f32).to_bits());
}

#[test]
fn synthetic_matrices_have_the_statistics_they_are_named_for() {
    let band = MatrixStats::new(banded(1000, 7, 1).unwrap().view());
    assert_eq!((band.lower_bandwidth, band.upper_bandwidth, band.ndiags), (3, 3, 7));
    assert_eq!(band.nnz, 7 * 1000 - 2 * (1 + 2 + 3));

    let even = MatrixStats::new(random(1000, 800, 11, 2).unwrap().view());
    assert_eq!((even.row_length.min, even.row_length.max), (11, 11));
    assert_eq!(even.row_length.deviation, 0.0);

    let heavy = MatrixStats::new(pareto(5000, 5000, 32, 1.0, 3).unwrap().view());
    let light = MatrixStats::new(pareto(5000, 5000, 32, 4.0, 3).unwrap().view());
    assert!(heavy.row_length.max > 10 * light.row_length.max);
    assert!(heavy.row_length.deviation > light.row_length.deviation);

    let a = spd(300, 6, 4).unwrap();
    assert!(MatrixStats::new(a.view()).is_symmetric && is_dominant(&a, true));
}
