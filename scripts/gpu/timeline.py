#!/usr/bin/env python3
"""A product of one matrix over two GPUs as it ran: what scripts/gpu/timeline.c wrote, as a table.

usage: timeline.py FILE [PRODUCTS]

Prints a Markdown table of PRODUCTS (default 2) products in a row in the middle of the longest run of products without
anything else between: for each kernel and copy its GPU, stream, begin and end in us from the first one on.
And, over all products of that run, the median time for which copies between GPUs ran while a kernel ran on the
receiving GPU, as a share of their time.
"""

import statistics
import sys


def main():
    path, wanted = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    work = []
    for line in open(path, encoding="utf-8"):
        device, stream, start, end, size, name = line.rstrip("\n").split("\t")
        work.append((int(start), int(end), int(device), int(stream), int(size), name))
    work.sort()
    # A product begins on each GPU with the kernel that packs; GPU 0 counts.
    packs = [place for place, of in enumerate(work) if of[2] == 0 and "halo_pack" in of[5]]
    kinds = [tuple(sorted({of[5] for of in work[begin:end]})) for begin, end in zip(packs, packs[1:])]
    # The run of products with equal kernels and copies that is longest, without those of CG.
    best, first = (0, 0), 0
    for place in range(1, len(kinds) + 1):
        if place == len(kinds) or kinds[place] != kinds[first]:
            plain = not any("cg" in name or "reduce" in name for name in kinds[first])
            if plain and place - first > best[1] - best[0]:
                best = (first, place)
            first = place
    if best[1] - best[0] < wanted + 2:
        sys.exit(f"{path}: no run of products")
    middle = (best[0] + best[1]) // 2
    shares = []
    for product in range(best[0] + 1, best[1] - 1):
        own = work[packs[product] : packs[product + 1]]
        copies = [of for of in own if "from GPU" in of[5]]
        busy = 0
        for start, end, device, *_ in copies:
            kernels = [of for of in work[packs[product - 1] : packs[product + 1]] if of[2] == device and of[4] == 0]
            busy += max((min(end, of[1]) - max(start, of[0]) for of in kernels), default=0)
        whole = sum(end - start for start, end, *_ in copies)
        if whole:
            shares.append((max(busy, 0) / whole, whole / len(copies)))
    rows = work[packs[middle] : packs[middle + wanted]]
    zero = rows[0][0]
    print("| GPU | stream | begin, us | end, us | what |\n| --- | --- | --- | --- | --- |")
    for start, end, device, stream, size, name in rows:
        what = name.split("(")[0].removeprefix("void ")
        what += f", {size} bytes" if size else ""
        print(f"| {device} | {stream} | {(start - zero) / 1e3:.1f} | {(end - zero) / 1e3:.1f} | {what} |")
    if shares:
        print(f"\n{len(shares)} products: {100 * statistics.median(of[0] for of in shares):.0f} % of the time of copies", end="")
        print(f" is behind kernels; a copy takes {statistics.median(of[1] for of in shares) / 1e3:.1f} us (medians)")


main()
