//! Names of our kernels in rows of older schemas: [`current`].

/// Converts a configuration in a row of this library from schema 1 to schema 2, in which names of
/// kernels of solves explain their numbers: `cg(32x4,registers,f32 inner)` becomes
/// `cg(32 threads x 4 rows, registers, f32 inner)`, and `cg(32 threads,shared)` becomes
/// `cg(32 threads, shared)`. All else stays.
pub(crate) fn current(configuration: &str) -> String {
    let solves = ["cg(", "bicgstab(", "lu("].iter().any(|start| configuration.starts_with(start));
    let parts = configuration.split_once('(').filter(|_| solves);
    let Some((method, (inside, rest))) =
        parts.and_then(|(method, text)| Some((method, text.split_once(')')?)))
    else {
        return configuration.to_owned();
    };
    let mut words: Vec<String> = inside.split(',').map(|word| word.trim().to_owned()).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((threads, rows)) = words[0].split_once('x')
        && is_number(threads)
        && is_number(rows)
    {
        words[0] = format!("{threads} threads x {rows} rows");
    }
    format!("{method}({}){rest}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_names_of_kernels_become_those_of_today() {
        for (old, new) in [
            ("cg(32x4,registers)", "cg(32 threads x 4 rows, registers)"),
            (
                "bicgstab(512x8,shared,f32 inner,2 blocks) and 3 more",
                "bicgstab(512 threads x 8 rows, shared, f32 inner, 2 blocks) and 3 more",
            ),
            ("cg(32 threads,shared,factors in f32)", "cg(32 threads, shared, factors in f32)"),
            ("lu(512 threads, 16 systems)", "lu(512 threads, 16 systems)"),
            ("csr-vector(32,4)", "csr-vector(32,4)"),
            ("cpu cg, 2 threads, avx2", "cpu cg, 2 threads, avx2"),
            ("cg(", "cg("),
            ("cg()", "cg()"),
        ] {
            assert_eq!(current(old), new);
            assert_eq!(current(new), new, "what is new stays");
        }
    }
}
