"""A model in a process of its own: however that ends is a result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from model_zoo_eval.process import FOLDER_PREFIX, Limits, run_in_process
from tests.orphans import assert_ends_with_parent, is_running, wait_until

DONE = {"stage": "done", "results": {"float32": {}, "bfloat16": {"casts": 1}}}


def child(body: str) -> list[str]:
    """Return a command that runs a few lines with `job`, `publish` and the usual modules."""
    head = (
        "import json, os, signal, sys, time\n"
        "job = json.load(open(sys.argv[1]))\n"
        "def publish(row): json.dump(row, open(sys.argv[2], 'w'))\n"
    )
    return [sys.executable, "-c", head + body]


def test_a_result_is_handed_on_with_time_and_memory() -> None:
    row = run_in_process(
        {"name": "x"}, Limits(), child(f"publish({{**{DONE!r}, 'weights': job['name']}}); time.sleep(0.3)")
    )
    assert row["status"] == "ok"
    assert row["weights"] == "x"
    assert row["results"] == DONE["results"]
    assert row["seconds"] > 0
    assert "stage" not in row
    json.dumps(row)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("publish({'stage': 'bfloat16'}); os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "SIGSEGV at the"),
        (
            "publish({'stage': 'float32'}); os.kill(os.getpid(), signal.SIGKILL)",
            "out of memory",
            "killed from",
        ),
        (
            "publish({'stage': 'float32'}); time.sleep(60)",
            "timeout",
            "not done after 3 s, at the stage float32",
        ),
        (
            "publish({'stage': 'float32'}); os.kill(os.getpid(), signal.SIGTERM)",
            "lost",
            "stopped from outside by SIGTERM at the stage float32",
        ),
        (
            "print('what it said', file=sys.stderr); sys.exit(3)",
            "crashed",
            "status 3 at the stage start; it said",
        ),
        (
            "publish({'stage': 'build', 'error': 'E: no'}); sys.exit(1)",
            "failed",
            "E: no (at the stage build)",
        ),
        ("pass", "crashed", "ended with status 0"),
        ("open(sys.argv[2], 'w').write('{')", "crashed", "ended with status 0"),
    ],
    ids=[
        "signal",
        "killed",
        "too long",
        "asked to stop",
        "exit status",
        "error",
        "no result",
        "half a result",
    ],
)
def test_every_other_end_is_a_result_that_names_the_stage(body: str, status: str, reason: str) -> None:
    row = run_in_process({}, Limits(seconds=3.0 if status == "timeout" else 60.0), child(body))
    assert row["status"] == status
    assert reason in row["reason"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc")
def test_too_much_memory_is_a_result() -> None:
    body = "publish({'stage': 'float16'}); data = bytearray(300 << 20); time.sleep(60)"
    row = run_in_process({}, Limits(seconds=30.0, memory=100 << 20), child(body))
    assert row["status"] == "out of memory"
    assert "more than 0.1 GiB, at the stage float16" in row["reason"]
    assert row["peak_memory"] > 100 << 20


def test_what_was_measured_before_a_crash_is_kept() -> None:
    row = run_in_process(
        {},
        Limits(),
        child("publish({'stage': 'float16', 'results': {'bfloat16': {'casts': 2}}}); os.abort()"),
    )
    assert row["status"] == "crashed"
    assert row["results"] == {"bfloat16": {"casts": 2}}


def test_a_conversion_that_failed_makes_the_model_fail_and_keeps_the_others() -> None:
    results = {"bfloat16": {"error": "OperatorError: no"}, "float16": {"casts": 2}}
    row = run_in_process({}, Limits(), child(f"publish({{'stage': 'done', 'results': {results!r}}})"))
    assert row["status"] == "failed"
    assert row["reason"] == "bfloat16: OperatorError: no"
    assert row["results"]["float16"] == {"casts": 2}


def test_an_evaluation_ends_with_the_process_that_started_it_and_removes_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / f"{FOLDER_PREFIX}1"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    evaluation = (
        "import time\nfrom model_zoo_eval.child import main\n"
        f"paths = [{str(folder / 'job.json')!r}, {str(folder / 'result.json')!r}]\n"
        "main(paths, lambda _, publish: (publish({}), time.sleep(600)))\n"
    )
    assert_ends_with_parent(evaluation, until=(folder / "result.json").exists)
    assert not folder.exists()


def test_a_process_that_is_to_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    started = tmp_path / "started"
    body = (
        "import subprocess\nfrom pathlib import Path\n"
        f"own = Path({str(started)!r} + '.part')\n"
        "own.write_text(str(subprocess.Popen(['sleep', '60']).pid))\n"
        f"own.rename({str(started)!r})\ntime.sleep(60)"
    )
    assert run_in_process({}, Limits(), child(body), stop=started.exists)["status"] == "lost"
    wait_until(lambda: not is_running(int(started.read_text())))
