#!/usr/bin/env bash
# Builds the Python package and installs it into the environment whose python comes first in PATH, which has
# maturin. The wheel goes to the folder $1.
#
# scripts/python-wheel.sh target/wheels
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-target/wheels}

rm -rf "$out"
# A library that was linked for development is not part of the package.
rm -f python/sparsebatch/_native*.so
maturin build --quiet --release --out "$out"
python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$out"/*.whl

bytes=$(stat -c %s "$out"/*.whl)
echo "$(basename "$out"/*.whl): $bytes bytes"
# What the package promises: see docs/guide/python.md.
[[ $bytes -le 15000000 ]] || { echo "expected a wheel of at most 15 MB" >&2; exit 1; }
