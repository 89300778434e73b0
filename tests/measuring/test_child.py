"""A process that was started for one job leaves a whole result or none, and ends with whom it worked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxamp.measuring.child import do_job
from tests.orphans import assert_ends_with_parent


def test_the_result_lies_beside_the_job(tmp_path: Path) -> None:
    job = tmp_path / "race-1.json"
    job.write_text(json.dumps({"n": 3}), "utf-8")
    do_job(lambda values: [values["n"] + 1], str(job))
    assert json.loads((tmp_path / "race-1.result").read_text("utf-8")) == [4]
    assert {path.name for path in tmp_path.iterdir()} == {"race-1.json", "race-1.result"}


def test_work_that_fails_leaves_no_result(tmp_path: Path) -> None:
    job = tmp_path / "race-1.json"
    job.write_text("{}", "utf-8")
    with pytest.raises(KeyError, match="rounds"):
        do_job(lambda values: values["rounds"], str(job))
    assert [path.name for path in tmp_path.iterdir()] == ["race-1.json"]


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}", "utf-8")
    begun = tmp_path / "begun"
    program = (
        "import time\nfrom pathlib import Path\nfrom mxamp.measuring.child import do_job\n"
        f"begun = Path({str(begun)!r})\n"
        f"do_job(lambda _: (begun.touch(), time.sleep(600)), {str(tmp_path / 'job.json')!r})\n"
    )
    assert_ends_with_parent(program, until=begun.exists)
    assert not (tmp_path / "job.result").exists()
