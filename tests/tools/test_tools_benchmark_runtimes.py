"""The table of the benchmark of runtimes."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet")

from tools.benchmark_runtimes import BEGIN, COLUMNS, END, OV_HINT, OV_OURS, document, table


def row() -> dict[str, object]:
    columns = {
        column: {"milliseconds": float(number), "error": number / 1000, "failure": None, "version": "1"}
        for number, column in enumerate(COLUMNS, start=1)
    }
    columns[OV_HINT] = {"milliseconds": None, "error": None, "failure": "it broke", "version": ""}
    return {"columns": columns, "ours_over_hint": [1.02, 0.99, 1.05], "kept": 3, "deploy": OV_OURS}


def test_every_model_is_a_row_and_the_best_is_bold() -> None:
    lines = table({"net": row(), "other": {"failure": "no such model"}}).splitlines()
    assert lines[2] == (
        "| net | 1.0 | 2.0 | 3.0 | 4.0 | - | **6.0** | 1.02 (0.99 to 1.05) | 2.0e-03, -, 6.0e-03 | 3 |"
    )
    assert lines[3].startswith("| other | no such model |")
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_only_the_generated_part_of_the_document_changes() -> None:
    text = document(f"before\n{BEGIN}\nold\n{END}\nafter", {"net": row()})
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert "old" not in text
    assert document(text, {"net": row()}) == text
