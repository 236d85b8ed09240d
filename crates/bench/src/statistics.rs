//! Figures over several measurements.

/// The middle value of unsorted numbers, the mean of the two middle ones of an even count; `None`
/// of none.
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

/// The geometric mean of positive numbers; `None` of none.
pub fn geomean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0u32, 0.0), |(n, sum), v| (n + 1, sum + v.ln()));
    (count > 0).then(|| (sum / f64::from(count)).exp())
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
    fn regret_of_the_best_choice_is_none() {
        assert_eq!(regret(2.0, 2.0), 0.0);
        assert!((regret(2.2, 2.0) - 0.1).abs() < 1e-15);
    }
}
