"""What a race between runtimes found."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Mapping

from mxamp.errors import AccuracyError
from mxamp.measuring.race import Ratio
from mxamp.racing.competitor import RUNTIMES
from mxamp.racing.text import format_race

FORMAT_VERSION = 1

EQUALLY_FAST = 0.02
"""Entries that take at most so much longer than the fastest are as good as it."""


@dataclass(frozen=True)
class RaceEntry:
    """A model in a runtime.

    Attributes
    ----------
    model
        What the user calls the model.
    runtime
        ``"mxnet"``, ``"onnxruntime"`` or ``"openvino"``.
    precision
        In what it computes, in words, and who decided that.
    how
        What to do to deploy it so.
    version
        The runtime's version; empty where it did not start.
    milliseconds
        The median time of a forward pass; None where it did not run.
    ratio
        How many times as fast as the first entry it is, from times of the same rounds.
    seconds
        Its time in each round; those at one place, of all that ran, were taken in one round.
    error
        The relative L2 error of its worst output against the FP32 model; None where that could not be
        measured.
    worst_output
        Which that is.
    failure
        Why it did not run; None where it did.
    details
        What the runtime said: its settings, the precisions it executes in.
    """

    model: str
    runtime: str
    precision: str
    how: str
    version: str = ""
    milliseconds: float | None = None
    ratio: Ratio | None = None
    seconds: tuple[float, ...] = ()
    error: float | None = None
    worst_output: str | None = None
    failure: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What to call it."""
        return f"{self.model} in {RUNTIMES[self.runtime]}, {self.precision}"

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        ratio = self.ratio
        return {
            "model": self.model,
            "runtime": self.runtime,
            "version": self.version,
            "precision": self.precision,
            "how": self.how,
            "milliseconds": self.milliseconds,
            "ratio": None
            if ratio is None
            else {
                "median": ratio.median,
                "low": ratio.low,
                "high": ratio.high,
                "median_low": ratio.median_low,
                "median_high": _number(ratio.median_high),
                "rounds": ratio.rounds,
            },
            "error": None if self.error is None else _number(self.error),
            "worst_output": self.worst_output,
            "failure": self.failure,
            **({"details": dict(self.details)} if self.details else {}),
        }


@dataclass(frozen=True)
class RaceResult:
    """What a race found.

    Attributes
    ----------
    entries
        All that were to run, those that failed included. Ratios are to the first one that ran.
    reference
        What errors are measured against.
    tolerance
        The largest error of what may be deployed.
    machine
        CPU and threads.
    samples, batch_size
        On how much data errors were measured, and how much of it a forward pass takes.
    notes
        What the reader should know.
    """

    entries: tuple[RaceEntry, ...]
    reference: str
    tolerance: float
    machine: Mapping[str, str]
    samples: int
    batch_size: int
    notes: tuple[str, ...] = ()

    @property
    def ran(self) -> tuple[RaceEntry, ...]:
        """The entries that ran."""
        return tuple(entry for entry in self.entries if entry.milliseconds is not None)

    @property
    def best(self) -> RaceEntry | None:
        """What to deploy: of those within the tolerance the fastest; of those as fast, the most faithful."""
        allowed = [entry for entry in self.ran if self.is_allowed(entry)]
        if not allowed:
            return None
        close = self.as_fast_as(max(allowed, key=_speed))
        return min(close, key=lambda entry: math.inf if entry.error is None else entry.error)

    def as_fast_as(self, one: RaceEntry) -> tuple[RaceEntry, ...]:
        """Return the entries within the tolerance that are about as fast as one, or faster."""
        enough = _speed(one) * (1 - EQUALLY_FAST)
        return tuple(entry for entry in self.ran if self.is_allowed(entry) and _speed(entry) >= enough)

    def is_allowed(self, entry: RaceEntry) -> bool:
        """Whether an entry is near enough to the FP32 model to be deployed."""
        return entry.error is not None and entry.error <= self.tolerance

    def check(self) -> None:
        """Check that there is something to deploy.

        Raises
        ------
        AccuracyError
            When nothing ran within the tolerance.
        """
        if self.best is None:
            found = "; ".join(
                f"{entry.label}: {entry.failure or f'{entry.error:.1e}'}" for entry in self.entries
            )
            raise AccuracyError(f"Nothing that ran is within the tolerance of {self.tolerance:g}. {found}")

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        best = self.best
        return {
            "format": FORMAT_VERSION,
            "entries": [entry.to_mapping() for entry in self.entries],
            "deploy": None if best is None else self.entries.index(best),
            "reference": self.reference,
            "tolerance": self.tolerance,
            "machine": dict(self.machine),
            "samples": self.samples,
            "batch_size": self.batch_size,
            "notes": list(self.notes),
        }

    def to_json(self, *, indent: int | None = 1) -> str:
        """Return it as JSON."""
        return json.dumps(self.to_mapping(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        return format_race(self)


def _number(value: float) -> float | str:
    """Return a number as JSON has it, which knows no infinity and no NaN."""
    return value if math.isfinite(value) else str(value)


def _speed(entry: RaceEntry) -> float:
    assert entry.ratio is not None
    return entry.ratio.median
