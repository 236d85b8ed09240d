"""Prints one table from JSON lines on stdin: per case and thread count the median of every
library and kernel, and how many times as fast it is as MKL."""

import json
import sys


def main():
    rows = [json.loads(line) for line in sys.stdin if line.startswith("{")]
    gaps = [row for row in rows if "gap" in row]
    rows = [row for row in rows if "gap" not in row]
    header = (
        f"{'case':<15} {'thr':>3} {'library':<12} {'configuration':<27} {'median ms':>9} "
        f"{'GFLOP/s':>8} {'x MKL':>6} {'x csr':>6} {'of triad':>8} {'prepare ms':>10}"
    )
    print(header)
    print("-" * len(header))
    groups = {}
    for row in rows:
        groups.setdefault((row["case"], row["threads"]), []).append(row)
    for (case, threads), group in sorted(groups.items()):
        mkl = [row["median_ms"] for row in group if row["library"] == "MKL"]
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
                f"{row['median_ms']:>9.3f} {row['gflops']:>8.2f} {over(mkl):>6} {over(csr):>6} "
                f"{'-' if share is None else f'{share:.2f}':>8} {row.get('plan_ms', 0.0):>10.1f}"
            )
        print()
    for row in gaps:
        print(f"missing: {row['library']} with {row['threads']} thread(s): {row['gap']}")


main()
