"""The programs of the documentation run as they stand, and say what their assertions say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["docs/guide/python.md", "python/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_a_page_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert "converged" in capsys.readouterr().out


def test_the_readme_solves_its_example_in_one_line() -> None:
    text = (ROOT / "README.md").read_text()
    (line,) = re.findall(r'^python -c "(import sparsebatch; .*)"$', text, re.MULTILINE)
    names: dict[str, object] = {}
    exec(line.replace("'examples", f"'{ROOT}/examples"), names)
    assert names["batch"].nitems == 48
