//! Names of kernels: normalised spelling, and suggestions for unknown names.

/// Removes outer brackets and all spaces but those between two words: `( f<unsigned  int, 4> )`
/// becomes `f<unsigned int,4>`.
pub(crate) fn normalise(expression: &str) -> String {
    let mut text = expression.trim();
    while let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) {
        text = inner.trim();
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut space = false;
    for c in text.chars() {
        if c.is_whitespace() {
            space = true;
            continue;
        }
        if space && is_word(c) && out.chars().next_back().is_some_and(is_word) {
            out.push(' ');
        }
        space = false;
        out.push(c);
    }
    out
}

/// Up to five names of `known`, the most similar first; similar template names rank before others.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let template = |s: &str| s.split('<').next().unwrap_or("").to_owned();
    let wanted = template(name);
    let mut ranked: Vec<(usize, usize, String)> =
        known.map(|k| (distance(&wanted, &template(&k)), distance(name, &k), k)).collect();
    ranked.sort();
    ranked.into_iter().take(5).map(|(_, _, k)| k).collect()
}

/// Edit distance: the least number of inserted, removed and replaced characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_outer_brackets_do_not_matter() {
        assert_eq!(normalise(" ( csr < double,8 > ) "), "csr<double,8>");
        assert_eq!(normalise("csr<double, 8>"), "csr<double,8>");
        assert_eq!(normalise("f<unsigned   int, (4)>"), "f<unsigned int,(4)>");
    }

    #[test]
    fn the_same_template_is_nearest() {
        let known = ["axpy<float>", "csr<double,16>", "csr<float,8>"].map(str::to_owned);

        let near = nearest("csr<double,8>", known.into_iter());

        assert_eq!(near, ["csr<double,16>", "csr<float,8>", "axpy<float>"]);
    }

    #[test]
    fn distance_counts_single_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("csr", "csr"), 0);
    }
}
