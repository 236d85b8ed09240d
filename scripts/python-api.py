#!/usr/bin/env python3
"""Writes the reference of the Python package, docs/api/python.md, from its docstrings.

    python scripts/python-api.py           # says whether the file is current
    python scripts/python-api.py --write   # writes it
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import sparsebatch
import sparsebatch.mpi

PAGE = Path(__file__).parents[1] / "docs/api/python.md"


class Plain(str):
    """An annotation that is written without quotes by every version of Python."""

    __repr__ = str.__str__


def signature_of(thing: Any) -> str:
    """The parameters of a class or function."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [
        parameter
        if parameter.annotation is inspect.Parameter.empty
        else parameter.replace(annotation=Plain(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    returns = signature.return_annotation
    if returns is not inspect.Signature.empty:
        returns = Plain(returns)
    return str(signature.replace(parameters=plain, return_annotation=returns))


def described(name: str, thing: Any, level: int) -> list[str]:
    """A class or function with its signature and docstring, and the public members of a class."""
    signature = signature_of(thing) if callable(thing) else ""
    lines = [f"{'#' * level} `{name}`", ""]
    if signature:
        lines += ["```text", f"{name.rpartition('.')[2]}{signature}", "```", ""]
    text = inspect.getdoc(thing)
    if text:
        lines += ["```text", text, "```", ""]
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for member, value in sorted(vars(thing).items()):
            if member.startswith("_") and member not in ("__call__", "__getitem__"):
                continue
            own = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            own = own.fget if isinstance(own, property) else getattr(own, "func", own)
            if inspect.isfunction(own) and inspect.getdoc(own):
                lines += described(f"{name}.{member}", own, level + 1)
    return lines


def page() -> str:
    """The whole page."""
    lines = ["# Reference of the Python package", ""]
    for name in sparsebatch.__all__:
        thing = getattr(sparsebatch, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            lines += described(f"sparsebatch.{name}", thing, 2)
    # The other modules need libraries to be imported.
    lines += ["## `sparsebatch.mpi`", "", "```text", inspect.getdoc(sparsebatch.mpi) or "", "```", ""]
    for name in sparsebatch.mpi.__all__:
        lines += described(f"sparsebatch.mpi.{name}", getattr(sparsebatch.mpi, name), 3)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Compares or writes."""
    text = page()
    if "--write" in sys.argv:
        PAGE.write_text(text)
        return 0
    if PAGE.is_file() and PAGE.read_text() == text:
        return 0
    print("docs/api/python.md is not current: python scripts/python-api.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
