"""Evaluate many models: a journal that is written as they end, and a line about each for who watches."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Protocol, Sequence, Tuple

from model_zoo_eval.environment import describe_environment
from model_zoo_eval.job import FP32, Job
from model_zoo_eval.journal import Journal, Results, read_results
from model_zoo_eval.process import Limits, run_in_process
from model_zoo_eval.registry import Case, find_entry
from model_zoo_eval.rows import LOST, OK, UNAVAILABLE, worst_error
from mxamp.errors import DataError

__all__ = ["LocalScheduler", "Scheduler", "run_cases"]

Finished = Iterator[Tuple[Case, Mapping[str, Any]]]


class Scheduler(Protocol):
    """Runs jobs somewhere."""

    @property
    def workers(self) -> int:
        """How many jobs it runs at once."""

    @property
    def environment(self) -> Mapping[str, Any]:
        """What of the circumstances is not this process's: the processor of other machines."""

    def run(self, jobs: Sequence[tuple[Case, Job]], limits: Limits) -> Finished:
        """Yield the row of every job as it ends."""


class LocalScheduler:
    """Runs jobs on this machine, each in a process of its own.

    Parameters
    ----------
    workers
        How many at once.
    command
        What to run instead of the evaluation.
    """

    def __init__(self, workers: int = 1, command: Sequence[str] | None = None) -> None:
        self.workers = workers
        self.environment: Mapping[str, Any] = {}
        self._command = command

    def run(self, jobs: Sequence[tuple[Case, Job]], limits: Limits) -> Finished:
        """Yield the row of every job as it ends; when the caller stops, running processes are killed."""
        stopped = threading.Event()
        with ThreadPoolExecutor(self.workers) as pool:
            waiting = iter(jobs)
            running: dict[Future[dict[str, Any]], Case] = {}
            try:
                while True:
                    # Not all at once: what has not begun need not be cancelled.
                    for case, job in waiting:
                        future = pool.submit(
                            run_in_process, job.to_mapping(), limits, self._command, stopped.is_set
                        )
                        running[future] = case
                        if len(running) == self.workers:
                            break
                    if not running:
                        return
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), future.result()
            finally:
                stopped.set()


def run_cases(
    cases: Sequence[Case],
    job: Job,
    *,
    path: Path,
    scheduler: Scheduler,
    limits: Limits,
    resume: bool = False,
    retry: bool = False,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> Results:
    """Evaluate cases and write their results.

    Parameters
    ----------
    cases
        What to evaluate.
    job
        How; name and form are those of each case.
    path
        The journal.
    scheduler, limits
        Where, and what each may take.
    resume
        Whether to leave out what the journal has.
    retry
        With ``resume``: whether to evaluate what failed again.
    say
        Told what happens, a line at a time.

    Returns
    -------
    Results
        All that the journal holds then.

    Raises
    ------
    DataError
        When there is a journal already and ``resume`` is False, or it was made with other options.
    """
    for name in {case.name for case in cases}:
        find_entry(name)
    options = _options(job)
    before = _earlier(path, options, resume)
    wanted = [case for case in cases if _is_open(before.rows.get(case.key), retry)]
    journal = Journal(path)
    environment = describe_environment(threads=limits.threads, seed=job.seed)
    journal.start({**environment, **scheduler.environment}, options)
    if len(wanted) < len(cases):
        say(f"{len(cases) - len(wanted)} of {len(cases)} are in {path} already.")
    runnable = []
    for case in wanted:
        entry = find_entry(case.name)
        if entry.is_runnable:
            runnable.append((case, replace(job, name=case.name, form=case.form)))
        else:
            journal.add(case.key, {"status": UNAVAILABLE, "reason": entry.unavailable})
    progress = _Progress(len(runnable), scheduler.workers, say)
    finished = scheduler.run(runnable, limits)
    try:
        for case, row in finished:
            if row["status"] == LOST:
                say(f"{case.key} was {row['reason']}; --resume evaluates it again.")
                continue
            journal.add(case.key, row)
            progress.tell(case, row)
    finally:
        close = getattr(finished, "close", None)
        if close is not None:
            close()
    return read_results(path)


def _options(job: Job) -> dict[str, Any]:
    """Return what all results of a journal must have in common."""
    return {key: value for key, value in job.to_mapping().items() if key not in ("name", "form")}


def _earlier(path: Path, options: Mapping[str, Any], resume: bool) -> Results:
    if not path.is_file():
        return Results()
    results = read_results(path)
    if not resume:
        raise DataError(
            f"{str(path)!r} holds {len(results.rows)} results. Continue with --resume, start anew with "
            "--fresh, or give another folder with --output."
        )
    for run in results.runs:
        for key, value in run["options"].items():
            if options.get(key) != value:
                raise DataError(
                    f"{str(path)!r} was made with {key} = {value!r}, and now it is {options.get(key)!r}. "
                    "Results of both cannot stand in one table: use the same options, or another --output."
                )
    return results


def _is_open(row: Mapping[str, Any] | None, retry: bool) -> bool:
    return row is None or (retry and row["status"] not in (OK, UNAVAILABLE))


class _Progress:
    """Says what ended, and how long the rest may take."""

    def __init__(self, total: int, workers: int, say: Callable[[str], None]) -> None:
        self._total = total
        self._workers = workers
        self._say = say
        self._seconds: list[float] = []
        self._started = time.perf_counter()

    def tell(self, case: Case, row: Mapping[str, Any]) -> None:
        self._seconds.append(float(row.get("seconds", 0.0)))
        done = len(self._seconds)
        width = len(str(self._total))
        left = ""
        if done < self._total:
            left = f", about {_duration(self._left(done))} left"
        self._say(
            f"[{done:{width}}/{self._total}] {case.key:<44} {_outcome(row)} "
            f"({_duration(float(row.get('seconds', 0.0)))}{left})"
        )

    def _left(self, done: int) -> float:
        mean = statistics.fmean(self._seconds)
        return mean * (self._total - done) / max(1, self._workers)


def _outcome(row: Mapping[str, Any]) -> str:
    if row["status"] != OK:
        return f"{row['status'].upper()}: {row['reason'][:160]}"
    parts = []
    for dtype, found in row["results"].items():
        if dtype == FP32:
            continue
        worst = worst_error(found)
        speed = found.get("latency", {}).get("ratio")
        parts.append(f"{dtype} {worst:.1e}" + (f" at {speed:.2f}x" if speed is not None else ""))
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
