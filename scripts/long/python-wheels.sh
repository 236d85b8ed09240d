#!/usr/bin/env bash
# Builds the wheel that is published: for x86-64 Linux with glibc 2.17 or newer, linked by zig, and checked by
# auditwheel. Takes a compilation of all crates for another target, some ten minutes on two cores. The python that
# comes first in PATH needs: pip install maturin ziglang auditwheel
#
# scripts/long/python-wheels.sh target/release-wheels
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/release-wheels}

rm -rf "$out"
rustup target add x86_64-unknown-linux-gnu >/dev/null 2>&1 || true
maturin build --release --zig --target x86_64-unknown-linux-gnu --compatibility manylinux2014 --out "$out"
python -m auditwheel show "$out"/*.whl
bytes=$(stat -c %s "$out"/*.whl)
echo "$(basename "$out"/*.whl): $bytes bytes"
[[ $bytes -le 15000000 ]] || { echo "expected a wheel of at most 15 MB" >&2; exit 1; }
