"""The command line: `sparsebatch`, or `python -m sparsebatch`."""

import sys

from sparsebatch import _native


def main() -> int:
    """Run the command line with the arguments of this process, and return its exit code."""
    return _native.command_line(["sparsebatch", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
