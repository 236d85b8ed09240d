//! Figures over several measurements.

/// The middle value of unsorted numbers, or the mean of the two middle ones for an even count;
/// `None` without numbers.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(0.5 * (sorted[middle - 1] + sorted[middle])),
    }
}

/// The geometric mean of positive numbers; `None` without numbers.
pub fn geomean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0u32, 0.0), |(n, sum), v| (n + 1, sum + v.ln()));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

/// The most values of both samples together for which [`rank_sum_p`] is exact.
const EXACT: usize = 64;

/// The one-sided p-value of the Wilcoxon rank-sum test (Wilcoxon 1945; Mann and Whitney 1947): the
/// probability, if both samples are drawn from one distribution, that the values of `above` rank at
/// least as high among all values as they do. Equal values share their mean rank.
///
/// For up to 64 values in both samples together, the p-value is exact, by counting all splits of
/// the values; beyond that, it is from the normal distribution with the variance corrected for
/// equal values. `None` where a sample is empty or a value is NaN.
pub fn rank_sum_p(below: &[f64], above: &[f64]) -> Option<f64> {
    if below.is_empty() || above.is_empty() || below.iter().chain(above).any(|v| v.is_nan()) {
        return None;
    }
    let mut pooled: Vec<(f64, bool)> = below.iter().map(|&value| (value, false)).collect();
    pooled.extend(above.iter().map(|&value| (value, true)));
    pooled.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Twice the ranks, which are whole numbers.
    let mut ranks = Vec::with_capacity(pooled.len());
    let mut equal_cubes = 0.0;
    for equal in pooled.chunk_by(|a, b| a.0 == b.0) {
        let first = ranks.len() + 1;
        let count = equal.len();
        ranks.extend(std::iter::repeat_n(2 * first + count - 1, count));
        equal_cubes += (count as f64).powi(3) - count as f64;
    }
    let found: usize = ranks
        .iter()
        .zip(&pooled)
        .filter(|(_, (_, is_above))| *is_above)
        .map(|(rank, _)| rank)
        .sum();
    if pooled.len() <= EXACT {
        return Some(exact_tail(&ranks, above.len(), found));
    }
    let (n, m) = (below.len() as f64, above.len() as f64);
    let all = n + m;
    let mean = m * (all + 1.0) / 2.0;
    let variance = n * m / 12.0 * (all + 1.0 - equal_cubes / (all * (all - 1.0)));
    // The variance is 0 if all values are equal: nothing ranks higher, p = 1.
    let deviation = found as f64 / 2.0 - mean - 0.5;
    Some(if variance > 0.0 { normal_tail(deviation / variance.sqrt()) } else { 1.0 })
}

/// Among the selections of `count` of the `ranks`, the share whose sum is at least `least`.
fn exact_tail(ranks: &[usize], count: usize, least: usize) -> f64 {
    let most: usize = ranks.iter().sum();
    // ways[k][s]: number of selections of k of the ranks seen so far with the sum s.
    let mut ways = vec![vec![0.0f64; most + 1]; count + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for k in (1..=count).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            let (fewer, more) = (&fewer[k - 1], &mut more[0]);
            for sum in rank..=most {
                more[sum] += fewer[sum - rank];
            }
        }
    }
    let all: f64 = ways[count].iter().sum();
    ways[count].iter().skip(least).sum::<f64>() / all
}

/// The probability that a normal variable exceeds z, to 1e-7 (Abramowitz and Stegun 1964, 26.2.17).
fn normal_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let series = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let tail = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if z >= 0.0 { tail } else { 1.0 - tail }
}

/// What a choice costs over the best one: 0 when it is the best, 0.1 when it takes a tenth longer.
pub fn regret(chosen_ms: f64, best_ms: f64) -> f64 {
    chosen_ms / best_ms - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn geomean_multiplies() {
        assert_eq!(geomean([]), None);
        assert!((geomean([1.0, 4.0]).unwrap() - 2.0).abs() < 1e-15);
        assert!((geomean([0.5, 2.0, 8.0]).unwrap() - 2.0).abs() < 1e-15);
    }

    #[test]
    fn rank_sums_have_the_tails_of_the_tables() {
        let p = |below: &[f64], above: &[f64]| rank_sum_p(below, above).unwrap();

        // Of the 20 splits of six values into two threes, these are the last one, and the last two.
        assert!((p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]) - 1.0 / 20.0).abs() < 1e-15);
        assert!((p(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0]) - 2.0 / 20.0).abs() < 1e-15);
        // Mann and Whitney 1947, table I: n = m = 5, U = 5.
        assert!((p(&[2.0, 3.0, 4.0, 5.0, 6.0], &[1.0, 7.0, 8.0, 9.0, 10.0]) - 0.0754).abs() < 5e-5);
        assert_eq!(p(&[4.0, 5.0], &[1.0, 2.0]), 1.0);
        // All equal: every split is as high.
        assert_eq!(p(&[1.0; 5], &[1.0; 5]), 1.0);
        assert_eq!(rank_sum_p(&[], &[1.0]), None);
        assert_eq!(rank_sum_p(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn many_values_have_the_tail_of_the_normal_distribution() {
        let spread = |count: usize, by: f64| -> Vec<f64> {
            (0..count).map(|k| ((k * 37) % count) as f64 + by).collect()
        };
        let exact = rank_sum_p(&spread(32, 0.0), &spread(32, 5.3)).unwrap();
        let normal = rank_sum_p(&spread(33, 0.0), &spread(32, 5.3)).unwrap();

        assert!((exact - normal).abs() < 0.03, "{exact} {normal}");
        assert!((normal_tail(0.0) - 0.5).abs() < 1e-7);
        assert!((normal_tail(2.326_347_874) - 0.01).abs() < 1e-7);
        assert!((normal_tail(-1.0) - 0.841_344_746).abs() < 1e-7);
        assert_eq!(rank_sum_p(&[1.0; 40], &[1.0; 40]), Some(1.0));
    }

    #[test]
    fn regret_of_the_best_choice_is_none() {
        assert_eq!(regret(2.0, 2.0), 0.0);
        assert!((regret(2.2, 2.0) - 0.1).abs() < 1e-15);
    }
}
