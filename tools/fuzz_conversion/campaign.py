"""Many cases in processes that may die, and what they found."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from tools.fuzz_conversion.case import Case
from tools.fuzz_conversion.coverage import Summary

__all__ = ["Campaign", "Found"]

_BATCH = 250
"""Cases a process: what one of them breaks in it, or leaks, ends with it."""

PATIENCE = 60.0
"""Seconds that a case may take."""

_SHRINKING = 150.0
"""Seconds to shrink for."""

_HANGS = "hangs"


WORKER = (sys.executable, "-W", "ignore", "-m", "tools.fuzz_conversion.worker")
"""The command of a worker."""


@dataclass(frozen=True)
class Found:
    """A finding.

    Attributes
    ----------
    seed
        What it came of.
    kind, text
        What does not hold.
    path
        The shrunk case; None where it could not be written.
    """

    seed: int
    kind: str
    text: str
    path: Path | None


class Campaign:
    """Check cases until there were enough, or the time is over.

    Parameters
    ----------
    first
        The first seed; the others follow.
    cases, seconds
        How many, and for how long; None for no limit.
    jobs
        Processes at a time.
    folder
        Where shrunk cases go.
    say
        Is told of findings and progress.
    keep
        How many findings of a kind are shrunk.
    worker
        The command of a worker; jobs are added to it.
    """

    def __init__(
        self,
        first: int,
        *,
        cases: int | None,
        seconds: float | None,
        jobs: int,
        folder: Path,
        say: Callable[[str], None],
        keep: int = 3,
        worker: Sequence[str] = WORKER,
    ) -> None:
        self._next = first
        self._end = None if cases is None else first + cases
        self._started = time.monotonic()
        self._deadline = None if seconds is None else self._started + seconds
        self._jobs = jobs
        self._folder = folder
        self._say = say
        self._keep = keep
        self._worker = worker
        self._lock = threading.Lock()
        self._told = 0.0
        self.summary = Summary()
        self.found: list[Found] = []

    def run(self) -> None:
        """Run it."""
        threads = [threading.Thread(target=self._work) for _ in range(self._jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._note()

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _work(self) -> None:
        while not self._is_over():
            with self._lock:
                first = self._next
                count = _BATCH if self._end is None else min(_BATCH, self._end - first)
                self._next += max(count, 0)
            if count <= 0:
                return
            end = first + count
            while first < end and not self._is_over():
                first = self._batch(first, end)

    def _batch(self, first: int, end: int) -> int:
        """Let a process check cases; return the seed to go on with."""
        seed, stage, done = first, "start", first
        with _Process(self._worker, "seeds", str(first), str(end - first)) as process:
            for line in process.lines(PATIENCE):
                seed = line["seed"]
                if "stage" in line:
                    stage = line["stage"]
                    continue
                done = seed + 1
                self._count(line)
                if line["result"]["status"] == "finding":
                    self._finding(seed, line["result"]["kind"], line["result"]["text"])
                if self._is_over():
                    return end
            ended = process.ended()
        if done >= end:
            return end
        self._died(first, seed, stage, ended)
        return seed + 1

    def _count(self, line: dict[str, Any]) -> None:
        with self._lock:
            self.summary.add(line)
            if time.monotonic() - self._told > 60.0:
                self._told = time.monotonic()
                self._note()
                self._say(
                    f"{self.summary.cases} cases, {self.summary.findings} findings, "
                    f"{self.summary.cases / max(time.monotonic() - self._started, 1e-9):.1f} cases a second"
                )

    def _note(self) -> None:
        self.summary.rate.append(
            (time.monotonic() - self._started, self.summary.cases, self.summary.findings)
        )

    # ------------------------------------------------------------------ findings

    def _finding(self, seed: int, kind: str, text: str) -> None:
        with self._lock:
            self.summary.findings += 1
            known = sum(found.kind == kind for found in self.found)
            path = self._folder / f"seed-{seed}.json" if known < self._keep else None
            self.found.append(Found(seed, kind, text, path))
        self._say(f"seed {seed}: {kind}: {text}")
        if path is None:
            return
        with _Process(self._worker, "shrink", str(seed), kind, str(path)) as process:
            for _ in process.lines(_SHRINKING):
                pass
        if path.exists():
            self._say(f"seed {seed}, shrunk, in {path}:\n{Case.load(path)}")

    def _died(self, first: int, seed: int, stage: str, ended: str) -> None:
        """Tell a crash of a conversion from one of FP32's, and from one that an earlier case prepared.

        What hangs is checked again, behind the same cases: a machine that others use may stand still, too.
        """
        if stage in ("start", "draft", "fp32", "fp32 fused"):
            with self._lock:
                self.summary.statuses["skipped", f"MXNet {ended} in FP32"] += 1
            return
        alone = self._gets_to(seed, seed)
        if alone and ended == _HANGS and self._gets_to(first, seed):
            with self._lock:
                self.summary.statuses["skipped", "slow once, and not again"] += 1
            return
        where = "alone too" if not alone else "not alone: an earlier case of its process may have caused it"
        with self._lock:
            self.summary.findings += 1
            self.found.append(Found(seed, f"the process {ended}", f"at the stage {stage!r}, {where}", None))
        self._say(f"seed {seed}: the process {ended} at the stage {stage!r}, {where}")

    def _gets_to(self, first: int, seed: int) -> bool:
        """Whether a process that begins with one case gets a result of another."""
        with _Process(self._worker, "seeds", str(first), str(seed - first + 1)) as process:
            return any("result" in line and line["seed"] == seed for line in process.lines(PATIENCE))


class _Process:
    """A worker."""

    def __init__(self, command: Sequence[str], *arguments: str) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "MXNET_SUBGRAPH_VERBOSE": "0",
            "OMP_NUM_THREADS": "1",
            # Operators run where they are called, so what dies is what was called.
            "MXNET_ENGINE_TYPE": "NaiveEngine",
        }
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._late = False

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self, patience: float) -> Iterator[dict[str, Any]]:
        """Yield what it says; kill it when it says nothing for so many seconds."""
        said: queue.Queue[str | None] = queue.Queue()
        assert self._process.stdout is not None
        stdout = self._process.stdout

        def read() -> None:
            for line in stdout:
                said.put(line)
            said.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                line = said.get(timeout=patience)
            except queue.Empty:
                self._late = True
                self._process.kill()
                return
            if line is None:
                return
            yield json.loads(line)

    def ended(self) -> str:
        """Return how it ended, in words."""
        code = self._process.wait()
        if self._late:
            return _HANGS
        return f"dies of signal {-code}" if code < 0 else f"ends with status {code}"
