"""What a process of its own does wrong is told in one line, and harms nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from mxamp.measuring.process import ProcessError, run_program


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a program that gets a job's path, and return its module's name."""
    (folder / "a_program.py").write_text(f"import json, os, sys\npath = sys.argv[1]\n{text}\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "a_program"


ANSWER = """
result = [json.load(open(path)), os.environ.get("SAID")]
open(path[:-5] + ".result", "w").write(json.dumps(result))
"""


def test_a_result_and_the_environment_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(tmp_path, ANSWER, monkeypatch)
    found = run_program(module, {"n": 3}, tmp_path, timeout=60, environment={"SAID": "yes"})
    assert found == [{"n": 3}, "yes"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("os.kill(os.getpid(), 11)", "ended by signal 11", id="crash"),
        pytest.param("raise ValueError('no such kernel')", "ValueError: no such kernel", id="exception"),
        pytest.param("sys.exit(3)", "ended with status 3", id="silent failure"),
        pytest.param("pass", "its result cannot be read", id="no result"),
        pytest.param("open(path[:-5] + '.result', 'w').write('{')", "cannot be read", id="half a result"),
    ],
)
def test_failures_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    module = program(tmp_path, text, monkeypatch)
    with pytest.raises(ProcessError, match=said):
        run_program(module, {}, tmp_path, timeout=60)


def test_a_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = program(tmp_path, "import time; time.sleep(60)", monkeypatch)
    with pytest.raises(ProcessError, match=r"longer than 0\.5 s"):
        run_program(module, {}, tmp_path, timeout=0.5)
