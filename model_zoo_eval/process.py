"""Run one evaluation in a process of its own, within limits; however it ends is a result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from model_zoo_eval.rows import CRASHED, FAILED, LOST, OK, OUT_OF_MEMORY, TIMEOUT

__all__ = ["FOLDER_PREFIX", "Limits", "evaluation_command", "run_in_process"]

FOLDER_PREFIX = "mxamp-zoo-"
"""What the name of a process's folder begins with: it removes that one itself, if its parent is killed."""

_LOOK_EVERY = 0.1
"""Seconds between looks at a running process."""

_LOG_LINES = 3

_ASKED_TO_STOP = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})
"""Signals that no model causes: somebody, or the machine going down, wants the process to end."""


@dataclass(frozen=True)
class Limits:
    """What one model may take.

    Attributes
    ----------
    seconds
        Wall-clock time.
    memory
        Bytes of resident memory; None for no limit.
    threads
        Threads of MXNet.
    """

    seconds: float = 1800.0
    memory: int | None = None
    threads: int = 1

    def to_mapping(self) -> dict[str, Any]:
        """Return the limits as plain data."""
        return asdict(self)


def evaluation_command() -> list[str]:
    """Return the command that evaluates a job; the paths of job and result are added to it."""
    return [sys.executable, "-W", "ignore", "-m", "model_zoo_eval.child"]


def run_in_process(
    job: Mapping[str, Any],
    limits: Limits | Mapping[str, Any],
    command: Sequence[str] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Evaluate a job in a process of its own.

    Parameters
    ----------
    job
        :meth:`model_zoo_eval.evaluate.Job.to_mapping`.
    limits
        What it may take.
    command
        What to run; by default :func:`evaluation_command`. It is given the path of the job, and the path to
        write the result to.
    stop
        Asked now and then; the process is killed when it answers True.

    Returns
    -------
    dict
        The row: what the process found, with ``status`` (``ok``, ``failed``, ``crashed``, ``timeout``,
        ``out of memory``, ``lost``), the ``reason`` where that is not ``ok``, ``seconds`` and
        ``peak_memory``. Never raises for what the process did.
    """
    bounds = limits if isinstance(limits, Limits) else Limits(**limits)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        paths = [Path(folder, name) for name in ("job.json", "result.json", "log.txt")]
        paths[0].write_text(json.dumps(job), encoding="utf-8")
        started = time.perf_counter()
        whole = [*(command or evaluation_command()), *map(str, paths[:2])]
        with paths[2].open("wb") as log, _process(whole, log, bounds) as process:
            verdict, peak = _watch(process, bounds, started, stop)
        row = _read(paths[1])
        _judge(row, verdict, process.returncode, bounds, paths[2])
        row["seconds"] = round(time.perf_counter() - started, 1)
        row["peak_memory"] = peak
        return row


@contextlib.contextmanager
def _process(command: Sequence[str], log: Any, limits: Limits) -> Iterator[subprocess.Popen[bytes]]:
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "OMP_NUM_THREADS": str(limits.threads),
        "OPENBLAS_NUM_THREADS": str(limits.threads),
        "MXNET_SUBGRAPH_VERBOSE": "0",
    }
    # A session of its own: a compiler that the process starts is killed with it.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _watch(
    process: subprocess.Popen[bytes], limits: Limits, started: float, stop: Callable[[], bool]
) -> tuple[str, int]:
    """Wait for a process, or kill it; return why it was killed, and the most memory it had."""
    peak = 0
    while True:
        try:
            process.wait(_LOOK_EVERY)
        except subprocess.TimeoutExpired:
            resident = _resident_bytes(process.pid)
            peak = max(peak, resident)
            if limits.memory is not None and resident > limits.memory:
                _kill(process)
                return OUT_OF_MEMORY, peak
            if time.perf_counter() - started > limits.seconds:
                _kill(process)
                return TIMEOUT, peak
            if stop():
                _kill(process)
                return LOST, peak
        else:
            return "", peak


def _resident_bytes(pid: int) -> int:
    """Return how much memory a process has; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _judge(row: dict[str, Any], verdict: str, status: int, limits: Limits, log: Path) -> None:
    """Put status and reason into a row."""
    stage = row.pop("stage", "start")
    error = row.pop("error", "")
    where = f"at the stage {stage}"
    if verdict == TIMEOUT:
        row.update(status=TIMEOUT, reason=f"not done after {limits.seconds:.0f} s, {where}")
    elif verdict == OUT_OF_MEMORY:
        assert limits.memory is not None
        row.update(status=OUT_OF_MEMORY, reason=f"took more than {limits.memory / 2**30:.1f} GiB, {where}")
    elif verdict == LOST:
        row.update(status=LOST, reason=f"stopped {where}")
    elif status < 0:
        name = _signal_name(-status)
        if name == "SIGKILL":
            row.update(status=OUT_OF_MEMORY, reason=f"killed from outside, as for want of memory, {where}")
        elif name in _ASKED_TO_STOP:
            row.update(status=LOST, reason=f"stopped from outside by {name} {where}")
        else:
            row.update(status=CRASHED, reason=f"{name} {where}{_last_lines(log)}")
    elif error:
        row.update(status=FAILED, reason=f"{error} ({where})")
    elif status or stage != "done":
        row.update(status=CRASHED, reason=f"ended with status {status} {where}{_last_lines(log)}")
    else:
        _judge_results(row)


def _judge_results(row: dict[str, Any]) -> None:
    failed = {dtype: found["error"] for dtype, found in row["results"].items() if "error" in found}
    if failed:
        row.update(status=FAILED, reason="; ".join(f"{dtype}: {error}" for dtype, error in failed.items()))
    else:
        row.update(status=OK, reason="")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_lines(log: Path) -> str:
    """Return the end of what a process printed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip()[:200] for line in lines if line.strip() and "legacy_json_util" not in line]
    return f"; it said: {' / '.join(said[-_LOG_LINES:])}" if said else ""
