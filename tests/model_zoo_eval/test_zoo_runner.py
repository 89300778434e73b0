"""A run writes every result as it comes, goes on after any model, and resumes without loss."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model_zoo_eval.job import Job
from model_zoo_eval.journal import Journal, read_results
from mxamp.errors import DataError, ModelFileNotFoundError, UnknownNameError
from tests.model_zoo_eval.running import NAMES, run, timeless


def test_a_model_that_crashes_is_recorded_and_the_run_goes_on(tmp_path: Path, ran: Path) -> None:
    results, said = run(tmp_path / "out" / "results.jsonl", NAMES)
    statuses = {name: results.rows[name]["status"] for name in NAMES}
    assert statuses == {
        "resnet18_v1": "ok",
        "resnet34_v1": "ok",
        "resnet50_v1": "crashed",
        "alexnet": "ok",
    }
    assert "SIGABRT" in results.rows["resnet50_v1"]["reason"]
    assert len(said) == len(NAMES)
    assert "left" in said[0]
    assert "left" not in said[-1]
    environment = results.runs[0]["environment"]
    assert set(environment) >= {"mxamp", "commit", "packages", "cpu", "threads", "seed"}


def test_what_cannot_be_evaluated_is_recorded_with_its_reason_and_not_tried(
    tmp_path: Path, ran: Path
) -> None:
    results, _ = run(tmp_path / "results.jsonl", ["resnet50_v1b_gn", "alexnet"])
    row = results.rows["resnet50_v1b_gn"]
    assert row["status"] == "unavailable"
    assert "GluonCV cannot trace it" in row["reason"]
    assert ran.read_text().split() == ["alexnet"]


def test_a_killed_run_resumes_without_loss_and_repeats_nothing(tmp_path: Path, ran: Path) -> None:
    path = tmp_path / "results.jsonl"
    run(path, NAMES[:2])
    with path.open("ab") as file:  # what a run leaves that is killed while it writes
        file.write(b'{"record": "model", "case": "resnet50')
    before = path.read_bytes()
    ran.unlink()
    results, said = run(path, NAMES, resume=True)
    assert sorted(ran.read_text().split()) == ["alexnet", "resnet50_v1"]
    assert set(results.rows) == set(NAMES)
    assert path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert "2 of 4" in said[0]


def test_a_run_that_is_killed_keeps_what_was_done(tmp_path: Path) -> None:
    path, log = tmp_path / "results.jsonl", tmp_path / "ran.txt"
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.model_zoo_eval.running import run\n"
        f"run(Path({str(path)!r}), ['resnet18_v1', 'vgg11'], workers=1)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "ZOO_TEST_LOG": str(log), "PYTHONPATH": root}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=root)
    try:
        deadline = time.monotonic() + 60
        while "vgg11" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert set(read_results(path).rows) == {"resnet18_v1"}


def test_failures_are_evaluated_again_only_on_request(tmp_path: Path, ran: Path) -> None:
    path = tmp_path / "results.jsonl"
    run(path, NAMES)
    ran.unlink()
    run(path, NAMES, resume=True)
    assert not ran.exists()
    run(path, NAMES, resume=True, retry=True)
    assert ran.read_text().split() == ["resnet50_v1"]


def test_a_journal_is_not_written_over(tmp_path: Path, ran: Path) -> None:
    path = tmp_path / "results.jsonl"
    run(path, NAMES[:1])
    before = path.read_bytes()
    with pytest.raises(DataError, match="holds 1 results"):
        run(path, NAMES)
    assert path.read_bytes() == before


def test_results_of_other_options_do_not_go_into_one_journal(tmp_path: Path, ran: Path) -> None:
    path = tmp_path / "results.jsonl"
    run(path, NAMES[:1])
    with pytest.raises(DataError, match="was made with seed = 0, and now it is 1"):
        run(path, NAMES, job=Job("", seed=1), resume=True)


def test_an_unknown_name_is_an_error_before_anything_runs(tmp_path: Path, ran: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean"):
        run(tmp_path / "results.jsonl", ["alexnet", "resnet51_v1"])
    assert not ran.exists()
    assert not (tmp_path / "results.jsonl").exists()


def test_two_runs_agree_but_for_times(tmp_path: Path, ran: Path) -> None:
    first, _ = run(tmp_path / "a" / "results.jsonl", NAMES[:2], workers=1)
    second, _ = run(tmp_path / "b" / "results.jsonl", NAMES[:2], workers=2)
    assert first.rows != second.rows
    assert timeless(first) == timeless(second)


# ---------------------------------------------------------------------- the journal


def test_a_missing_journal_says_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError, match="`python -m model_zoo_eval run` writes them"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("this is no journal\n", "Line 1 .* is no result"),
        ('{"record": "run", "format": 99, "environment": {}, "options": {}}\n', "in the format 99"),
        ('{"record": "model"}\n', "Line 1 .* is no result"),
        ('{"record": "other"}\n', "of a kind this version does not know"),
        ("[1]\n", "Line 1 .* is no result"),
    ],
    ids=["text", "format", "no case", "kind", "list"],
)
def test_a_file_that_is_no_journal_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(DataError, match=said):
        read_results(path)


def test_the_last_result_of_a_case_counts_and_several_journals_are_one(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "a.jsonl"), Journal(tmp_path / "b.jsonl")
    first.add("alexnet", {"status": "crashed"})
    first.add("vgg11", {"status": "ok"})
    second.add("alexnet", {"status": "ok"})
    rows = read_results(first.path, second.path).rows
    assert {case: row["status"] for case, row in rows.items()} == {"alexnet": "ok", "vgg11": "ok"}
    assert json.loads(first.path.read_text().splitlines()[0])["record"] == "model"
