"""The table in docs/results/onnx-operators.md is that of the mappings."""

from __future__ import annotations

from mxamp.onnx.mapping import MAPPINGS
from mxamp.ops import FACTS
from tools.document_onnx import DOCUMENT, document


def test_the_table_is_up_to_date() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert document(text) == text, "run: make docs-onnx"


def test_every_mapping_is_of_an_operator_that_mxnet_has() -> None:
    unknown = [name for name in MAPPINGS if FACTS.get(name) is None and not name.startswith("_mxamp_")]
    assert not unknown


def test_mappings_are_entered_under_canonical_names() -> None:
    assert [name for name in MAPPINGS if FACTS.canonical(name) != name] == []
