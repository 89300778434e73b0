"""The committed baseline, with which CI compares: what it holds, and that nothing in it failed."""

from __future__ import annotations

from pathlib import Path

from model_zoo_eval.journal import read_results
from model_zoo_eval.registry import registry, select_cases
from model_zoo_eval.regressions import compare_results

BASELINE = Path(__file__).resolve().parents[2] / "model_zoo_eval" / "baseline.jsonl"

DTYPES = ("bfloat16", "float16")


def test_the_short_set_is_in_it_and_was_converted_and_run() -> None:
    rows = read_results(BASELINE).rows
    for case in select_cases():
        row = rows[case.key]
        assert row["status"] == "ok", case
        assert all(row["results"][dtype]["heads"] for dtype in DTYPES), case


def test_it_says_what_it_was_made_with_and_is_no_regression_of_itself() -> None:
    results = read_results(BASELINE)
    for run in results.runs:
        assert run["environment"]["commit"]
        assert run["environment"]["cpu"]
    found = compare_results(results, results)
    assert not found.regressions
    assert found.compared == len(results.rows)


def test_it_is_small_enough_for_the_repository() -> None:
    assert BASELINE.stat().st_size < 2 << 20


def test_every_name_is_in_it_as_converted_and_run_or_with_a_reason_and_300_are_in_both_dtypes() -> None:
    rows = read_results(BASELINE).rows
    assert {row["status"] for row in rows.values()} <= {"ok", "unavailable"}
    assert {key.partition("+")[0] for key in rows} == set(registry())
    assert all(row["reason"] for row in rows.values() if row["status"] != "ok")
    for dtype in DTYPES:
        done = {
            key.partition("+")[0]
            for key, row in rows.items()
            if row["status"] == "ok" and row["results"][dtype]["heads"]
        }
        assert len(done) >= 300, dtype
