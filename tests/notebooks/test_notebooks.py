"""The notebooks run, from their first cell to their last, and are stored without outputs.

Outputs would be times of somebody's machine, and a change of a number would look like a change of a notebook.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

NOTEBOOKS = {
    "own_classifier": ["(McNemar)", "times as fast", "they are"],
    "tuning": ["chosen", "image/png", "the fastest with an error of at most 0.002"],
    "onnx_and_race": ["relative L2 error", "ONNX Runtime"],
}
"""What the outputs of each must have."""


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs(name: str) -> None:
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.notebook
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str) -> None:
    pytest.importorskip("mxnet")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel: make test-notebooks")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}})
    client.execute()  # a cell that raises, raises here
    said = json.dumps([cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"])
    for text in NOTEBOOKS[name]:
        assert text in said, said[-2000:]
