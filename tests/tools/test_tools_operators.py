"""The list of registered operators reads back as written, and docs/results/operators.md is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxamp.policy.color import Color
from tools import registered_operators as registry
from tools.document_operators import DOCUMENT, document, not_exercised
from tools.registered_operators import LIST_FILE, RegisteredOperator, listed_operators


def test_document_is_what_the_tool_writes() -> None:
    assert DOCUMENT.read_text("utf-8") == document(), "python -m tools.document_operators writes it anew"


def test_document_names_every_operator_once_in_a_table_or_a_list() -> None:
    text = document()
    assert [name for name in listed_operators() if text.count(f"`{name}`") != 1] == []


def test_document_has_a_section_for_every_color() -> None:
    headings = [line for line in document().splitlines() if line.startswith("## ")]
    assert [heading.split(":")[0] for heading in headings[:3]] == [
        f"## {color.name.capitalize()}" for color in (Color.GREEN, Color.GRAY, Color.RED)
    ]


def test_list_reads_back_as_it_was_written() -> None:
    lines = LIST_FILE.read_text("utf-8").splitlines()[2:]
    assert [str(operator) for operator in listed_operators().values()] == lines


def test_list_knows_inputs_aliases_and_variadic_operators() -> None:
    assert listed_operators()["Concat"].variadic
    assert listed_operators()["Embedding"] == RegisteredOperator(
        "Embedding", ("_npx_embedding", "_sparse_Embedding"), ("data", "weight"), variadic=False
    )


def test_line_that_is_no_operator_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "registered-operators.txt"
    broken.write_text("# The operators of MXNet 1.9.1:\nConcat(data\n", encoding="utf-8")
    monkeypatch.setattr(registry, "LIST_FILE", broken)
    with pytest.raises(ValueError, match=r"registered-operators.txt has the line 'Concat\(data'"):
        listed_operators.__wrapped__()


def test_operators_that_are_not_exercised_are_registered_and_have_a_reason() -> None:
    assert [name for name, why in not_exercised().items() if name not in listed_operators() or not why] == []
