//! Rates of a network at a temperature and a density: the fits of REACLIB.
//!
//! ```text
//! N_A<sigma v> = sum over sets of exp(a0 + a1/T9 + a2 T9^(-1/3) + a3 T9^(1/3) + a4 T9
//!                                     + a5 T9^(5/3) + a6 ln T9)
//! ```
//!
//! # Source
//! Cyburt et al. 2010, ApJS 189, 240, equation (1). The fits hold from 0.01 to 10 GK.

use crate::nuclear_burning::network::Network;

/// The lowest temperature of the fits, GK.
pub const T9_MIN: f64 = 0.01;
/// The highest temperature of the fits, GK.
pub const T9_MAX: f64 = 10.0;

/// The functions of T9 that a0 to a6 are multiplied with.
fn powers(t9: f64) -> [f64; 7] {
    let cbrt = t9.cbrt();
    [1.0, 1.0 / t9, 1.0 / cbrt, cbrt, t9, t9 * cbrt * cbrt, t9.ln()]
}

/// The derivatives of [`powers`] with respect to T9.
fn slopes(t9: f64) -> [f64; 7] {
    let cbrt = t9.cbrt();
    [
        0.0,
        -1.0 / (t9 * t9),
        -1.0 / (3.0 * t9 * cbrt),
        1.0 / (3.0 * cbrt * cbrt),
        1.0,
        5.0 / 3.0 * cbrt * cbrt,
        1.0 / t9,
    ]
}

fn dot(a: &[f64; 7], b: &[f64; 7]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The factors of the products of abundances, `prefactor * rho^rho_exponent * N_A<sigma v>`, one
/// for each rate.
///
/// `t9` is in GK and clamped to [`T9_MIN`] and [`T9_MAX`], the range of the fits; `rho` is in
/// g/cm^3.
pub fn evaluate(network: &Network, t9: f64, rho: f64, lambda: &mut [f64]) {
    let powers = powers(t9.clamp(T9_MIN, T9_MAX));
    for (rate, lambda) in network.rates.iter().zip(lambda) {
        let fit: f64 = rate.sets.iter().map(|set| dot(set, &powers).exp()).sum();
        *lambda = rate.prefactor * rho.powi(rate.rho_exponent) * fit;
    }
}

/// As [`evaluate`], with the derivatives with respect to T9, 1/GK, which are 0 beyond the range of
/// the fits.
pub fn evaluate_with_slopes(
    network: &Network,
    t9: f64,
    rho: f64,
    lambda: &mut [f64],
    dlambda: &mut [f64],
) {
    let inside = t9.clamp(T9_MIN, T9_MAX);
    let powers = powers(inside);
    let slopes = if inside == t9 { slopes(inside) } else { [0.0; 7] };
    for ((rate, lambda), dlambda) in network.rates.iter().zip(lambda).zip(dlambda) {
        let scale = rate.prefactor * rho.powi(rate.rho_exponent);
        let (mut fit, mut slope) = (0.0, 0.0);
        for set in &rate.sets {
            let term = dot(set, &powers).exp();
            fit += term;
            slope += term * dot(set, &slopes);
        }
        *lambda = scale * fit;
        *dlambda = scale * slope;
    }
}
