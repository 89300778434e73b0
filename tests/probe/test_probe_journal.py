"""The journal: going on where a probe was, and refusing numbers that do not belong together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mxamp.errors import ExportError, TargetError
from mxamp.probe.jobs import Unit
from mxamp.probe.journal import Journal, journal_path
from mxamp.probe.workers import Answer

HEADING = {"dtype": "bfloat16", "cpu": "A CPU", "mxnet": "1.9.1", "threads": 1}
FIRST, SECOND = Unit("exp", "check"), Unit("exp", "time")
DIED = Answer([], {"outcome": "crashes", "note": "SIGABRT", "index": 2})


def write(path: Path) -> None:
    journal = Journal(path, HEADING)
    journal.note(FIRST, Answer([{"outcome": "exact"}]))
    journal.note(SECOND, DIED)
    journal.close()


def test_a_journal_is_beside_the_result() -> None:
    assert journal_path("folder/mine.json") == Path("folder/mine.json.journal")


def test_what_was_noted_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "t.json.journal"
    write(path)
    again = Journal(path, HEADING)
    again.close()
    assert again.answers == {FIRST: Answer([{"outcome": "exact"}]), SECOND: DIED}


def test_of_two_answers_the_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "t.json.journal"
    write(path)
    journal = Journal(path, HEADING)
    journal.note(SECOND, Answer([{"us": 1}]))
    journal.close()
    again = Journal(path, HEADING)
    again.close()
    assert again.answers[SECOND] == Answer([{"us": 1}])


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_that_was_cut_off_is_dropped_and_the_rest_kept(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "t.json.journal"
    write(path)
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(path, HEADING)
    assert list(journal.answers) == [FIRST]
    journal.note(SECOND, DIED)
    journal.close()
    again = Journal(path, HEADING)
    again.close()
    assert list(again.answers) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        pytest.param("cpu", "Another CPU", "another cpu: A CPU; now it is Another CPU", id="machine"),
        pytest.param("mxnet", "2.0.0", "another mxnet: 1.9.1; now it is 2.0.0", id="MXNet"),
        pytest.param("threads", 4, "another threads: 1; now it is 4", id="threads"),
        pytest.param("instructions", ["avx2"], "another instructions: unknown", id="new key"),
    ],
)
def test_another_measurement_is_refused(tmp_path: Path, key: str, value: object, shown: str) -> None:
    path = tmp_path / "t.json.journal"
    write(path)
    before = path.read_bytes()
    with pytest.raises(TargetError, match=shown) as caught:
        Journal(path, {**HEADING, key: value})
    assert "--fresh" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["a letter\n", "a letter", '{"name": "cpu-bf16"}\n', "[1]\n", '{"probe": 1}\n{"un": 1}\n']
)
def test_what_is_no_journal_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json.journal"
    path.write_text(text, "utf-8")
    with pytest.raises(TargetError, match="is no journal of `mxamp probe`"):
        Journal(path, HEADING)
    assert path.read_text("utf-8") == text


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="the probe's journal: No such file or directory"):
        Journal(tmp_path / "missing" / "t.json.journal", HEADING)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ExportError, match="Permission denied"):
        Journal(tmp_path / "t.json.journal", HEADING)
