"""From checks and times to what the target says of an operator."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Iterable, Mapping, Sequence, Tuple

from mxamp.ops import FACTS
from mxamp.probe.case import Case
from mxamp.probe.fit import KINDS, Sample
from mxamp.probe.jobs import CHECK, Unit, is_on_volumes, jobs_of
from mxamp.probe.judge import Outcome, worst_outcome
from mxamp.probe.workers import Answer
from mxamp.targets import OperatorCost, Rates, Support

_VARIANTS: Mapping[str, Mapping[str, str | None]] = {
    "Activation": {"act_type": None},
    "LeakyReLU": {"act_type": "leaky"},
    "Pooling": {"pool_type": "max", "layout": "None"},
}
"""Operators that are several in one: the attributes that tell which, and their values where they are absent.
A case is one of the last of them that it has."""

_SUPPORT = {
    Outcome.EXACT: Support.WORKS,
    Outcome.INEXACT: Support.WORKS,
    Outcome.BIASED: Support.BIASED,
    Outcome.WRONG: Support.WRONG,
    Outcome.RAISES: Support.UNSUPPORTED,
    Outcome.HANGS: Support.CRASHES,
    Outcome.CRASHES: Support.CRASHES,
}

_SLOW = 3.0
"""An operator that takes so many times as long as in float32, in the best of its kinds, is not worth it.

Nearer than that costs decide. A BatchNorm takes less than twice as long on one AMD EPYC and 2.1 times on a
faster one; where it runs low nowhere, neither do the layers around it, which gain far more.
"""

_LEAST_US = 25.0
"""Shorter times are mostly that of calling MXNet."""

_NOTE = 90

Checks = Sequence[Mapping[str, Any]]

_Variant = Tuple[str, str]
"""An attribute, and its value; empty for what is one operator."""


def judge_operators(
    cases: Mapping[str, Case], answers: Mapping[Unit, Answer], samples: Sequence[Sample]
) -> dict[str, dict[str, Any]]:
    """Return the ``operators`` of a target's document.

    Parameters
    ----------
    cases
        All cases.
    answers
        What came of them.
    samples
        The times.

    Returns
    -------
    dict
        Canonical operator name -> its entry. An operator of which no case ran in float32 has none, and
        neither has a cast that mxamp makes itself.
    """
    plain: dict[str, dict[_Variant, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    volumes: dict[str, dict[_Variant, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for case in cases.values():
        if case.fused or len(case.steps) != 1:
            continue
        op = FACTS.canonical(case.steps[0].op)
        facts = FACTS.get(op)
        if facts is not None and facts.apart and op != "Cast":
            continue
        variant = _variant(op, case.steps[0].attrs)
        for check in _checks(case, answers.get(Unit(case.name, CHECK))):
            found = volumes if is_on_volumes(case, check) else plain
            found[op][variant].append(check)
    return {op: _entry(op, plain[op], volumes[op], samples) for op in sorted(plain)}


def _variant(op: str, attrs: Mapping[str, Any]) -> _Variant:
    found = ("", "")
    for key in _VARIANTS.get(op, ()):
        if key in attrs or not found[0]:
            found = key, str(attrs.get(key, ""))
    return found


def _checks(case: Case, answer: Answer | None) -> Iterable[Mapping[str, Any]]:
    if answer is None:
        return
    yield from answer.jobs
    # What ends the process in float32 too is no question of precision: the case does not exist.
    if answer.died is not None and answer.died.get("phase") != "float32":
        yield {**jobs_of(case, CHECK)[int(answer.died["index"])], **answer.died}


def _entry(
    op: str,
    by_variant: Mapping[_Variant, Checks],
    volumes: Mapping[_Variant, Checks],
    samples: Sequence[Sample],
) -> dict[str, Any]:
    fine = {variant for variant, checks in by_variant.items() if _is_right(checks)}
    if not fine or (op not in _VARIANTS and len(fine) < len(by_variant)):
        worst = worst_outcome(check for checks in by_variant.values() for check in checks)
        assert worst is not None  # an operator is here because it has a check
        return {"support": _SUPPORT[Outcome(worst["outcome"])].value, "note": _note(worst, by_variant)}
    ratio = _least_ratio(op, samples)
    if ratio is not None and ratio > _SLOW:
        return {
            "support": Support.SLOW.value,
            "note": f"takes about {ratio:.2g} times as long as in float32 outside a fused chain",
        }
    entry: dict[str, Any] = {"support": Support.WORKS.value}
    for key, default in _VARIANTS.get(op, {}).items():
        tried = [value for name, value in by_variant if name == key]
        values = [value for value in tried if (key, value) in fine]
        if default is not None and default not in tried:
            values = [default, *values]  # it is tried wherever nothing is said
        if tried:
            entry.setdefault("only", {})[key] = ([""] if default in values else []) + values
    if not all(_is_right(volumes.get(variant, ())) for variant in fine):
        entry["volumes"] = False
    return entry


def _is_right(checks: Checks) -> bool:
    worst = worst_outcome(checks)
    return worst is None or Outcome(worst["outcome"]).rank <= Outcome.INEXACT.rank


def _note(worst: Mapping[str, Any], by_variant: Mapping[_Variant, Checks]) -> str:
    """Return what was seen, in a few words."""
    outcome, note = Outcome(worst["outcome"]), str(worst.get("note", ""))
    if outcome is Outcome.BIASED:
        biases = [
            float(check["bias_ulp"])
            for checks in by_variant.values()
            for check in checks
            if check["outcome"] == outcome.value
        ]
        low, high = min(biases), max(biases)
        spread = f"{low:+.1f}" if f"{low:+.1f}" == f"{high:+.1f}" else f"{low:+.1f} to {high:+.1f}"
        return f"mean error {spread} ulp"
    if outcome is Outcome.WRONG:
        return note or f"errors of {_round(float(worst['max_ulp']))} ulp"
    if outcome is Outcome.RAISES:
        return f"MXNet raises: {_shortened(note)}"
    if outcome is Outcome.HANGS:
        return f"does not return: {note}"
    return f"ends the process: {_shortened(note)}"


def _shortened(note: str) -> str:
    _, failed, said = note.split("MXNetError: ")[-1].rpartition("Check failed: ")
    if failed:
        # The condition comes first, and what it means last.
        said = said.rpartition(": ")[2] or said
    said = " ".join(said.split()).rstrip(".")
    return said if len(said) <= _NOTE else f"{said[: _NOTE - 3]}..."


def _round(number: float) -> str:
    """Return a number with two digits that count."""
    digits = 10 ** max(0, int(math.log10(max(number, 1.0))) - 1)
    return f"{round(number / digits) * digits:.0f}"


def _least_ratio(op: str, samples: Sequence[Sample]) -> float | None:
    """Return how many times as long as in float32 an operator takes, of its kinds the best."""
    own = [sample for sample in samples if sample.op == op]
    ratios = []
    for kind in KINDS.get(op, ({},)):
        condition = OperatorCost(Rates(1, 1), **kind)
        chosen = [sample for sample in own if condition.holds_for(sample.work)]
        own = [sample for sample in own if sample not in chosen]
        logs = [
            math.log(times.low / times.float32)
            for sample in chosen
            for times in (sample.plain, sample.behind)
            if times is not None and min(times) > _LEAST_US
        ]
        if logs:
            ratios.append(math.exp(sum(logs) / len(logs)))
    return min(ratios) if ratios else None
