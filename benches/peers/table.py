"""Prints one table from JSON lines on stdin: per case and thread count the median of every
library and kernel, and how many times as fast it is as MKL (on
the CSR arrays as given, and on the copy its mkl_sparse_optimize makes) and as our best CSR."""

import json
import sys


def main():
    rows = [json.loads(line) for line in sys.stdin if line.startswith("{")]
    gaps = [row for row in rows if "gap" in row]
    rows = [row for row in rows if "gap" not in row]
    header = (
        f"{'case':<15} {'thr':>3} {'library':<12} {'configuration':<27} {'median ms':>9} "
        f"{'GFLOP/s':>8} {'x MKL csr':>9} {'x MKL opt':>9} {'x our csr':>9} {'of triad':>8} "
        f"{'prepare ms':>10}"
    )
    print(header)
    print("-" * len(header))
    groups = {}
    for row in rows:
        groups.setdefault((row["case"], row["threads"]), []).append(row)
    for (case, threads), group in sorted(groups.items()):
        mkl = {row["configuration"]: [row["median_ms"]] for row in group if row["library"] == "MKL"}
        csr = [
            row["median_ms"]
            for row in group
            if row["library"] == "sparsebatch" and "(csr " in row["configuration"]
        ]
        for row in sorted(group, key=lambda row: row["median_ms"]):
            over = lambda base: f"{min(base) / row['median_ms']:.2f}" if base else "-"
            share = row.get("share_of_triad")
            print(
                f"{case:<15} {threads:>3} {row['library']:<12} {row['configuration']:<27} "
                f"{row['median_ms']:>9.3f} {row['gflops']:>8.2f} {over(mkl.get('csr')):>9} "
                f"{over(mkl.get('optimized copy')):>9} {over(csr):>9} "
                f"{'-' if share is None else f'{share:.2f}':>8} {row.get('plan_ms', 0.0):>10.1f}"
            )
        print()
    for row in gaps:
        print(f"missing: {row['library']} with {row['threads']} thread(s): {row['gap']}")


main()
