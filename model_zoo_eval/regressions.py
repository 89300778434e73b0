"""What got worse since a baseline: the difference of two runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Mapping

from model_zoo_eval.accuracy.job import ACCURACY
from model_zoo_eval.accuracy.regressions import accuracy_regressions
from model_zoo_eval.job import FP32
from model_zoo_eval.journal import Results
from model_zoo_eval.onnx.job import ONNX
from model_zoo_eval.onnx.regressions import onnx_regressions
from model_zoo_eval.rows import OK, UNAVAILABLE, worst_error

__all__ = ["Comparison", "Regression", "Tolerances", "compare_results"]

_NEGLIGIBLE = 1e-5
"""Errors below this differ by what the order of FP32's own sums makes."""

_SHARE = 1e-3

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Tolerances:
    """How much worse is not worth a word.

    Attributes
    ----------
    fidelity
        How much larger an error may be, as a part of the baseline's.
    speed
        How much smaller a speed may be, as a part of the baseline's.
    slower_is_told
        Whether a speed below that is only told, in the notes: on a machine that others share, a ratio of
        times says too little to fail for.
    """

    fidelity: float = 0.25
    speed: float = 0.25
    slower_is_told: bool = False


@dataclass(frozen=True)
class Regression:
    """One thing that got worse.

    Attributes
    ----------
    case
        The model, with ``+primitive`` for that graph form.
    kind
        ``failure``, ``fidelity``, ``accuracy``, ``onnx``, ``speed`` or ``casts``.
    what
        What it was and what it is.
    """

    case: str
    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.case}: {self.kind}: {self.what}"


@dataclass(frozen=True)
class Comparison:
    """What comparing a run with a baseline found.

    Attributes
    ----------
    regressions
        What got worse.
    compared
        How many cases were compared.
    not_compared
        The cases that have results and were not: the baseline does not have them, or other weights, inputs
        or samples.
    notes
        What could not be compared, and why.
    """

    regressions: tuple[Regression, ...]
    compared: int
    not_compared: tuple[str, ...]
    notes: tuple[str, ...]


def compare_results(baseline: Results, results: Results, tolerances: Tolerances | None = None) -> Comparison:
    """Return what got worse.

    Parameters
    ----------
    baseline
        What it was.
    results
        What it is; cases that only the baseline has are left out, so that a short run can be compared.
    tolerances
        How much worse is not worth a word.

    Returns
    -------
    Comparison
        Speeds are compared where both were measured on one kind of processor, with as many threads.
    """
    limits = tolerances or Tolerances()
    notes = []
    others: dict[tuple[str, str], int] = {}
    new = sorted(set(results.rows) - set(baseline.rows))
    if new:
        notes.append(f"The baseline does not have {', '.join(new)}.")
    found: list[Regression] = []
    not_compared = list(new)
    for case, row in results.rows.items():
        before = baseline.rows.get(case)
        if before is None:
            continue
        machines = _machine(baseline, case), _machine(results, case)
        if machines[0] != machines[1] and row.get("kind") != ONNX:
            others[machines] = others.get(machines, 0) + 1
        if (before["status"] == OK and row["status"] != OK) or (
            before["status"] == UNAVAILABLE and row["status"] not in (OK, UNAVAILABLE)
        ):
            found.append(Regression(case, "failure", f"{row['status']}: {row['reason']}"))
        elif before["status"] == OK:
            difference = _circumstances_differ(before, row)
            if difference:
                notes.append(f"{case} is not compared: {difference}.")
                not_compared.append(case)
            else:
                of_kind = {ACCURACY: accuracy_regressions, ONNX: onnx_regressions}.get(row.get("kind", ""))
                worse = (
                    _worse(case, before, row, limits, machines[0] == machines[1])
                    if of_kind is None
                    else [Regression(case, *each) for each in of_kind(before, row)]
                )
                told = [each for each in worse if limits.slower_is_told and each.kind == "speed"]
                found += [each for each in worse if each not in told]
                notes += [f"{each}." for each in told]
                notes += [] if of_kind else _less_low(case, before, row)
                lacking = [] if of_kind else _lacking(before, row, results.run_of.get(case))
                if lacking:
                    notes.append(
                        f"{case} is not compared in {' and '.join(lacking)}, which it has no result of."
                    )
                    not_compared.append(case)
    compared = len(results.rows) - len(not_compared)
    notes[:0] = [
        f"Speeds are not compared{'' if number == compared else f' of {number} cases'}: the baseline's are "
        f"of {before}, these of {now}."
        for (before, now), number in others.items()
    ]
    return Comparison(tuple(found), compared, tuple(not_compared), tuple(notes))


