"""Where warnings point to."""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(__file__)


def caller_level() -> int:
    """The `stacklevel` of the first caller outside of this package, for a warning of our caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == _HERE:
        frame = frame.f_back
        level += 1
    return level
