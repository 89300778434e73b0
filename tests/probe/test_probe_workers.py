"""Processes that die of their work: what is charged to whom, and that the others' work is kept."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from mxamp.errors import DeviceError, MxnetMissingError, TargetError
from mxamp.probe.jobs import Unit
from mxamp.probe.workers import Answer, Settings, Worker, probe_environment, run_units
from tests.probe.children import child

UNITS = [Unit(name, "check") for name in ("first", "second", "third", "fourth")]


def answers_of(
    command: tuple[str, ...], *, units: list[Unit] = UNITS, limit: float = 20.0, workers: int = 1
) -> dict[Unit, Answer]:
    found: dict[Unit, Answer] = {}
    settings = Settings("bfloat16", "cpu", limit=limit, command=command)
    run_units(units, settings, dict(os.environ), workers=workers, record=found.__setitem__)
    return found


def test_one_process_does_several_units(tmp_path: Path) -> None:
    found = answers_of(child(tmp_path))
    assert list(found) == UNITS
    assert len({answer.jobs[0]["pid"] for answer in found.values()}) == 1


def test_a_crash_is_charged_to_its_case_and_the_others_are_done(tmp_path: Path) -> None:
    found = answers_of(child(tmp_path, 'if case == "second": os.kill(os.getpid(), signal.SIGSEGV)'))
    assert {unit.case for unit, answer in found.items() if answer.died} == {"second"}
    died = found[UNITS[1]].died
    assert died is not None
    assert died["outcome"] == "crashes"
    assert died["note"].startswith("SIGSEGV")
    assert (died["index"], died["phase"]) == (0, "low")
    assert all(found[unit].jobs for unit in UNITS if unit.case != "second")


def test_what_it_said_last_is_in_the_note(tmp_path: Path) -> None:
    body = 'if case == "first": print("free(): invalid pointer", file=sys.stderr, flush=True); os.abort()'
    died = answers_of(child(tmp_path, body), units=UNITS[:1])[UNITS[0]].died
    assert died is not None
    assert died["note"] == "SIGABRT: free(): invalid pointer"


def test_an_exit_is_a_crash(tmp_path: Path) -> None:
    died = answers_of(child(tmp_path, "os._exit(3)"), units=UNITS[:1])[UNITS[0]].died
    assert died is not None
    assert died["note"].startswith("exit status 3")


def test_a_case_that_does_not_return_is_ended_and_recorded(tmp_path: Path) -> None:
    found = answers_of(child(tmp_path, 'if case == "third": time.sleep(600)'), limit=1.0)
    died = found[UNITS[2]].died
    assert died is not None
    assert died["outcome"] == "hangs"
    assert "no answer in 1 s" in died["note"]
    assert found[UNITS[3]].died is None


def test_what_an_earlier_case_spoiled_is_done_again_alone(tmp_path: Path) -> None:
    """Heap that one case overran may only be noticed in the next: nobody is charged who survives alone."""
    body = 'if case == "third" and done: os.abort()'
    found = answers_of(child(tmp_path, body))
    assert all(answer.died is None for answer in found.values())
    pids = [found[unit].jobs[0]["pid"] for unit in UNITS[:3]]
    assert len(set(pids)) == 3, "the three were done again, each in a process of its own"


def test_a_case_that_kills_only_alone_is_charged_when_done_again(tmp_path: Path) -> None:
    """The first one overruns the heap: in a process of its own, where the check sees it, it dies of it."""
    body = """\
seen = __file__ + ".seen"
if case == "second" and done: os.abort()
if case == "second": open(seen, "w").close()
if case == "first" and os.path.exists(seen): os.abort()"""
    found = answers_of(child(tmp_path, body), units=UNITS[:2])
    assert found[UNITS[0]].died is not None
    assert found[UNITS[1]].died is None


def test_several_processes_share_the_work(tmp_path: Path) -> None:
    found = answers_of(child(tmp_path, "time.sleep(0.05)"), workers=2)
    assert set(found) == set(UNITS)


def test_needless_units_count_as_done(tmp_path: Path) -> None:
    found: dict[Unit, Answer] = {}
    settings = Settings("bfloat16", "cpu", command=child(tmp_path))
    run_units(
        UNITS,
        settings,
        dict(os.environ),
        workers=1,
        record=found.__setitem__,
        is_needless=lambda unit: unit.case == "second",
    )
    assert found[UNITS[1]] == Answer([])
    assert found[UNITS[2]].jobs


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param("DeviceError", DeviceError, id="device"),
        pytest.param("MxnetMissingError", MxnetMissingError, id="MXNet"),
        pytest.param("SomethingElse", TargetError, id="other"),
    ],
)
def test_a_process_that_refuses_says_why(tmp_path: Path, kind: str, expected: type[Exception]) -> None:
    greeting = f'tell({{"refused": "{kind}", "message": "there is no gpu(0) here"}}); sys.exit(0)'
    with pytest.raises(expected, match=r"there is no gpu\(0\) here"):
        answers_of(child(tmp_path, greeting=greeting))


def test_a_process_that_cannot_start_says_why() -> None:
    command = (sys.executable, "-c", "raise SystemExit('no such module')")
    with pytest.raises(TargetError, match="cannot start: exit status 1: no such module"):
        Worker(Settings("bfloat16", "cpu", command=command), dict(os.environ))


def test_an_interrupt_ends_the_processes(tmp_path: Path) -> None:
    def interrupt(unit: Unit, answer: Answer) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    settings = Settings("bfloat16", "cpu", command=child(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run_units(UNITS, settings, dict(os.environ), workers=1, record=interrupt)
    assert threading.active_count() <= before


def test_processes_find_this_mxamp_and_decide_fusion_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    environment = probe_environment(3, check_heap=False)
    assert environment["OMP_NUM_THREADS"] == "3"
    assert "MXNET_SUBGRAPH_BACKEND" not in environment
    assert Path(environment["PYTHONPATH"].split(os.pathsep)[0], "mxamp", "probe").is_dir()
