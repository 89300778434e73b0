"""What ``python -m model_zoo_eval onnx`` said of the zoo, as it is committed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from model_zoo_eval.job import FP32
from model_zoo_eval.journal import read_results
from model_zoo_eval.onnx.job import AMPLIFIES, LIMIT, ONNX, PASSES, RANKS, SHORT_ONNX_SET
from model_zoo_eval.registry import select_cases
from model_zoo_eval.rows import OK, UNAVAILABLE

_ROOT = Path(__file__).resolve().parents[2]
ROWS = read_results(_ROOT / "model_zoo_eval" / "onnx-baseline.jsonl").rows


def test_every_case_is_one_of_the_registry() -> None:
    assert set(ROWS) <= {case.key for case in select_cases(everything=True)}
    assert {case.key for case in select_cases(SHORT_ONNX_SET)} <= set(ROWS)


def test_what_ran_is_as_near_as_is_promised_and_what_did_not_says_why() -> None:
    for case, row in ROWS.items():
        if row["status"] == OK:
            assert row["kind"] == ONNX
            result = row["results"][FP32]
            if result["verdict"] == PASSES:
                assert max(result["errors"]) <= LIMIT, case
            elif result["verdict"] == RANKS:
                assert max(result["stages"].values()) <= LIMIT, case
            else:
                assert result["verdict"] == AMPLIFIES
                for error, own in zip(result["errors"], result["amplified"]):
                    assert error <= max(LIMIT, 10 * own), case
        else:
            assert row["status"] == UNAVAILABLE, case
            assert row["reason"], case


def test_the_documentation_counts_what_is_there() -> None:
    counts = Counter(
        row["results"][FP32]["verdict"] if row["status"] == OK else row["status"] for row in ROWS.values()
    )
    text = " ".join((_ROOT / "docs" / "onnx.md").read_text("utf-8").split())
    assert f"{counts[PASSES]} pass" in text
    assert f"{counts[UNAVAILABLE]} cannot be built" in text
