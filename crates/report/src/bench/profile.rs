//! Performance profiles: E. D. Dolan and J. J. Moré, Benchmarking optimization software with
//! performance profiles, Mathematical Programming 91 (2002), 201-213.

use std::collections::HashMap;

use serde_json::{Value, json};
use sparsebatch_rows::Row;

use super::group::{Group, Problem, is_ours, roles};
use crate::page::{Chart, Figure};
use crate::table::{Table, number};

/// The largest ratio shown.
const LARGEST: f64 = 16.0;

/// Most contenders in the chart; the table has all.
const DRAWN: usize = 10;

/// The profile of a contender: the number of problems on which its time is within a factor of the
/// best.
struct Profile {
    name: String,
    is_ours: bool,
    is_choice: bool,
    /// Ratios to the best time on the problems that it solved, ascending.
    ratios: Vec<f64>,
}

impl Profile {
    /// The share of `problems` within a factor of the best.
    fn share(&self, factor: f64, problems: usize) -> f64 {
        self.ratios.partition_point(|&ratio| ratio <= factor) as f64 / problems as f64
    }

    /// The mean of [`Profile::share`] over the logarithm of the factor, up to [`LARGEST`].
    fn mean_share(&self, problems: usize) -> f64 {
        let within = self.ratios.iter().filter(|&&ratio| ratio < LARGEST);
        let sum: f64 = within.map(|ratio| 1.0 - ratio.ln() / LARGEST.ln()).sum();
        sum / problems as f64
    }
}

fn profiles(group: &Group, rows: &[&Row]) -> (Vec<Profile>, usize) {
    let mut best: HashMap<Problem, f64> = HashMap::new();
    let mut times: HashMap<(String, Problem), f64> = HashMap::new();
    let mut profiles: Vec<Profile> = Vec::new();
    for row in rows {
        let (name, problem) = (group.contender(row), Problem::of(row));
        let least = |found: &mut f64| *found = found.min(row.median_ms);
        least(best.entry(problem.clone()).or_insert(f64::INFINITY));
        least(times.entry((name.clone(), problem)).or_insert(f64::INFINITY));
        let is_choice = is_ours(row) && row.automatic;
        match profiles.iter_mut().find(|profile| profile.name == name) {
            Some(profile) => profile.is_choice |= is_choice,
            None => profiles.push(Profile {
                name,
                is_ours: is_ours(row),
                is_choice,
                ratios: Vec::new(),
            }),
        }
    }
    for profile in &mut profiles {
        let ratio = |(problem, best): (&Problem, &f64)| {
            Some(times.get(&(profile.name.clone(), problem.clone()))? / best)
        };
        profile.ratios = best.iter().filter_map(ratio).collect();
        profile.ratios.sort_by(f64::total_cmp);
    }
    (profiles, best.len())
}

/// The figure of a group; `None` with fewer than two contenders or two problems.
pub(crate) fn figure(group: &Group) -> Option<Figure> {
    let (mut profiles, problems) = profiles(group, &group.newest());
    if profiles.len() < 2 || problems < 2 {
        return None;
    }
    let mean = |profile: &Profile| profile.mean_share(problems);
    profiles.sort_by(|a, b| {
        (b.is_choice && !group.is_solves)
            .cmp(&(a.is_choice && !group.is_solves))
            .then(mean(b).total_cmp(&mean(a)))
    });
    let drawn = drawn(&profiles);
    let names: Vec<(String, bool)> =
        drawn.iter().map(|profile| (profile.name.clone(), profile.is_ours)).collect();
    let roles = roles(&names);
    let series: Vec<Value> = drawn
        .iter()
        .map(|profile| {
            json!({
                "type": "line", "name": profile.name, "role": roles[&profile.name], "step": "end",
                "symbol": "none", "data": steps(profile, problems),
            })
        })
        .collect();
    let left_out = match profiles.len() - drawn.len() {
        0 => String::new(),
        count => format!(" {count} more contenders are in the table only."),
    };
    let factors = [1.0, 1.1, 1.5, 2.0, 4.0, 8.0];
    let mut table = Table::new()
        .texts("contender", profiles.iter().map(|profile| profile.name.clone()))
        .numbers("problems solved", profiles.iter().map(|p| Some(p.ratios.len() as f64)))
        .numbers("mean share", profiles.iter().map(|p| Some(mean(p))));
    for factor in factors {
        let shares = profiles.iter().map(|profile| Some(profile.share(factor, problems)));
        table = table.numbers(&format!("within {factor} x"), shares);
    }
    Some(Figure {
        title: "Performance profile".to_owned(),
        caption: format!(
            "Share of the {problems} problems (case and batch) that a contender does within a factor \
             of the fastest time of all (Dolan and Moré 2002): the higher and the further left, the \
             better. Where a contender was not run or left systems unsolved, it does not count as \
             having done the problem.{left_out}"
        ),
        table,
        charts: vec![Chart {
            name: group.title(),
            height: 440,
            option: json!({
                "shared": true,
                "xAxis": { "type": "log", "logBase": 2, "min": 1, "max": LARGEST,
                    "name": "factor of the fastest time" },
                "yAxis": { "type": "value", "min": 0, "max": 1, "name": "share of the problems" },
                "series": series,
            }),
        }],
        absent: String::new(),
    })
}

/// The profiles to draw: the best ones, with at least three peers if there are so many.
fn drawn(profiles: &[Profile]) -> Vec<&Profile> {
    let peers = profiles.iter().filter(|profile| !profile.is_ours).count().min(3);
    let ours = profiles.iter().filter(|profile| profile.is_ours).count().min(DRAWN - peers);
    let take = |is_ours: bool, count: usize| {
        profiles.iter().filter(move |profile| profile.is_ours == is_ours).take(count)
    };
    take(true, ours).chain(take(false, DRAWN - ours)).collect()
}

/// The corners of a profile's step function, up to the right edge.
fn steps(profile: &Profile, problems: usize) -> Vec<[Value; 2]> {
    let corner =
        |factor: f64| [number(Some(factor)), number(Some(profile.share(factor, problems)))];
    let mut steps = vec![corner(1.0)];
    for &ratio in profile.ratios.iter().filter(|&&ratio| ratio > 1.0 && ratio < LARGEST) {
        let next = corner(ratio);
        if steps.last() != Some(&next) {
            steps.push(next);
        }
    }
    steps.push(corner(LARGEST));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_the_problems_within_a_factor() {
        let ratios = vec![1.0, 1.5, 4.0];
        let profile = Profile { name: "a".to_owned(), is_ours: true, is_choice: true, ratios };

        assert_eq!(profile.share(1.0, 4), 0.25);
        assert_eq!(profile.share(1.5, 4), 0.5);
        assert_eq!(profile.share(16.0, 4), 0.75);
        // The four problems contribute 1, 1 - ln 1.5 / ln 16, 1/2 and 0.
        let expected = (1.0 + 1.0 - 1.5f64.ln() / 16f64.ln() + 0.5) / 4.0;
        assert!((profile.mean_share(4) - expected).abs() < 1e-15);
        assert_eq!(steps(&profile, 4).len(), 4);
    }
}