def _machine(results: Results, case: str) -> str:
    """Say what the speeds of a case were measured on."""
    run = results.run_of.get(case)
    if run is None:
        return "an unknown machine"
    environment = run["environment"]
    flags = " ".join(environment["cpu_flags"])
    return f"{environment['cpu']} ({flags}) with {environment['threads']} threads a model"


def _circumstances_differ(before: Row, row: Row) -> str:
    for key, what in (("weights", "weights"), ("inputs", "inputs"), ("samples", "samples")):
        if before[key] != row[key]:
            return f"its {what} were {before[key]} and are {row[key]}"
    return ""


def _worse(case: str, before: Row, row: Row, limits: Tolerances, same_machine: bool) -> list[Regression]:
    found = []
    for dtype, old in before["results"].items():
        new = row["results"].get(dtype)
        if new is None or dtype == FP32:
            continue
        error, was = worst_error(new), worst_error(old)
        non_finite = _non_finite(new) - _non_finite(old)
        if non_finite > 0:
            found.append(Regression(case, "fidelity", f"{dtype} has {non_finite} more NaN and Inf"))
        elif math.isfinite(was) and not error <= max(was * (1 + limits.fidelity), _NEGLIGIBLE):
            found.append(
                Regression(case, "fidelity", f"{dtype} had an error of {was:.3g}, and has {error:.3g}")
            )
        if new["casts"] > old["casts"]:
            found.append(Regression(case, "casts", f"{dtype} had {old['casts']}, and has {new['casts']}"))
        if same_machine and "latency" in old and "latency" in new:
            speed, fast = new["latency"]["ratio"], old["latency"]["ratio"]
            # The spread of either run: what the machine's noise then or now explains is no regression.
            now, then = max(speed, new["latency"]["ratio_high"]), min(fast, old["latency"]["ratio_low"])
            if now < then * (1 - limits.speed):
                said = f"{dtype} was {fast:.2f} times as fast as FP32, and is {speed:.2f} times as fast"
                found.append(Regression(case, "speed", said))
    return found


def _lacking(before: Row, row: Row, run: Row | None) -> list[str]:
    """Return the dtypes of the baseline that a run was asked for, and that its result does not have."""
    asked = None if run is None else run["options"].get("dtypes")
    return [
        dtype
        for dtype in before["results"]
        if dtype not in row["results"] and (asked is None or dtype in asked)
    ]


def _less_low(case: str, before: Row, row: Row) -> list[str]:
    """Say where less is computed low: no regression, since a layer may be faster in FP32."""
    notes = []
    for dtype, old in before["results"].items():
        shares = old.get("low_multiply_adds"), row["results"].get(dtype, {}).get("low_multiply_adds")
        if None not in shares and shares[1] < shares[0] - _SHARE:
            was, now = (f"{100 * share:.1f} %" for share in shares)
            notes.append(f"{case} did {was} of its multiply-adds in {dtype}, and does {now}.")
    return notes


def _non_finite(found: Row) -> int:
    heads = found.get("before_ranking") or found.get("heads") or ()
    return sum(int(head["nan"]) + int(head["inf"]) for head in heads)
