"""The programs of the documentation run as they stand, and say what their assertions say."""

from __future__ import annotations

import json
import re
import runpy
import sys
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


def test_the_reference_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["python-api.py"])
    script = runpy.run_path(str(ROOT / "scripts/python-api.py"))
    assert script["main"]() == 0, "python scripts/python-api.py --write"


NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(notebook: Path) -> None:
    document = json.loads(notebook.read_text())
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    packages = set(document["metadata"].get("needs", []))
    for package in packages:
        pytest.importorskip(package, reason=f"{notebook.name} needs {package}")
    names: dict[str, object] = {}
    assert cells
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        exec(compile(source, f"{notebook.name}[{number}]", "exec"), names)
