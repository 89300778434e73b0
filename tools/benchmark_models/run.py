"""Measure many models, each in a process of its own, and write down each as it ends."""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from model_zoo_eval.journal import Journal, Results, read_results
from model_zoo_eval.process import Limits, run_in_process
from model_zoo_eval.rows import CRASHED, OK
from mxamp.errors import DataError
from tools.benchmark_conversion import KEEP_MEMORY
from tools.benchmark_models.job import Job
from tools.benchmark_models.names import FP32, TITLES
from tools.benchmark_models.results import Measured, read_rows

__all__ = ["Task", "case_key", "run_tasks"]

Run = Callable[[Mapping[str, Any], Limits, Sequence[str]], Mapping[str, Any]]
"""Does a job in a process: :func:`model_zoo_eval.process.run_in_process`."""


class Task(NamedTuple):
    """One line of the journal: a model at a batch size, or the time of its conversion where that is 0."""

    name: str
    form: str
    batch: int

    @property
    def label(self) -> str:
        """The name, with the form of the graph where that is not the usual one."""
        return f"{self.name}+{self.form}" if self.form == "primitive" else self.name


def case_key(task: Task) -> str:
    """Return what the journal calls a task."""
    return f"{task.label}, batch {task.batch}" if task.batch else f"{task.label}, conversion"


def run_tasks(
    tasks: Sequence[Task],
    job: Job,
    *,
    journal: Path,
    limits: Limits,
    machine: Mapping[str, Any],
    resume: bool = False,
    run: Run = run_in_process,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> Results:
    """Measure, and return what the journal holds then.

    Parameters
    ----------
    tasks
        What to measure.
    job
        How; name, form and batch size are those of each task.
    journal
        Where every result is written as soon as it is there.
    limits
        What each process may take.
    machine
        What it is measured with.
    resume
        Whether to leave out what the journal has.
    run
        Does a job in a process.
    say
        Told what happens, a line at a time.

    Raises
    ------
    DataError
        When there is a journal already and ``resume`` is False, or it was made with other options.
    """
    options = _options(job, limits)
    done = _earlier(journal, options, machine, resume, say)
    wanted = [task for task in tasks if case_key(task) not in done]
    if len(wanted) < len(tasks):
        say(f"{len(tasks) - len(wanted)} of {len(tasks)} are in {journal} already.")
    book = Journal(journal)
    book.start(machine, options)
    progress = _Progress(wanted, say)
    for task in wanted:
        started = time.perf_counter()
        own = dataclasses.replace(job, name=task.name, form=task.form, batch=task.batch)
        row = {**_measure(own, limits, run), "name": task.label, "batch": task.batch}
        book.add(case_key(task), row)
        progress.tell(task, row, time.perf_counter() - started)
    return read_results(journal)


def _measure(job: Job, limits: Limits, run: Run) -> Mapping[str, Any]:
    """Do a job; where a variant takes the process down, all the others without it."""
    command = [sys.executable, "-W", "ignore", "-m", "tools.benchmark_models.child"]
    if not job.batch:
        # See tools.benchmark_conversion: glibc would give memory back after some conversions.
        command = ["env", *(f"{name}={value}" for name, value in KEEP_MEMORY.items()), *command]
    for _ in TITLES:
        row = run(job.to_mapping(), limits, command)
        culprit = row.get("variant", FP32)
        if row["status"] != CRASHED or culprit == FP32:
            break
        job = dataclasses.replace(job, without=(*job.without, (culprit, row["reason"])))
    return row


def _options(job: Job, limits: Limits) -> dict[str, Any]:
    """Return what all results of a journal must have in common."""
    left_out = ("name", "form", "batch", "without")
    own = {key: value for key, value in job.to_mapping().items() if key not in left_out}
    return {**own, "threads": limits.threads}


def _earlier(
    journal: Path,
    options: Mapping[str, Any],
    machine: Mapping[str, Any],
    resume: bool,
    say: Callable[[str], None],
) -> set[str]:
    """Return what a journal has already."""
    if not journal.is_file():
        return set()
    if not resume:
        raise DataError(
            f"{str(journal)!r} holds an earlier run. Continue it with --resume, start anew with --fresh, or "
            "give another folder with --output."
        )
    results = read_results(journal)
    for before in results.runs:
        for key, value in before["options"].items():
            if options.get(key) != value:
                raise DataError(
                    f"{str(journal)!r} was made with {key} = {value!r}, and now it is {options.get(key)!r}. "
                    "Both cannot stand in one table: use the same options, or another --output."
                )
        for key in ("commit", "cpu", "versions"):
            if before["environment"].get(key) != machine.get(key):
                say(
                    f"note: part of {journal} was measured with another {key}: "
                    f"{before['environment'].get(key)}"
                )
    return set(results.rows)


class _Progress:
    """Says what ended, and how long the rest may take."""

    def __init__(self, tasks: Sequence[Task], say: Callable[[str], None]) -> None:
        self._waiting = list(tasks)
        self._total = len(tasks)
        self._say = say
        self._seconds: dict[int, list[float]] = defaultdict(list)

    def tell(self, task: Task, row: Mapping[str, Any], seconds: float) -> None:
        """Say that a task ended."""
        self._waiting.remove(task)
        self._seconds[task.batch].append(seconds)
        number = self._total - len(self._waiting)
        left = f", about {_duration(self._left())} left" if self._waiting else ""
        width = len(str(self._total))
        self._say(
            f"[{number:{width}}/{self._total}] {case_key(task):<42} {_outcome(row)} "
            f"({_duration(seconds)}{left})"
        )

    def _left(self) -> float:
        """Return the seconds for what waits, each taken to last as long as others of its batch size did."""
        overall = statistics.fmean(value for own in self._seconds.values() for value in own)
        means = {batch: statistics.fmean(own) for batch, own in self._seconds.items()}
        return sum(means.get(task.batch, overall) for task in self._waiting)


def _outcome(row: Mapping[str, Any]) -> str:
    if row["status"] != OK:
        return f"{row['status'].upper()}: {row['reason'][:160]}"
    found = read_rows({"": row})
    if found.conversions:
        ratio = found.conversions[0].ratio()
        return "fails" if ratio is None else f"mxamp takes {ratio:.2f} times as long as stock"
    return ", ".join(_speeds(found.models[0]))


def _speeds(measured: Measured) -> list[str]:
    parts = []
    for variant, title in TITLES.items():
        ratio = measured.ratio(variant)
        if ratio is not None and variant != FP32:
            parts.append(f"{title} {ratio.median:.2f}")
    return parts


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
