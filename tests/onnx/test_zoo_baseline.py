"""What ``make verify-onnx`` said of the zoo, as it is committed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1e-5


def records() -> list[dict[str, Any]]:
    lines = (_ROOT / "model_zoo_eval" / "onnx-baseline.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_every_name_is_there_once_in_order() -> None:
    names = [record["name"] for record in records()]
    assert names == sorted(set(names))


def test_what_ran_is_as_near_as_is_promised_and_what_did_not_says_why() -> None:
    for record in records():
        if record["status"] == "passes":
            assert max(record["errors"]) <= LIMIT, record
        elif record["status"] == "amplifies":
            for error, own in zip(record["errors"], record["amplified"]):
                assert error <= max(LIMIT, 10 * own), record
        else:
            assert record["status"] in {"cannot be built", "is quantized"}, record
            assert record["reason"], record


def test_the_documentation_counts_what_is_there() -> None:
    counts = Counter(record["status"] for record in records())
    text = " ".join((_ROOT / "docs" / "onnx.md").read_text("utf-8").split())
    assert f"{counts['passes']} names pass" in text
    assert f"{counts['cannot be built'] + counts['is quantized']} cannot be exported" in text
